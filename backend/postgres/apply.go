package postgres

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Headers that hold the bytes of names that are no text.
const (
	headerNativeKey  = "redrive-native-key"
	headerNativeKind = "redrive-native-kind"
)

// cleanForeign makes text of names that are none; their bytes stay in headers.
func cleanForeign(m *sqlstore.Message) {
	for _, part := range []struct {
		text   *string
		header string
	}{{&m.Key, headerNativeKey}, {&m.Kind, headerNativeKind}, {&m.ReplyTo, ""}, {&m.Origin, ""}, {&m.EditedFrom, ""}, {&m.Plan, ""}} {
		clean, changed := storable(*part.text)
		if changed && part.header != "" {
			m.Headers = m.Headers.Clone()
			m.Headers.Add(part.header, *part.text)
		}
		*part.text = clean
	}
}

// CheckNames implements sqlstore.Server.
func (dialect) CheckNames(space, key string) string {
	_, badSpace := storable(space)
	_, badKey := storable(key)
	if badSpace || badKey {
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
