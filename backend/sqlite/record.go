package sqlite

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// putRecord carries out one write of a record.
func (t *tx) putRecord(w *driver.RecordWrite) error {
	s := t.read(`SELECT version FROM record WHERE space = ? AND key = ? AND (expires IS NULL OR expires > ?)`)
	s.text(w.Space).text(w.Key).int(t.now)
	var version int64
	if s.next() {
		version = s.colInt(0)
	}
	if err := s.done(); err != nil {
		return err
	}
	if w.Version != driver.AnyVersion && w.Version != version {
		return redrive.ErrVersion
	}
	if w.Value == nil {
		return t.write(`DELETE FROM record WHERE space = ? AND key = ?`).text(w.Space).text(w.Key).run()
	}
	// Tokens never repeat, so versions rise also across a deletion and a restart.
	version = int64(t.s.newTokens(1)) //nolint:gosec // epochs are far below 2^31
	var expires int64
	if w.Expires > 0 {
		expires = later(t.now, w.Expires)
	}
	return t.write(`INSERT OR REPLACE INTO record (space, key, value, version, expires) VALUES (?, ?, ?, ?, ?)`).
		text(w.Space).text(w.Key).blob(w.Value).int(version).intOrNull(expires).run()
}

const recordColumns = `key, value, version, expires`

func scanRecord(s *stmt, space string) driver.Record {
	value := s.colBytes(1)
	if value == nil {
		value = []byte{}
	}
	return driver.Record{Space: space, Key: s.colText(0), Value: value, Version: s.colInt(2), ExpiresAt: timeOf(s.colInt(3))}
}

// GetRecord implements driver.Store.
func (s *Store) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	var rec driver.Record
	err := s.read(ctx, func(c *conn) error {
		st := c.stmt(`SELECT ` + recordColumns + ` FROM record WHERE space = ? AND key = ? AND (expires IS NULL OR expires > ?)`)
		st.text(space).text(key).int(s.now())
		found := st.next()
		if found {
			rec = scanRecord(st, space)
		}
		if err := st.done(); err != nil || found {
			return err
		}
		return redrive.ErrNotFound
	})
	return rec, err
}

// ListRecords implements driver.Store.
func (s *Store) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	var list []driver.Record
	err := s.read(ctx, func(c *conn) error {
		st := c.stmt(`SELECT ` + recordColumns + ` FROM record WHERE space = ? AND key > ? AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?`)
		st.text(space).text(after).int(s.now()).int(int64(limit))
		for st.next() {
			list = append(list, scanRecord(st, space))
		}
		return st.done()
	})
	return list, err
}
