// Package backend opens a store by its address, for programs that let a user choose
// where messages wait. A program that knows its store opens it by the store's own
// package, and carries no other client.
package backend

import (
	"context"
	"fmt"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/mysql"
	"github.com/redrive/redrive/backend/postgres"
	"github.com/redrive/redrive/backend/redisstream"
	"github.com/redrive/redrive/backend/sqlite"
)

// Open opens the store at an address: "sqlite:DIR", "postgres://...", "mysql://...",
// "redis://..." (rediss:// with TLS, redis+sentinel://, redis+cluster://). Its parameters are those of the store's package. It fails if a server cannot be reached
// before ctx ends. The caller closes the store. Errors do not show a password.
func Open(ctx context.Context, address string) (redrive.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		scheme = "none"
	}
	switch scheme {
	case "sqlite":
		return opened(sqlite.Open(rest))
	case "postgres", "postgresql":
		return opened(postgres.Open(ctx, address))
	case "mysql", "mariadb":
		return opened(mysql.Open(ctx, address))
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		return opened(redisstream.Open(ctx, address))
	}
	return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("a store of scheme %s is not known", scheme), Hint: "write sqlite:DIR, postgres://user@host/database, mysql://user@host/database or redis://host/0"}
}

// opened keeps a nil pointer from becoming a store.
func opened[S redrive.Store](s S, err error) (redrive.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
