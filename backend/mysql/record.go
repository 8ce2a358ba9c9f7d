package mysql

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Longest names of records, as their columns are.
const (
	maxSpace  = 255
	maxRecord = 1024
)

// CheckNames implements sqlstore.Server.
func (dialect) CheckNames(space, key string) string {
	if len(space) > maxSpace || len(key) > maxRecord {
		return "space or key is too long"
	}
	return ""
}

// WriteRecord implements sqlstore.Rows.
func (w *work) WriteRecord(ctx context.Context, r *driver.RecordWrite) error {
	space, key := []byte(r.Space), []byte(r.Key)
	var there, valid bool // valid: not expired
	var version int64
	err := w.db.run(ctx, step{sql: w.sql.Get("record_lock"), args: []any{space, key}, scan: func(row row) error {
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
		return w.db.run(ctx, step{sql: w.sql.Get("record_delete"), args: []any{space, key}})
	}
	steps := []step{{sql: w.sql.Get("next_version")}, {sql: w.sql.Get("drop_version")}}
	if there {
		steps = append(steps, step{sql: w.sql.Get("record_update"), args: []any{r.Value, expires, expires, space, key}})
	} else {
		steps = append(steps, step{sql: w.sql.Get("record_insert"), args: []any{space, key, r.Value, expires, expires}})
	}
	return w.db.run(ctx, steps...)
}

// ReadRecords implements sqlstore.Server.
func (d dialect) ReadRecords(ctx context.Context, statement, space, key string, limit ...any) (list []driver.Record, err error) {
	st := step{sql: d.sql.Get(statement), args: append([]any{[]byte(space), []byte(key)}, limit...), scan: func(r row) error {
		rec := driver.Record{Space: space}
		var expires *int64
		err := r.Scan(&rec.Key, &rec.Value, &rec.Version, &expires)
		rec.Value, rec.ExpiresAt = body(rec.Value), timeOf(expires)
		list = append(list, rec)
		return err
	}}
	err = d.read(ctx, statement, func() { list = nil }, st)
	return list, err
}
