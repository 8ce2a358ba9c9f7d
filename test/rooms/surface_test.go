package rooms

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestEveryRootNameIsShown lists the exported names of the root package that stand
// neither in a compiled example nor in a guide's prose: a user needs them, and is shown
// how, or they are not exported.
func TestEveryRootNameIsShown(t *testing.T) {
	shown := make(map[string]bool)
	inExamples(t, shown)
	inGuides(t, shown)
	for _, name := range exported(t) {
		if !shown[name] {
			t.Errorf("redrive.%s stands in no example and in no guide", name)
		}
	}
}

// What a user reads first stays small: the files of the root package beside tests, their
// lines, its exported types, and the lines of `go doc`.
const (
	rootFiles = 25
	rootLines = 3000
	rootTypes = 60
	docLines  = 100
)

// TestTheRootIsSmall holds the root package to its bounds.
func TestTheRootIsSmall(t *testing.T) {
	files, lines, types := 0, 0, 0
	for _, path := range glob(t, root+"/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files, lines = files+1, lines+bytes.Count(b, []byte("\n"))
		for _, d := range parse(t, path).Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Name.IsExported() {
						types++
					}
				}
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "doc", ".")
	cmd.Dir = root
	doc, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of         string
		got, bound int
	}{{"files", files, rootFiles}, {"lines", lines, rootLines}, {"exported types", types, rootTypes}, {"lines of go doc", bytes.Count(doc, []byte("\n")), docLines}} {
		if c.got > c.bound || c.got == 0 {
			t.Errorf("the root package has %d %s, at most %d are allowed", c.got, c.of, c.bound)
		}
	}
}

// exported returns the exported names of the root package, without methods and fields.
func exported(t *testing.T) (names []string) {
	t.Helper()
	for _, path := range glob(t, root+"/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range parse(t, path).Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names = append(names, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names = append(names, s.Name.Name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return !token.IsExported(n) })
}

// inExamples finds what examples use: the programs below examples/ and the examples of
// packages.
func inExamples(t *testing.T, shown map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		program := strings.HasPrefix(path, root+"/examples/") && !strings.HasSuffix(name, "_test.go")
		example := strings.HasPrefix(name, "example") && strings.HasSuffix(name, "_test.go")
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || !program && !example {
			return err
		}
		ast.Inspect(parse(t, path), func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "redrive" {
					shown[s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	generated = regexp.MustCompile(`(?s)<!-- [a-z ]+: written by .*?<!-- end of [a-z ]+ -->`)
	code      = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	word      = regexp.MustCompile(`\b[A-Z]\w*`)
)

// inGuides finds what stands as code in README.md and the guides, outside of what is
// generated.
func inGuides(t *testing.T, shown map[string]bool) {
	t.Helper()
	for _, path := range append(glob(t, root+"/docs/*.md"), root+"/README.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range code.FindAll(generated.ReplaceAll(b, nil), -1) {
			for _, name := range word.FindAll(span, -1) {
				shown[string(name)] = true
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
	}
	return paths
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
