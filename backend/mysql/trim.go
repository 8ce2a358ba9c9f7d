package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Bounds of trimming.
const (
	trimSpare = 1000                // leased dead letters that are passed over at most
	keepInbox = 30 * 24 * time.Hour // how long Once remembers
)

// Trim implements driver.Store.
func (s *Store) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Trimmed{}, err
	}
	return sqlstore.Trim(ctx, &r, int64(limit), s)
}

// TrimExpired implements sqlstore.Trimmer: it removes what expired by itself.
func (s *Store) TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64) error {
	if limit <= 0 {
		return nil
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	return fault("trim", s.inTx(ctx, "trim", func(tx db) error {
		if err := tx.run(ctx, step{sql: s.sql.get("trim_remembered"), args: []any{limit}, affected: &all.Remembered}); err != nil {
			return err
		}
		return tx.run(ctx, step{sql: s.sql.get("trim_records"), args: []any{limit - all.Remembered}, affected: &all.Records},
			step{sql: s.sql.get("trim_inbox"), args: []any{int64(keepInbox / time.Microsecond), limit}})
	}))
}

// TrimDead implements sqlstore.Trimmer: it removes the dead letters of a queue that are too old or too many.
func (s *Store) TrimDead(ctx context.Context, queue string, r *driver.Retention, limit, excess int64) (n int64, err error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err = s.inTx(ctx, "trim_dead", func(tx db) error {
		n = 0
		w := newWork(tx, s.sql)
		refs, err := w.trimmable(ctx, queue, r.DeadAge, limit, excess)
		if err != nil || len(refs) == 0 {
			return err
		}
		n, err = w.Trim(ctx, queue, refs, r.Archived)
		return err
	})
	return n, fault("trim", err)
}

// trimmable names dead letters that are too old or too many, the oldest first; none
// that is leased.
func (w *work) trimmable(ctx context.Context, queue string, age time.Duration, limit, excess int64) (refs []redrive.Ref, err error) {
	place := int64(0)
	err = w.db.run(ctx, step{sql: w.sql.get("trim_dead"), args: []any{sqlstore.Micros(age), []byte(queue), limit + trimSpare}, scan: func(r row) error {
		ref := redrive.Ref{Queue: queue}
		var old, held bool
		err := r.Scan(&ref.ID, &old, &held)
		place++
		if !held && (place <= excess || age > 0 && old) && int64(len(refs)) < limit {
			refs = append(refs, ref)
		}
		return err
	}})
	return refs, err
}
