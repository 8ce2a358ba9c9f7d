package sqlstore

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

const (
	trimSlice = 500                 // dead letters that a transaction removes
	keepInbox = 30 * 24 * time.Hour // how long Once remembers
)

// Trim implements driver.Store.
func (v Verbs) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	var all driver.Trimmed
	b := v.base
	if err := b.Ready(ctx); err != nil {
		return all, err
	}
	left := int64(limit)
	if left > 0 {
		err := b.trim(ctx, "trim", func(ctx context.Context, w *Work) error { return w.Rows.TrimExpired(ctx, &all, left, keepInbox) })
		if err != nil {
			return all, err
		}
	}
	if err := b.trimCauses(ctx); err != nil {
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
	counts, err := b.own.Counts(ctx, only...)
	if err != nil {
		return all, err
	}
	for i := range counts {
		queue, excess := counts[i].Queue, int64(0)
		if r.DeadKeep > 0 {
			excess = max(counts[i].AllDead()-r.DeadKeep, 0)
		}
		for left > 0 && counts[i].AllDead() > 0 && (r.DeadAge > 0 || excess > 0) {
			var n int64
			err := b.trim(ctx, "trim_dead", func(ctx context.Context, w *Work) error {
				n = 0
				refs, err := w.Rows.Trimmable(ctx, queue, r.DeadAge, min(left, trimSlice), excess)
				if err != nil || len(refs) == 0 {
					return err
				}
				n, err = w.trim(ctx, queue, refs, r.Archived)
				return err
			})
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

func (b *Base) trim(ctx context.Context, op string, f func(context.Context, *Work) error) error {
	ctx, cancel := b.Detach(ctx)
	defer cancel()
	return b.own.Fault("trim", b.own.InTx(ctx, op, func(w *Work) error { return f(ctx, w) }))
}

// trim removes dead letters that nobody holds.
func (w *Work) trim(ctx context.Context, queue string, refs []redrive.Ref, archived bool) (n int64, err error) {
	b := AccountDropped
	if archived {
		b = AccountArchived
	}
	if err := w.Rows.LockKeys(ctx, refs); err != nil {
		return 0, err
	}
	found, err := w.Lock(ctx, refs)
	if err != nil {
		return 0, err
	}
	now, err := w.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, ref := range refs {
		if m := found[ref]; m != nil && m.Dead && !m.Held(now) {
			w.Count(queue, b, 1)
			w.Exhume(m, redrive.OutcomeDead, m.Reason)
			n++
		}
	}
	return n, w.Rows.Flush(ctx)
}
