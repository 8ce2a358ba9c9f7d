// Package backend opens a store by its address, for programs that let a user choose
// where messages wait. A program that knows its store opens it by the store's own
// package, and carries no other client.
package backend

import (
	"context"
	"fmt"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
)

// Open opens the store at an address: "sqlite:DIR". Its parameters are those of the
// store's package. The caller closes it. Errors do not show a password.
func Open(_ context.Context, address string) (redrive.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	switch {
	case ok && scheme == "sqlite":
		return sqlite.Open(rest)
	case !ok:
		scheme = "none"
	}
	return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("a store of scheme %s is not known", scheme), Hint: "write sqlite: and a directory"}
}
