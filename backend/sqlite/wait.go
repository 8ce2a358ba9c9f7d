package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// waiter is one call of Wait that sleeps.
type waiter struct{ wake chan struct{} }

// watchCache remembers the queues of the last Wait, as the engine asks for the same
// ones again and again.
type watchCache struct {
	names  []string
	queues []*queue
}

// Wait implements driver.Source. It does not poll, and wakes when a lease runs
// out.
func (s *Store) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	w := &waiter{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.waiters[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiters, w)
		s.mu.Unlock()
	}()
	for {
		if err := s.closed(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if changed := s.changes(watches); len(changed) > 0 {
			return s.events(ctx, changed)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

func (s *Store) wakeWaiters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.waiters {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// change is a queue that changed, as it was seen.
type change struct {
	queue   *queue
	version uint64
	id      int64
	leased  bool
	next    [claimable]int64
	ahead   [claimable]bool
}

// changes returns the watched queues that have changed.
func (s *Store) changes(watches []driver.Watch) []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.watches
	same := len(c.names) == len(watches)
	for i := 0; same && i < len(watches); i++ {
		same = c.names[i] == watches[i].Queue
	}
	if !same {
		c.names, c.queues = make([]string, len(watches)), make([]*queue, len(watches))
		for i := range watches {
			q := s.queues[watches[i].Queue]
			if q == nil {
				q = s.newQueue(watches[i].Queue)
			}
			q.watched = true
			c.names[i], c.queues[i] = q.name, q
		}
	}
	var changed []change
	for i, q := range c.queues {
		if q.version != watches[i].Since {
			changed = append(changed, change{queue: q, version: q.version, id: q.number, leased: q.shared.leased > 0, next: q.shared.next, ahead: q.shared.ahead})
		}
	}
	return changed
}

// events tells what may be claimed of queues that changed.
func (s *Store) events(ctx context.Context, changed []change) ([]driver.Event, error) {
	events := make([]driver.Event, len(changed))
	now := s.now()
	for i := range changed {
		c := &changed[i]
		if slices.Contains(c.next[:], dueUnknown) && c.id != 0 {
			if err := s.lookAhead(ctx, c); err != nil {
				return nil, err
			}
		}
		e := driver.Event{Queue: c.queue.name, Version: c.version, NextDueIn: driver.Never}
		for class, due := range c.next {
			if due == dueNever {
				continue
			}
			in := max(time.Duration(due-now), 0)
			e.NextDueIn = min(e.NextDueIn, in)
			switch {
			case in > 0:
			case int64(class) == classSuspect:
				e.Suspects = true
			default:
				e.Lanes = e.Lanes.With(redrive.Lane(class))
			}
		}
		if c.leased {
			e.NextDueIn = min(e.NextDueIn, max(time.Duration(s.nextLapse(c.queue, now)-now), 0))
		}
		events[i] = e
	}
	return events, nil
}

// nextLapse is when a lease of a queue may run out. It is kept as a lower bound,
// which leases that end early leave where it is, and looked up when it has passed.
func (s *Store) nextLapse(q *queue, now int64) int64 {
	bound := q.leaseEnd.Load()
	if bound > now {
		return bound
	}
	s.leaseMu.RLock()
	defer s.leaseMu.RUnlock()
	end := dueNever
	for _, l := range s.leases.ends {
		if l.queue == q && !l.dead {
			end = min(end, l.until)
		}
	}
	q.leaseEnd.CompareAndSwap(bound, end)
	return end
}

// lookAhead finds when something of a queue is due that was not claimed from since
// the store was opened.
func (s *Store) lookAhead(ctx context.Context, c *change) error {
	return s.read(ctx, func(r *conn) error {
		for class := range c.next {
			if c.next[class] != dueUnknown {
				continue
			}
			c.next[class] = dueNever
			st := r.stmt(`SELECT due, flags FROM waiting WHERE queue = ? AND class = ? ORDER BY due, seq LIMIT 1`).int(c.id).int(int64(class))
			if now := s.now(); st.next() {
				c.next[class] = st.colInt(0)
				if c.ahead[class] || isAhead(now, st.colInt(0), st.colInt(1)) {
					c.next[class] = now
				}
			}
			if err := st.done(); err != nil {
				return err
			}
		}
		return nil
	})
}
