package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Apply implements driver.Store.
func (s *Store) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	a, err := sqlstore.NewApply(&b, checkRecord)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err = s.inTx(ctx, "apply", func(tx db) error { return a.Run(ctx, &newWork(tx, s.sql).Work) })
	if errors.Is(err, redrive.ErrVersion) {
		return nil, redrive.ErrVersion
	}
	if err != nil {
		return nil, fault("apply", err)
	}
	for i := range b.Put {
		s.floors.Forget(b.Put[i].Queue) // which may have been due for long
	}
	s.changed(a.Finish()...)
	return sqlstore.OrNil(a.Errs), nil
}

// Headers that hold the bytes of names that are no text.
const (
	headerNativeKey  = headername.NativeKey
	headerNativeKind = headername.NativeKind
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

func checkRecord(r *driver.RecordWrite) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "record", Err: fmt.Errorf("%w record %s/%s: %s", redrive.ErrInvalid, r.Space, r.Key, what)}
	}
	_, space := storable(r.Space)
	_, key := storable(r.Key)
	switch {
	case len(r.Value) > driver.MaxRecordSize:
		return bad(fmt.Sprintf("%d bytes, at most %d", len(r.Value), driver.MaxRecordSize))
	case r.Space == "" || r.Key == "":
		return bad("space and key must be named")
	case space || key:
		return bad("space and key must be text")
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
	var n int64
	var err error
	expires := int64(-1)
	if r.Expires > 0 {
		expires = sqlstore.Micros(r.Expires)
	}
	switch {
	case r.Value == nil && r.Version == 0: // it must not be there, and shall not be
		err = w.db.query(ctx, w.sql.get("record_absent"), func(row) error { n = -1; return nil }, r.Space, r.Key)
		n++
	case r.Value == nil:
		n, err = w.db.exec(ctx, w.sql.get("record_delete"), r.Space, r.Key, r.Version)
		if r.Version == driver.AnyVersion {
			n = 1
		}
	case r.Version == 0:
		n, err = w.db.exec(ctx, w.sql.get("record_create"), r.Space, r.Key, r.Value, expires)
	case r.Version == driver.AnyVersion:
		n, err = w.db.exec(ctx, w.sql.get("record_set"), r.Space, r.Key, r.Value, expires)
	default:
		n, err = w.db.exec(ctx, w.sql.get("record_update"), r.Space, r.Key, r.Value, expires, r.Version)
	}
	if err == nil && n == 0 {
		return redrive.ErrVersion
	}
	return err
}
