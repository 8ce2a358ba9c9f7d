package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// defaults are the statements of the default prefix.
var defaults = newStatements(defaultPrefix)

// errNoTx is returned where there is no transaction.
var errNoTx = fmt.Errorf("%w transaction: it is nil", redrive.ErrInvalid)

// PublishTx publishes within the caller's own transaction, in a database that holds the
// tables with the prefix "redrive_": the messages exist if and only if the transaction
// commits. Messages with an empty ID get one, written into msgs. A message that is there
// already, by id, kind, key and body, counts as published. The error names the messages
// that were refused ([redrive.ErrConflict], [redrive.ErrInvalid]); it leaves the
// transaction usable, with the others in it. After any other error it must be rolled
// back: the server may have undone it already. Waiters see the messages at their next
// poll; see [Store.Wake]. Transactions do not wait for one another, unless they publish
// under the same id, or to the same key of a queue with order by key.
func PublishTx(ctx context.Context, tx *sql.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, tx, defaults, msgs)
}

// PublishTx is the function of that name for the store's own prefix.
func (s *Store) PublishTx(ctx context.Context, tx *sql.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, tx, s.sql, msgs)
}

func publishTx(ctx context.Context, tx *sql.Tx, sql *statements, msgs []redrive.Message) error {
	if tx == nil {
		return &redrive.Error{Op: "publish", Err: errNoTx}
	}
	return newWork(sqlDB{tx}, sql, nil).PublishTx(ctx, msgs)
}

// SettleTx settles a delivery within the caller's own transaction, in the database that
// the message came from: what the handler did there and the settlement are one commit.
// After the commit the handler returns [redrive.ErrSettled], and the engine settles
// nothing. On an error the caller rolls back: [redrive.ErrLeaseLost] says that another
// holds the message, so that nothing may be done for it here.
func SettleTx(ctx context.Context, tx *sql.Tx, st driver.Settlement) error {
	return settleTx(ctx, tx, defaults, &st)
}

// SettleTx is the function of that name for the store's own prefix.
func (s *Store) SettleTx(ctx context.Context, tx *sql.Tx, st driver.Settlement) error {
	return settleTx(ctx, tx, s.sql, &st)
}

func settleTx(ctx context.Context, tx *sql.Tx, sql *statements, st *driver.Settlement) error {
	if tx == nil {
		return errNoTx
	}
	return newWork(sqlDB{tx}, sql, nil).SettleTx(ctx, st)
}

// Once reports whether an id, of at most 512 bytes, is seen for the first time, within
// the caller's own transaction: it is the inbox of handlers whose effects are in this
// database but whose messages come from elsewhere. If it is false, the effect is there
// already and must not be repeated. Ids are kept for 30 days; a transaction that names
// an id which another has not committed yet waits for that one.
func Once(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	return once(ctx, tx, defaults, id)
}

// Once is the function of that name for the store's own prefix.
func (s *Store) Once(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	return once(ctx, tx, s.sql, id)
}

func once(ctx context.Context, tx *sql.Tx, sql *statements, id string) (bool, error) {
	switch {
	case tx == nil:
		return false, errNoTx
	case id == "" || len(id) > textMax:
		return false, fmt.Errorf("%w id of %d bytes: 1 to %d", redrive.ErrInvalid, len(id), textMax)
	}
	var n int64
	err := sqlDB{tx}.run(ctx, step{sql: sql.Get("once"), args: []any{[]byte(id)}, affected: &n})
	return n == 1, err
}
