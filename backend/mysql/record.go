package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Longest names of records, as their columns are.
const (
	maxSpace  = 255
	maxRecord = 1024
)

func checkRecord(r *driver.RecordWrite) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "record", Err: fmt.Errorf("%w record %s/%s: %s", redrive.ErrInvalid, r.Space, r.Key, what)}
	}
	switch {
	case len(r.Value) > driver.MaxRecordSize:
		return bad(fmt.Sprintf("%d bytes, at most %d", len(r.Value), driver.MaxRecordSize))
	case r.Space == "" || r.Key == "":
		return bad("space and key must be named")
	case len(r.Space) > maxSpace || len(r.Key) > maxRecord:
		return bad("space or key is too long")
	case r.Version < driver.AnyVersion || r.Expires < 0:
		return bad("a negative version or time")
	}
	return nil
}

// WriteRecords implements sqlstore.Rows.
func (w *work) WriteRecords(ctx context.Context, writes []driver.RecordWrite) error {
	// Batches that write the same records wait for one another in one order.
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b driver.RecordWrite) int {
		return strings.Compare(a.Space+"\x00"+a.Key, b.Space+"\x00"+b.Key)
	})
	for i := range writes {
		if err := w.writeRecord(ctx, &writes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeRecord(ctx context.Context, r *driver.RecordWrite) error {
	space, key := []byte(r.Space), []byte(r.Key)
	var there, valid bool // valid: not expired
	var version int64
	err := w.db.run(ctx, step{sql: w.sql.get("record_lock"), args: []any{space, key}, scan: func(row row) error {
		there = true
		return row.Scan(&version, &valid)
	}})
	if err != nil {
		return err
	}
	if !valid {
		version = 0
	}
	if r.Version != driver.AnyVersion && r.Version != version {
		return redrive.ErrVersion
	}
	expires := int64(-1)
	if r.Expires > 0 {
		expires = sqlstore.Micros(r.Expires)
	}
	switch {
	case r.Value == nil && !valid:
		return nil
	case r.Value == nil:
		return w.db.run(ctx, step{sql: w.sql.get("record_delete"), args: []any{space, key}})
	}
	steps := []step{{sql: w.sql.get("next_version")}, {sql: w.sql.get("drop_version")}}
	if there {
		steps = append(steps, step{sql: w.sql.get("record_update"), args: []any{r.Value, expires, expires, space, key}})
	} else {
		steps = append(steps, step{sql: w.sql.get("record_insert"), args: []any{space, key, r.Value, expires, expires}})
	}
	return w.db.run(ctx, steps...)
}

func scanRecord(r row, space string) (driver.Record, error) {
	rec := driver.Record{Space: space}
	var expires *int64
	err := r.Scan(&rec.Key, &rec.Value, &rec.Version, &expires)
	rec.Value, rec.ExpiresAt = body(rec.Value), timeOf(expires)
	return rec, err
}

// GetRecord implements driver.Store.
func (s *Store) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	var rec driver.Record
	found := false
	err := s.read(ctx, "record_get", nil, step{sql: s.sql.get("record_get"), args: []any{[]byte(space), []byte(key)}, scan: func(r row) (err error) {
		found = true
		rec, err = scanRecord(r, space)
		return err
	}})
	if err == nil && !found {
		return rec, redrive.ErrNotFound
	}
	return rec, err
}

// ListRecords implements driver.Store.
func (s *Store) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	var list []driver.Record
	st := step{sql: s.sql.get("record_list"), args: []any{[]byte(space), []byte(after), limit}, scan: func(r row) error {
		rec, err := scanRecord(r, space)
		list = append(list, rec)
		return err
	}}
	err := s.read(ctx, "record_list", func() { list = nil }, st)
	return list, err
}
