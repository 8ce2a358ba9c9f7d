package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
)

// Bounds of trimming.
const (
	trimSlice = 500                 // dead letters a transaction
	trimSpare = 1000                // leased dead letters that are passed over at most
	keepInbox = 30 * 24 * time.Hour // how long Once remembers
)

// Trim implements redrive.Store.
func (s *Store) Trim(ctx context.Context, r redrive.Retention, limit int) (redrive.Trimmed, error) {
	var all redrive.Trimmed
	if err := s.ready(ctx); err != nil {
		return all, err
	}
	left := int64(limit)
	if err := s.trimExpired(ctx, &all, left); err != nil {
		return all, err
	}
	left -= all.Remembered + all.Records
	if r.DeadAge <= 0 && r.DeadKeep <= 0 {
		return all, nil
	}
	var only []string
	if r.Queue != "" {
		only = []string{r.Queue}
	}
	counts, err := s.Counts(ctx, only...)
	if err != nil {
		return all, err
	}
	for i := range counts {
		excess := int64(0)
		if r.DeadKeep > 0 {
			excess = max(counts[i].AllDead()-r.DeadKeep, 0)
		}
		for left > 0 && counts[i].AllDead() > 0 && (r.DeadAge > 0 || excess > 0) {
			n, err := s.trimDead(ctx, counts[i].Queue, &r, min(left, trimSlice), excess)
			all.Dead += n
			left -= n
			excess = max(excess-n, 0)
			if err != nil {
				return all, err
			}
			if n == 0 {
				break
			}
		}
	}
	return all, nil
}

// trimExpired removes what expired by itself.
func (s *Store) trimExpired(ctx context.Context, all *redrive.Trimmed, limit int64) error {
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

// trimDead removes the dead letters of a queue that are too old or too many.
func (s *Store) trimDead(ctx context.Context, queue string, r *redrive.Retention, limit, excess int64) (n int64, err error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	b := bookDropped
	if r.Archived {
		b = bookArchived
	}
	err = s.inTx(ctx, "trim_dead", func(tx db) error {
		n = 0
		w := &work{db: tx, sql: s.sql}
		refs, err := w.trimmable(ctx, queue, r.DeadAge, limit, excess)
		if err != nil || len(refs) == 0 {
			return err
		}
		if err := w.lockKeysOf(ctx, refs); err != nil {
			return err
		}
		found, err := w.lock(ctx, refs)
		if err != nil {
			return err
		}
		now, err := w.now(ctx)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if m := found[ref]; m != nil && m.dead && !m.held(now) {
				w.count(queue, b, 1)
				w.exhume(m, redrive.OutcomeDead, m.reason)
				n++
			}
		}
		return w.flush(ctx)
	})
	return n, fault("trim", err)
}

// trimmable names dead letters that are too old or too many, the oldest first; none
// that is leased.
func (w *work) trimmable(ctx context.Context, queue string, age time.Duration, limit, excess int64) (refs []redrive.Ref, err error) {
	place := int64(0)
	err = w.db.run(ctx, step{sql: w.sql.get("trim_dead"), args: []any{span(age), []byte(queue), limit + trimSpare}, scan: func(r row) error {
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
