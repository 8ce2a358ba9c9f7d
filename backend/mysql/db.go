package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/redrive/redrive/internal/sqlstore"
)

// step is one statement. A step without scan and affected may be kept back and sent
// with the next ones.
type step struct {
	sql      string
	args     []any
	scan     func(row) error // of each row
	affected *int64          // gets the number of rows that were changed
	prepared bool            // the text is always the same and long: it is read once a connection
}

// row reads the columns of a row.
type row = sqlstore.Row

// db is what steps run on: a connection of ours, or a caller's transaction. When run
// returns an error, the transaction must be rolled back.
type db interface {
	run(ctx context.Context, steps ...step) error
}

// sqlDB runs steps one by one in a transaction of the caller's, whatever the settings
// of its connection are.
type sqlDB struct{ tx *sql.Tx }

func (d sqlDB) run(ctx context.Context, steps ...step) error {
	for i := range steps {
		if err := d.one(ctx, &steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d sqlDB) one(ctx context.Context, st *step) error {
	if st.scan == nil {
		res, err := d.tx.ExecContext(ctx, st.sql, st.args...)
		if err == nil && st.affected != nil {
			*st.affected, err = res.RowsAffected()
		}
		return err
	}
	rows, err := d.tx.QueryContext(ctx, st.sql, st.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := st.scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// conn runs steps on a connection of ours, as many as possible in one packet: what
// returns nothing waits for what does, or for the commit.
type conn struct {
	c          *sql.Conn
	packet     int // most bytes of what is sent together
	pending    []step
	size       int
	sent       bool // something was sent
	committing bool // the commit was sent, perhaps
}

func (c *conn) run(ctx context.Context, steps ...step) error {
	for i := range steps {
		st := &steps[i]
		if st.prepared {
			if err := c.runPrepared(ctx, st); err != nil {
				return err
			}
			continue
		}
		size := st.size()
		if c.size+size > c.packet {
			if err := c.flush(ctx); err != nil {
				return err
			}
		}
		c.pending = append(c.pending, *st)
		c.size += size
		if c.size > c.packet { // larger than all by itself: the driver has its ways
			if err := c.flush(ctx); err != nil {
				return err
			}
		}
	}
	for i := range steps {
		if steps[i].scan != nil || steps[i].affected != nil {
			return c.flush(ctx)
		}
	}
	return nil
}

// runPrepared sends what is pending, and then a step by its prepared statement, which
// goes by itself: two round trips more, and none of the reading of its text.
func (c *conn) runPrepared(ctx context.Context, st *step) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	values, err := driverValues(st.args)
	if err != nil {
		return err
	}
	c.sent = true
	err = c.c.Raw(func(raw any) error { return raw.(*session).execPrepared(ctx, st.sql, values) })
	if errors.Is(err, errUnprepared) {
		return c.exec(ctx, []step{*st})
	}
	return err
}

// size is what a step takes in a packet at most.
func (st *step) size() int {
	n := len(st.sql) + 2
	for _, a := range st.args {
		switch v := a.(type) {
		case []byte:
			n += 2*len(v) + len("_binary''")
		case string:
			n += 2*len(v) + 2
		default:
			n += 20
		}
	}
	return n
}

// flush sends what is pending.
func (c *conn) flush(ctx context.Context) error {
	steps := c.pending
	c.pending, c.size = nil, 0
	for len(steps) > 0 {
		n, scans := together(steps)
		var err error
		c.sent = true
		if scans {
			err = c.query(ctx, steps[:n])
		} else {
			err = c.exec(ctx, steps[:n])
		}
		if err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// together returns how many steps go in one packet: all, unless some return rows and
// others tell how many they changed, since the driver does not tell both at once.
func together(steps []step) (n int, scans bool) {
	counts := false
	for i := range steps {
		if steps[i].scan != nil && counts || steps[i].affected != nil && scans {
			return i, scans
		}
		scans = scans || steps[i].scan != nil
		counts = counts || steps[i].affected != nil
	}
	return len(steps), scans
}

func join(steps []step) (string, []any) {
	if len(steps) == 1 {
		return steps[0].sql, steps[0].args
	}
	var b strings.Builder
	var args []any
	for i := range steps {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(steps[i].sql)
		args = append(args, steps[i].args...)
	}
	return b.String(), args
}

// query sends steps of which some return rows.
func (c *conn) query(ctx context.Context, steps []step) error {
	text, args := join(steps)
	rows, err := c.c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for i := range steps {
		scan := steps[i].scan
		if scan == nil {
			continue
		}
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		rows.NextResultSet() // also what comes after the last one must have succeeded
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// exec sends steps that return no rows.
func (c *conn) exec(ctx context.Context, steps []step) error {
	text, args := join(steps)
	if len(steps) == 1 { // which may be too large for anything but a prepared statement
		res, err := c.c.ExecContext(ctx, text, args...)
		if err == nil && steps[0].affected != nil {
			*steps[0].affected, err = res.RowsAffected()
		}
		return err
	}
	values, err := driverValues(args)
	if err != nil {
		return err
	}
	return c.c.Raw(func(raw any) error {
		res, err := raw.(driver.ExecerContext).ExecContext(ctx, text, values)
		if err != nil {
			return err
		}
		counts := res.(mysql.Result).AllRowsAffected()
		if len(counts) != len(steps) {
			return fmt.Errorf("%d statements had %d results", len(steps), len(counts))
		}
		for i := range steps {
			if steps[i].affected != nil {
				*steps[i].affected = counts[i]
			}
		}
		return nil
	})
}

// driverValues are arguments as the driver takes them.
func driverValues(args []any) ([]driver.NamedValue, error) {
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return nil, err
		}
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return values, nil
}

// Steps of transactions.
var (
	stepBegin    = step{sql: "START TRANSACTION"}
	stepCommit   = step{sql: "COMMIT"}
	stepSnapshot = []step{{sql: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"}, {sql: "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"}}
)

// inTx carries out a function in a transaction, and repeats both when the server had
// to roll them back for another's sake, or when the connection broke before the commit
// was sent. Any error rolls back: a lock timeout undoes only its statement.
func (s *Store) inTx(ctx context.Context, op string, f func(db) error) error {
	return s.transact(ctx, op, []step{stepBegin}, f)
}

// inSnapshot is inTx for a function that only reads, all from one snapshot.
func (s *Store) inSnapshot(ctx context.Context, op string, f func(db) error) error {
	return s.transact(ctx, op, stepSnapshot, f)
}

// InTx implements sqlstore.Server.
func (d dialect) InTx(ctx context.Context, op string, f func(*sqlstore.Work) error) error {
	return d.inTx(ctx, op, func(tx db) error { return f(&newWork(tx, d.sql, &d.base.Masks).Work) })
}

// InSnapshot implements sqlstore.Server.
func (d dialect) InSnapshot(ctx context.Context, op string, f func(*sqlstore.Work) error) error {
	return d.inSnapshot(ctx, op, func(tx db) error { return f(&newWork(tx, d.sql, &d.base.Masks).Work) })
}

func (s *Store) transact(ctx context.Context, op string, begin []step, f func(db) error) (err error) {
	defer func(began time.Time) { s.base.Observe(op, began, err) }(time.Now())
	return again(ctx, func() error {
		c, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.c.Close() }()
		err = c.transact(ctx, begin, f)
		if err == nil {
			return nil
		}
		if errors.Is(err, errAbandon) {
			s.rollback(ctx, c)
			return nil
		}
		if !c.committing || serverSaidNo(err) {
			err = &sqlstore.UndoneError{Err: err}
		}
		s.rollback(ctx, c)
		return err
	})
}

func (c *conn) transact(ctx context.Context, begin []step, f func(db) error) error {
	c.pending = append(c.pending, begin...)
	if err := f(c); err != nil {
		return err
	}
	if !c.sent && len(c.pending) == len(begin) {
		return nil // nothing was done
	}
	c.committing = true // with what is pending, perhaps
	if err := c.run(ctx, stepCommit); err != nil {
		return err
	}
	return c.flush(ctx)
}

// errAbandon makes a transaction end without a change and without an error.
var errAbandon = errors.New("nothing to do")

// rollback ends a transaction that failed. The connection is closed if that fails too,
// so that the server rolls back.
func (s *Store) rollback(ctx context.Context, c *conn) {
	if !c.sent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := c.c.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = c.c.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// acquire takes a connection, waiting for it no longer than the caller does.
func (s *Store) acquire(ctx context.Context) (*conn, error) {
	if err := s.base.Closed(); err != nil {
		return nil, err
	}
	c, err := s.pool.Conn(ctx)
	if err != nil {
		if closed := s.base.Closed(); closed != nil {
			return nil, closed
		}
		return nil, &sqlstore.AcquireError{Err: err}
	}
	return &conn{c: c, packet: s.packet / 2}, nil
}

// read carries out steps that change nothing, and repeats them if the connection broke.
// reset is called before each try.
func (s *Store) read(ctx context.Context, name string, reset func(), steps ...step) (err error) {
	defer func(began time.Time) { s.base.Observe(name, began, err) }(time.Now())
	err = again(ctx, func() error {
		c, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.c.Close() }()
		if reset != nil {
			reset()
		}
		if err := c.run(ctx, steps...); err != nil {
			return &sqlstore.UndoneError{Err: err}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	if at, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(at) {
		return cmp.Or(ctx.Err(), context.DeadlineExceeded) // whatever it looked like to the driver
	}
	return fault(name, err)
}
