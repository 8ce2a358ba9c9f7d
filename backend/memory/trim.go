package memory

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Trim implements driver.Store.
func (s *Store) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	if err := s.enterExclusively(ctx); err != nil {
		return driver.Trimmed{}, err
	}
	defer s.step.Unlock()
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	var t driver.Trimmed
	clock := s.clock()
	names := []string{r.Queue}
	if r.Queue == "" {
		names = s.names()
		n := s.trimRecords(limit, clock)
		t.Records, limit = int64(n), limit-n
	}
	for _, name := range names {
		q := s.lookup(name)
		if q == nil {
			continue
		}
		n := q.trimDead(&r, limit, nanos(clock))
		t.Dead, limit = t.Dead+int64(n), limit-n
		q.foldDeaths(nanos(clock))
		n = q.forgetAll(limit, nanos(clock))
		t.Remembered, limit = t.Remembered+int64(n), limit-n
	}
	return t, nil
}

// trimDead removes dead letters that are too old or too many, oldest first. A leased
// one stays.
func (q *queue) trimDead(r *driver.Retention, limit int, now int64) int {
	q.refresh(now)
	excess := 0
	if r.DeadKeep > 0 {
		excess = max(q.dead.live-int(r.DeadKeep), 0)
	}
	var gone []*item
	for it := range q.dead.after(0) {
		if len(gone) == limit || excess <= len(gone) && r.DeadAge <= 0 {
			break
		}
		tooOld := r.DeadAge > 0 && it.died < now-int64(r.DeadAge)
		if it.place != leased && (tooOld || excess > len(gone)) {
			gone = append(gone, it)
		}
	}
	for _, it := range gone {
		if r.Archived {
			q.ledger.Archived++
			q.release(it.memory, redrive.OutcomeDead, it.reason, now)
		} else {
			q.ledger.Dropped++
			q.release(it.memory, redrive.OutcomeDrop, it.reason, now)
		}
		q.remove(it, now)
	}
	return len(gone)
}
