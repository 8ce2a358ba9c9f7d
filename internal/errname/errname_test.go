package errname_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/errname"
)

// OutOfStock is errname.StockError after it was renamed and moved to this package.
type OutOfStock struct{}

func (OutOfStock) Error() string     { return "not enough stock" }
func (OutOfStock) ErrorName() string { return "shop.StockError" }

type Unnamed struct{}

func (*Unnamed) Error() string { return "not enough stock" }

type statusError int

func (e statusError) Error() string { return fmt.Sprint("status ", int(e)) }

type wrapping struct{ err error }

func (w *wrapping) Error() string   { return w.err.Error() }
func (w *wrapping) Unwrap() error   { return w.err }
func (*wrapping) ErrorName() string { return "" }

type far struct{ error }

func (far) ErrorTypes() []string { return []string{"ValueError", "Exception"} }

type of[T any] struct{ error }

type hostile struct{ name string }

func (*hostile) Error() string       { return "x" }
func (h *hostile) ErrorName() string { return h.name } // panics on nil

func TestChain(t *testing.T) {
	x := errors.New("x")
	for _, c := range []struct {
		err  error
		want []string
	}{
		{x, []string{"*errors.errorString"}},
		{fmt.Errorf("a: %w", &fs.PathError{Op: "o", Path: "p", Err: fs.ErrNotExist}), []string{"*fs.PathError", "*errors.errorString"}},
		{fmt.Errorf("a: %w, %w", statusError(1), x), []string{"errname_test.statusError"}},
		{errors.Join(statusError(1), x), []string{"errname_test.statusError"}},
		{redrive.Permanent(statusError(404)), []string{"errname_test.statusError"}},
		{redrive.RetryAfter(fmt.Errorf("%w", &wrapping{&redrive.PanicError{Value: x}}), 1), []string{"redrive.PanicError", "*errors.errorString"}},
		{redrive.RepeatAfter(1), []string{"error"}},
		{fmt.Errorf("%w", &wrapping{far{x}}), []string{"ValueError", "Exception"}},
		{&fs.PathError{Err: OutOfStock{}}, []string{"*fs.PathError", "shop.StockError"}},
		{of[map[string]*errname.Unnamed]{}, []string{"errname_test.of[map[string]*errname.Unnamed]"}},
		{(*hostile)(nil), []string{"*errname_test.hostile"}},
		{nil, []string{"error"}},
	} {
		if got := errname.Chain(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%T: %q, want %q", c.err, got, c.want)
		}
	}
	var deep error = statusError(1)
	for range 100 {
		deep = &fs.PathError{Err: deep}
	}
	if n := len(errname.Chain(deep)); n != 16 {
		t.Errorf("%d names of a deep chain", n)
	}
}

// A type that moves to another package and is renamed keeps its signature by its name; the
// package is part of the name of one without.
func TestAnErrorThatMovesKeepsItsSignature(t *testing.T) {
	signature := func(err error) string {
		return driver.Signature(&redrive.Failure{Types: errname.Chain(err), Message: err.Error(), Stack: "handler of shop/order"})
	}
	if before, after := signature(&errname.StockError{}), signature(fmt.Errorf("%w", OutOfStock{})); before != after {
		t.Errorf("%s before the move, %s after", before, after)
	}
	if signature(&errname.Unnamed{}) == signature(&Unnamed{}) {
		t.Error("errors of two packages are one cause")
	}
}
