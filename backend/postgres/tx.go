package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// defaults are the statements of the default schema.
var defaults = newStatements(defaultSchema)

// errNoTx is returned where there is no transaction.
var errNoTx = fmt.Errorf("%w transaction: it is nil", redrive.ErrInvalid)

// pgxTx is what runs statements in a transaction of pgx; nil for none.
func pgxTx(tx pgx.Tx) db {
	if tx == nil {
		return nil
	}
	return pgxDB{tx}
}

// sqlTx is what runs statements in a transaction of database/sql; nil for none.
func sqlTx(tx *sql.Tx) db {
	if tx == nil {
		return nil
	}
	return sqlDB{tx}
}

// PublishTx publishes within the caller's own transaction, in a database that holds the
// tables in the schema "redrive": the messages exist if and only if the transaction
// commits. Messages with an empty ID get one, written into msgs. A message that is there
// already, by id, kind, key and body, counts as published. The error names the messages
// that were refused ([redrive.ErrConflict], [redrive.ErrInvalid]); it leaves the
// transaction usable, with the others in it, any other error does not. Waiters see the
// messages at their next poll; see [Store.Wake]. Transactions do not wait for one
// another, unless they publish under the same id, or to the same key of a queue with
// order by key.
func PublishTx(ctx context.Context, tx pgx.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, pgxTx(tx), defaults, msgs)
}

// PublishSQL is [PublishTx] for a transaction of database/sql, of any driver.
func PublishSQL(ctx context.Context, tx *sql.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, sqlTx(tx), defaults, msgs)
}

// PublishTx is the function of that name for the store's own schema.
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, pgxTx(tx), s.sql, msgs)
}

// PublishSQL is the function of that name for the store's own schema.
func (s *Store) PublishSQL(ctx context.Context, tx *sql.Tx, msgs ...redrive.Message) error {
	return publishTx(ctx, sqlTx(tx), s.sql, msgs)
}

func publishTx(ctx context.Context, q db, sql *statements, msgs []redrive.Message) error {
	if q == nil {
		return &redrive.Error{Op: "publish", Err: errNoTx}
	}
	return newWork(q, sql, nil, nil).PublishTx(ctx, msgs)
}

// SettleTx settles a delivery within the caller's own transaction, of the database that
// the message came from: what the handler did there and the settlement are one commit.
// After the commit the handler returns [redrive.ErrSettled], and the engine settles
// nothing. On an error the caller rolls back: [redrive.ErrLeaseLost] says that another
// holds the message, so that nothing may be done for it here.
func SettleTx(ctx context.Context, tx pgx.Tx, st driver.Settlement) error {
	return settleIn(ctx, pgxTx(tx), defaults, &st)
}

// SettleSQL is [SettleTx] for a transaction of database/sql, of any driver.
func SettleSQL(ctx context.Context, tx *sql.Tx, st driver.Settlement) error {
	return settleIn(ctx, sqlTx(tx), defaults, &st)
}

// SettleTx is the function of that name for the store's own schema.
func (s *Store) SettleTx(ctx context.Context, tx pgx.Tx, st driver.Settlement) error {
	return settleIn(ctx, pgxTx(tx), s.sql, &st)
}

// SettleSQL is the function of that name for the store's own schema.
func (s *Store) SettleSQL(ctx context.Context, tx *sql.Tx, st driver.Settlement) error {
	return settleIn(ctx, sqlTx(tx), s.sql, &st)
}

func settleIn(ctx context.Context, q db, sql *statements, st *driver.Settlement) error {
	if q == nil {
		return errNoTx
	}
	return newWork(q, sql, nil, nil).SettleTx(ctx, st)
}

// Once reports whether an id is seen for the first time, within the caller's own
// transaction: it is the inbox of handlers whose effects are in this database but whose
// messages come from elsewhere. If it is false, the effect is there already and must not
// be repeated. Ids are kept for 30 days; a transaction that names an id which another has
// not committed yet waits for that one.
func Once(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	return once(ctx, pgxTx(tx), defaults, id)
}

// OnceSQL is [Once] for a transaction of database/sql, of any driver.
func OnceSQL(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	return once(ctx, sqlTx(tx), defaults, id)
}

// Once is the function of that name for the store's own schema.
func (s *Store) Once(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	return once(ctx, pgxTx(tx), s.sql, id)
}

// OnceSQL is the function of that name for the store's own schema.
func (s *Store) OnceSQL(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	return once(ctx, sqlTx(tx), s.sql, id)
}

func once(ctx context.Context, q db, sql *statements, id string) (bool, error) {
	if q == nil {
		return false, errNoTx
	}
	if id == "" {
		return false, fmt.Errorf("%w id: it is empty", redrive.ErrInvalid)
	}
	n, err := q.exec(ctx, sql.Get("once"), id)
	return n == 1, err
}
