package sqlstore

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// trimSlice is how many dead letters a transaction removes.
const trimSlice = 500

// Trimmer is a store whose retention is carried out.
type Trimmer interface {
	Counts(ctx context.Context, queues ...string) ([]driver.Counts, error)
	// TrimExpired removes what expired by itself.
	TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64) error
	// TrimDead removes the dead letters of a queue that are too old or too many.
	TrimDead(ctx context.Context, queue string, r *driver.Retention, limit, excess int64) (int64, error)
}

// Trim carries out the Trim of a [driver.Store].
func Trim(ctx context.Context, r *driver.Retention, limit int64, s Trimmer) (driver.Trimmed, error) {
	var all driver.Trimmed
	left := limit
	if err := s.TrimExpired(ctx, &all, left); err != nil {
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
			n, err := s.TrimDead(ctx, counts[i].Queue, r, min(left, trimSlice), excess)
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

// Trim removes dead letters that nobody holds.
func (w *Work) Trim(ctx context.Context, queue string, refs []redrive.Ref, archived bool) (n int64, err error) {
	b := BookDropped
	if archived {
		b = BookArchived
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
