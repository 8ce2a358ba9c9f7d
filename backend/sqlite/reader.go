package sqlite

import (
	"context"
	"path/filepath"

	"github.com/redrive/redrive"
)

// readConns is how many connections read beside the writer.
const readConns = 3

// read runs fn on a connection that reads beside the writer. What fn reads within
// one statement, or between snapshot and its end, is of one moment.
func (s *Store) read(ctx context.Context, fn func(c *conn) error) error {
	if err := s.closed(); err != nil {
		return err
	}
	var c *conn
	select {
	case got, ok := <-s.readers:
		if !ok {
			return redrive.ErrClosed
		}
		c = got
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.readers <- c }()
	if c == nil {
		opened, err := openConn(filepath.Join(s.dir, FileName), false)
		if err != nil {
			return err
		}
		if err := opened.exec("PRAGMA query_only = 1; PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY"); err != nil {
			opened.close()
			return err
		}
		c = opened
	}
	stop := c.interruptOn(ctx)
	err := fn(c)
	stop()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isCorrupt(err):
		return s.corrupt(err)
	}
	return err
}

// snapshot runs fn within one read transaction, so that all it reads is of one
// moment. Long ones keep the log from being emptied.
func snapshot(c *conn, fn func() error) error {
	if err := c.stmt("BEGIN").run(); err != nil {
		return err
	}
	err := fn()
	if end := c.stmt("ROLLBACK").run(); err == nil {
		err = end
	}
	return err
}
