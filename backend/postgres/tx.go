package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// defaults are the statements of the default schema.
var defaults = newStatements(defaultSchema)

// dbOf returns what runs statements in a caller's transaction.
func dbOf(tx any) (db, error) {
	switch t := tx.(type) {
	case pgx.Tx:
		return pgxDB{t}, nil
	case *sql.Tx:
		return sqlDB{t}, nil
	}
	return nil, fmt.Errorf("%w transaction of type %T: give a pgx.Tx or a *sql.Tx", redrive.ErrInvalid, tx)
}

// PublishTx publishes within the caller's own transaction, a pgx.Tx or a *sql.Tx of a
// database that holds the tables in the schema "redrive": the messages exist if and
// only if the transaction commits. Messages with an empty ID get one, written into
// msgs. The result has an element a message, as of Publish, nil if all were accepted;
// a refused message ([redrive.ErrDuplicate] and the like) leaves the transaction
// usable, any other error does not. Waiters see the messages at their next poll; see
// [Store.Wake]. Transactions do not wait for one another, unless they publish under
// the same id, or to the same key of a queue with order by key.
func PublishTx(ctx context.Context, tx any, msgs ...redrive.Message) []error {
	return publishTx(ctx, tx, defaults, msgs)
}

// PublishTx is the function of that name for the store's own schema.
func (s *Store) PublishTx(ctx context.Context, tx any, msgs ...redrive.Message) []error {
	return publishTx(ctx, tx, s.sql, msgs)
}

func publishTx(ctx context.Context, tx any, sql *statements, msgs []redrive.Message) []error {
	q, err := dbOf(tx)
	if err != nil {
		return sqlstore.FillErrors(len(msgs), err)
	}
	return newWork(q, sql).PublishTx(ctx, msgs)
}

// SettleTx settles a delivery within the caller's own transaction, a pgx.Tx or a
// *sql.Tx of the database that the message came from: what the handler did there and
// the settlement are one commit. After the commit the handler returns
// [redrive.ErrSettled], and the engine settles nothing. On an error the caller rolls
// back: [redrive.ErrLeaseLost] says that another holds the message, so that nothing may
// be done for it here.
func SettleTx(ctx context.Context, tx any, st driver.Settlement) error {
	return settleTx(ctx, tx, defaults, &st)
}

// SettleTx is the function of that name for the store's own schema.
func (s *Store) SettleTx(ctx context.Context, tx any, st driver.Settlement) error {
	return settleTx(ctx, tx, s.sql, &st)
}

func settleTx(ctx context.Context, tx any, sql *statements, st *driver.Settlement) error {
	q, err := dbOf(tx)
	if err != nil {
		return err
	}
	return newWork(q, sql).SettleTx(ctx, st)
}

// Once reports whether an id is seen for the first time, within the caller's own
// transaction, a pgx.Tx or a *sql.Tx: it is the inbox of handlers whose effects are in
// this database but whose messages come from elsewhere. If it is false, the effect is
// there already and must not be repeated. Ids are kept for 30 days; a transaction that
// names an id which another has not committed yet waits for that one.
func Once(ctx context.Context, tx any, id string) (bool, error) {
	return once(ctx, tx, defaults, id)
}

// Once is the function of that name for the store's own schema.
func (s *Store) Once(ctx context.Context, tx any, id string) (bool, error) {
	return once(ctx, tx, s.sql, id)
}

func once(ctx context.Context, tx any, sql *statements, id string) (bool, error) {
	q, err := dbOf(tx)
	if err != nil {
		return false, err
	}
	if id == "" {
		return false, fmt.Errorf("%w id: it is empty", redrive.ErrInvalid)
	}
	n, err := q.exec(ctx, sql.Get("once"), id)
	return n == 1, err
}
