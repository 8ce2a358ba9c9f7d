package driver_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Each error that the root package exports has a name of its own, and comes back by it.
func TestEachErrorHasAName(t *testing.T) {
	known := map[string]error{
		"ErrBacklogged": redrive.ErrBacklogged, "ErrConflict": redrive.ErrConflict, "ErrDuplicate": redrive.ErrDuplicate, "ErrFull": redrive.ErrFull,
		"ErrClosed": redrive.ErrClosed, "ErrUnknown": redrive.ErrUnknown, "ErrUnavailable": redrive.ErrUnavailable, "ErrCorrupt": redrive.ErrCorrupt, "ErrInUse": redrive.ErrInUse,
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

// What a connection says is the server's absence; what has a name, or is a caller's end, is not.
func TestUnavailable(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for err, want := range map[error]bool{
		dial: true, fmt.Errorf("read: %w", io.EOF): true, io.ErrUnexpectedEOF: true, syscall.EPIPE: true,
		&net.OpError{Op: "dial", Err: context.DeadlineExceeded}: true, &net.OpError{Op: "dial", Err: context.Canceled}: false,
		fmt.Errorf("%w: %w", redrive.ErrUnknown, dial): false, context.DeadlineExceeded: false, errors.New("syntax"): false,
	} {
		got := driver.Unavailable(err)
		if errors.Is(got, redrive.ErrUnavailable) != want || !errors.Is(got, err) || want && driver.ErrorName(got) != "store-unavailable" {
			t.Errorf("%v: %v (%s)", err, got, driver.ErrorName(got))
		}
	}
	if driver.Unavailable(nil) != nil {
		t.Error("nil becomes an error")
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
