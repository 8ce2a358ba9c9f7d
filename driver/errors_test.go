package driver_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Each error that the root package exports has a name of its own, and comes back by it.
func TestEachErrorHasAName(t *testing.T) {
	known := map[string]error{
		"ErrBacklogged": redrive.ErrBacklogged, "ErrConflict": redrive.ErrConflict, "ErrDuplicate": redrive.ErrDuplicate, "ErrFull": redrive.ErrFull,
		"ErrClosed": redrive.ErrClosed, "ErrUnknown": redrive.ErrUnknown, "ErrCorrupt": redrive.ErrCorrupt, "ErrInUse": redrive.ErrInUse,
		"ErrInvalid": redrive.ErrInvalid, "ErrNotFound": redrive.ErrNotFound, "ErrLoop": redrive.ErrLoop, "ErrUncertain": redrive.ErrUncertain,
		"ErrBodyGone": redrive.ErrBodyGone, "ErrBodyCorrupt": redrive.ErrBodyCorrupt, "ErrState": redrive.ErrState, "ErrLeaseLost": redrive.ErrLeaseLost, "ErrVersion": redrive.ErrVersion,
		"ErrUnsupported": redrive.ErrUnsupported, "ErrNoHandler": redrive.ErrNoHandler, "ErrSettled": redrive.ErrSettled,
	}
	var names []string
	for _, exported := range exportedErrors(t) {
		err := known[exported]
		if err == nil {
			t.Errorf("redrive.%s is not in this test", exported)
			continue
		}
		name := driver.ErrorName(fmt.Errorf("wrapped: %w", err))
		if name == "" || slices.Contains(names, name) || !errors.Is(driver.ErrorNamed(name), err) {
			t.Errorf("redrive.%s has the name %q, which is of %v", exported, name, driver.ErrorNamed(name))
		}
		names = append(names, name)
	}
	if len(names) < 15 || driver.ErrorName(errors.New("x")) != "" || driver.ErrorNamed("x") != nil {
		t.Errorf("%d names; another error is %q", len(names), driver.ErrorName(errors.New("x")))
	}
}

// exportedErrors are the variables of the root package that begin with Err.
func exportedErrors(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					for _, n := range s.(*ast.ValueSpec).Names {
						if strings.HasPrefix(n.Name, "Err") {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return names
}
