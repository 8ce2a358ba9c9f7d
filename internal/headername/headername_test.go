package headername_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// others look like the name of a header and are none.
var others = []string{"redrive-none", "redrive-bench", "redrive-attach", "redrive-chat", "redrive-test"}

var name = regexp.MustCompile(`(?i)^redrive-[a-z][a-z-]*$`)

// A header's name stands in this package or in the root's headers.go, and nowhere else.
func TestNamesOfHeadersStandInOnePlace(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "examples" || d.Name() == "node_modules"):
			return fs.SkipDir // an example is written as a user writes it
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), path == filepath.Join(root, "headers.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(lit.Value) // it was parsed
			if name.MatchString(text) && !slices.Contains(others, text) {
				if file.Name.Name == "headername" {
					seen++
				} else {
					t.Errorf("%s: %s: use a constant of internal/headername", path, lit.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 40 {
		t.Errorf("%d names, %v", seen, err)
	}
}
