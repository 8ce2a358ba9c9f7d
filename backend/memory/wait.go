package memory

import (
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Wait implements driver.Source. What only time brings does not end it: the event's
// NextDueIn says when to look again.
func (s *Store) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	for {
		woken := s.register()
		events, err := s.look(ctx, watches)
		if err != nil || len(events) > 0 {
			s.unregister(woken)
			return events, err
		}
		select {
		case <-woken:
		case <-s.closed:
			s.unregister(woken)
			return nil, redrive.ErrClosed
		case <-ctx.Done():
			s.unregister(woken)
			return nil, ctx.Err()
		}
	}
}

// look returns an event for each watch whose queue changed.
func (s *Store) look(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	var events []driver.Event
	now := int64(0)
	for i := range watches {
		q := s.queue(watches[i].Queue)
		if q.version.Load() == watches[i].Since {
			continue
		}
		if now == 0 {
			now = s.now()
		}
		events = append(events, q.event(now))
	}
	return events, nil
}

func (q *queue) event(now int64) driver.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refresh(now)
	e := driver.Event{Queue: q.name, Version: q.version.Load(), NextDueIn: driver.Never, Suspects: q.lanes[laneSuspect].n > 0}
	if next := q.nextDue(); next < never {
		e.NextDueIn = time.Duration(max(next-now, 0))
	}
	for l := range redrive.LaneFresh + redrive.Lane(driver.Lanes) {
		if q.lanes[l].n > 0 {
			e.Lanes = e.Lanes.With(l)
		}
	}
	return e
}

func (s *Store) register() chan struct{} {
	woken := make(chan struct{})
	s.waitersMu.Lock()
	defer s.waitersMu.Unlock()
	s.waiters = append(s.waiters, woken)
	s.waiting.Store(int32(len(s.waiters))) //nolint:gosec // a handful
	return woken
}

func (s *Store) unregister(woken chan struct{}) {
	s.waitersMu.Lock()
	defer s.waitersMu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(w chan struct{}) bool { return w == woken })
	s.waiting.Store(int32(len(s.waiters))) //nolint:gosec // a handful
}

// notify wakes all waiters, once; they register again.
func (s *Store) notify() {
	s.waitersMu.Lock()
	defer s.waitersMu.Unlock()
	for _, w := range s.waiters {
		close(w)
	}
	clear(s.waiters)
	s.waiters = s.waiters[:0]
	s.waiting.Store(0)
}
