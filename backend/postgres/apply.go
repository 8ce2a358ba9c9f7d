package postgres

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// CheckNames implements sqlstore.Server.
func (dialect) CheckNames(space, key string) string {
	if storable(space) != space || storable(key) != key {
		return "space and key must be text"
	}
	return ""
}

// WriteRecord implements sqlstore.Rows.
func (w *work) WriteRecord(ctx context.Context, r *driver.RecordWrite) error {
	var n int64
	var err error
	expires := int64(-1)
	if r.Expires > 0 {
		expires = sqlstore.Micros(r.Expires)
	}
	switch {
	case r.Value == nil && r.Version == 0: // it must not be there, and shall not be
		err = w.db.query(ctx, w.sql.Get("record_absent"), func(row) error { n = -1; return nil }, r.Space, r.Key)
		n++
	case r.Value == nil:
		n, err = w.db.exec(ctx, w.sql.Get("record_delete"), r.Space, r.Key, r.Version)
		if r.Version == driver.AnyVersion {
			n = 1
		}
	case r.Version == 0:
		n, err = w.db.exec(ctx, w.sql.Get("record_create"), r.Space, r.Key, r.Value, expires)
	case r.Version == driver.AnyVersion:
		n, err = w.db.exec(ctx, w.sql.Get("record_set"), r.Space, r.Key, r.Value, expires)
	default:
		n, err = w.db.exec(ctx, w.sql.Get("record_update"), r.Space, r.Key, r.Value, expires, r.Version)
	}
	if err == nil && n == 0 {
		return redrive.ErrVersion
	}
	return err
}
