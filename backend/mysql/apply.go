package mysql

import (
	"context"
	"errors"

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

// Headers that hold names that are longer than any that Publish accepts.
const (
	headerNativeKey  = headername.NativeKey
	headerNativeKind = headername.NativeKind
)

// fitForeign cuts names that are too long for their columns; headers keep the whole.
func fitForeign(m *sqlstore.Message) {
	for _, part := range []struct {
		text   *string
		header string
	}{{&m.Key, headerNativeKey}, {&m.Kind, headerNativeKind}, {&m.ReplyTo, ""}, {&m.EditedFrom, ""}, {&m.Plan, ""}} {
		if len(*part.text) <= textMax {
			continue
		}
		if part.header != "" {
			m.Headers = m.Headers.Clone()
			m.Headers.Add(part.header, *part.text)
		}
		*part.text = (*part.text)[:textMax]
	}
}
