package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Counts implements driver.Store. Without names it covers every queue that was
// published to or configured, by name.
func (s *Store) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	if len(queues) == 0 {
		queues = s.names()
	}
	now := s.now()
	counts := make([]driver.Counts, len(queues))
	for i, name := range queues {
		counts[i] = driver.Counts{Queue: name}
		if q := s.lookup(name); q != nil {
			q.mu.Lock()
			counts[i] = q.counts(now)
			q.mu.Unlock()
		}
	}
	return counts, nil
}

// names returns the queues in use, sorted.
func (s *Store) names() []string {
	s.queuesMu.RLock()
	all := slices.Collect(maps.Values(s.queues))
	s.queuesMu.RUnlock()
	var names []string
	for _, q := range all {
		q.mu.Lock()
		if q.known {
			names = append(names, q.name)
		}
		q.mu.Unlock()
	}
	slices.Sort(names)
	return names
}

func (q *queue) counts(now int64) driver.Counts {
	q.refresh(now)
	suspects := &q.lanes[laneSuspect]
	c := driver.Counts{
		Queue: q.name, Waiting: q.byLane, Leased: q.leased, Blocked: q.blocked,
		Suspects: int64(suspects.n + len(suspects.later.entries)),
		Bytes:    q.bytes, Ledger: q.ledger, Dead: make(map[redrive.Reason]int64),
	}
	for i := range laneDead {
		l := &q.lanes[i]
		if l.n == 0 {
			continue
		}
		c.Due += int64(l.n)
		if i == laneSuspect {
			c.OldestSuspect = moment(l.head.due)
		} else {
			c.OldestDue[i] = moment(l.head.due)
		}
	}
	if len(q.deaths.entries) > 0 {
		c.OldestDead = moment(q.deaths.first())
	}
	if c.Due > driver.DueCounted {
		c.Due, c.DueMore = driver.DueCounted, true
	}
	for r, n := range q.byReason {
		if n > 0 {
			c.Dead[redrive.Reason(r)] = n
		}
	}
	return c
}
