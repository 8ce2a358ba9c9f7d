package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive/internal/sqlstore"
)

// db is what statements run on: the pool, a transaction of ours, or one of the
// caller's.
type db interface {
	// query calls scan for each row.
	query(ctx context.Context, sql string, scan func(row) error, args ...any) error
	// exec returns the number of rows that a statement changed.
	exec(ctx context.Context, sql string, args ...any) (int64, error)
}

// row reads the columns of a row.
type row = sqlstore.Row

// pgxDB runs statements by pgx.
type pgxDB struct {
	q interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}
}

func (d pgxDB) query(ctx context.Context, text string, scan func(row) error, args ...any) error {
	rows, err := d.q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d pgxDB) exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := d.q.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

// sqlDB runs statements in a transaction of database/sql, whatever its driver is:
// arrays travel as text.
type sqlDB struct{ tx *sql.Tx }

func (d sqlDB) query(ctx context.Context, text string, scan func(row) error, args ...any) error {
	rows, err := d.tx.QueryContext(ctx, text, literals(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d sqlDB) exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := d.tx.ExecContext(ctx, text, literals(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// literals replaces arrays by their text.
func literals(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case []string:
			out[i] = arrayText(v, v == nil, quoted)
		case []*string:
			out[i] = arrayText(v, v == nil, func(s *string) string {
				if s == nil {
					return "NULL"
				}
				return quoted(*s)
			})
		case []int64:
			out[i] = arrayText(v, v == nil, func(n int64) string { return strconv.FormatInt(n, 10) })
		case []int32:
			out[i] = arrayText(v, v == nil, func(n int32) string { return strconv.FormatInt(int64(n), 10) })
		case []*int64:
			out[i] = arrayText(v, v == nil, func(n *int64) string {
				if n == nil {
					return "NULL"
				}
				return strconv.FormatInt(*n, 10)
			})
		case []*int32:
			out[i] = arrayText(v, v == nil, func(n *int32) string {
				if n == nil {
					return "NULL"
				}
				return strconv.FormatInt(int64(*n), 10)
			})
		case []bool:
			out[i] = arrayText(v, v == nil, strconv.FormatBool)
		case [][]byte:
			out[i] = arrayText(v, v == nil, func(b []byte) string { return `"\\x` + hex.EncodeToString(b) + `"` })
		case []*time.Time:
			out[i] = arrayText(v, v == nil, func(t *time.Time) string {
				if t == nil {
					return "NULL"
				}
				return quoted(t.UTC().Format("2006-01-02 15:04:05.999999Z07:00"))
			})
		default:
			out[i] = a
		}
	}
	return out
}

func arrayText[T any](list []T, null bool, text func(T) string) any {
	if null {
		return nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(v))
	}
	b.WriteByte('}')
	return b.String()
}

var quoteReplacer = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(s string) string { return `"` + quoteReplacer.Replace(s) + `"` }

// inTx carries out a function in a transaction, and repeats both when the server had
// to roll them back for another's sake. The commit travels with nothing else, so that
// of an error of that alone nothing is known.
func (s *Store) inTx(ctx context.Context, op string, f func(db) error) error {
	return s.inTxWith(ctx, op, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
}

// InTx implements sqlstore.Server.
func (d dialect) InTx(ctx context.Context, op string, f func(*sqlstore.Work) error) error {
	return d.inTx(ctx, op, func(tx db) error { return f(&newWork(tx, d.sql, &d.base.Masks, d.base.Texts).Work) })
}

// InSnapshot implements sqlstore.Server.
func (d dialect) InSnapshot(ctx context.Context, op string, f func(*sqlstore.Work) error) error {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return d.inTxWith(ctx, op, o, func(tx db) error { return f(&newWork(tx, d.sql, &d.base.Masks, d.base.Texts).Work) })
}

func (s *Store) inTxWith(ctx context.Context, op string, o pgx.TxOptions, f func(db) error) (err error) {
	defer func(began time.Time) { s.base.Observe(op, began, err) }(time.Now())
	return again(ctx, func() error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		tx, err := conn.BeginTx(ctx, o)
		if err != nil {
			return &sqlstore.AcquireError{Err: err}
		}
		if err := f(pgxDB{tx}); err != nil {
			s.rollback(ctx, tx)
			return asUndone(err)
		}
		return tx.Commit(ctx)
	})
}

// rollback ends a transaction that failed. The connection is closed if that fails too.
func (s *Store) rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func asUndone(err error) error {
	if transient(err) {
		return err
	}
	return &sqlstore.UndoneError{Err: err}
}

// acquire takes a connection, waiting for it no longer than the caller does.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if err := s.base.Closed(); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		if closed := s.base.Closed(); closed != nil {
			return nil, closed
		}
		return nil, &sqlstore.AcquireError{Err: err}
	}
	return conn, nil
}

// one carries out a single statement, which is a transaction of its own, and repeats
// it when the server had to roll it back. Each row goes to scan; reset is called before
// each try.
func (s *Store) one(ctx context.Context, name string, reset func(), scan func(row) error, args ...any) (err error) {
	defer func(began time.Time) { s.base.Observe(name, began, err) }(time.Now())
	text := s.sql.Get(name)
	return again(ctx, func() error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if reset != nil {
			reset()
		}
		return pgxDB{conn}.query(ctx, text, scan, args...)
	})
}

// read carries out a statement that changes nothing.
func (s *Store) read(ctx context.Context, name string, reset func(), scan func(row) error, args ...any) error {
	err := s.one(ctx, name, reset, scan, args...)
	if err == nil || errors.Is(err, ctx.Err()) && ctx.Err() != nil {
		return err
	}
	return readFault(name, err)
}
