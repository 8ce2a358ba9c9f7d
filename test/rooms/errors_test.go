package rooms

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// errorNames are the names of our error types; "" is one that only wraps. They stand in
// stored signatures: a type may be renamed and moved, its name stays.
var errorNames = []string{
	"", "", "", "", // verbs, and refusals around their causes
	"delivery.BlockedError", "delivery.RefusedError", "delivery.ResponseError", "delivery.TransportError",
	"engine.CrashError", "engine.StuckError",
	"guard.DeferredError", "guard.RateLimitError", "guard.UncertainError",
	"plan.RecordError",
	"redrive.DecodeError", "redrive.Error", "redrive.PanicError", "redrive.Problem", "redrivetest.Panic", "sqlite.Error", "sqlstore.AcquireError",
}

// TestOurErrorsHaveNames finds each type of a library with a method Error() string, and the
// name that its method ErrorName returns.
func TestOurErrorsHaveNames(t *testing.T) {
	const root = "../.."
	types, names := make(map[string]bool), make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			switch rel = filepath.ToSlash(rel); {
			case rel == "bench", rel == "cmd", rel == "examples", rel == "internal/daemon", rel == "test", rel == "tools", strings.HasPrefix(d.Name(), ".") && rel != ".":
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || len(f.Type.Params.List) > 0 || f.Type.Results == nil {
				continue
			}
			of := filepath.Join(filepath.Dir(rel), receiver(f))
			switch f.Name.Name {
			case "Error":
				types[of] = true
			case "ErrorName":
				if ret, ok := f.Body.List[0].(*ast.ReturnStmt); ok {
					if lit, ok := ret.Results[0].(*ast.BasicLit); ok {
						names[of], err = strconv.Unquote(lit.Value)
					}
				}
			case "ErrorTypes": // raised elsewhere
				delete(types, of)
				names[of] = "elsewhere"
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for of := range types {
		name, ok := names[of]
		if !ok {
			t.Errorf("%s has no method ErrorName() string that returns a literal", of)
		}
		if name != "elsewhere" {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, errorNames) {
		t.Errorf("our errors are\n%q, want\n%q", got, errorNames)
	}
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if name, ok := typ.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
