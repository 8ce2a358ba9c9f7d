package redislist

import (
	"context"
	"math"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

const (
	never = math.MaxInt64
	// A look at every watched queue is due after pollLeast, or after pollEach for each
	// of them if that is longer.
	pollLeast = 100 * time.Millisecond
	pollEach  = time.Millisecond
	// A waker gives its connection back when its queue was not watched for this long.
	wakerIdle  = time.Minute
	blockFor   = 2 * time.Second
	soon       = int64(time.Millisecond)
	noDeadline = -1
)

// view is what a process last saw of a queue, and what it reported of it. Times are
// nanoseconds of the process's clock.
type view struct {
	version  uint64
	lanes    driver.LaneSet // have something due
	suspects bool
	next     int64 // when something becomes due
	waiting  bool  // the list is not empty
	dirty    bool  // look again
	lookedAt int64

	watchedAt int64
	waker     bool          // a goroutine blocks for the queue
	idle      chan struct{} // tells it that the list was seen empty
}

// Wait implements driver.Source.
func (s *Source) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	every := max(pollLeast, time.Duration(len(watches))*pollEach)
	timer := time.NewTimer(every)
	defer timer.Stop()
	first := true
	for {
		if s.closed() {
			return nil, redrive.ErrClosed
		}
		due, changed, err := s.toLookAt(watches, every, first)
		if err != nil {
			return nil, err
		}
		first = false
		if err := s.lookAll(ctx, due); err != nil {
			if s.closed() {
				return nil, redrive.ErrClosed
			}
			return nil, err
		}
		if events := s.events(watches); len(events) > 0 {
			return events, nil
		}
		timer.Reset(every)
		select {
		case <-changed:
		case <-timer.C:
		case <-s.closing:
			return nil, redrive.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// toLookAt returns the watched queues of which something new may be seen, and a channel
// that is closed when there are more of them.
func (s *Source) toLookAt(watches []driver.Watch, every time.Duration, first bool) ([]*queue, <-chan struct{}, error) {
	var due []*queue
	now := time.Now().UnixNano()
	for i := range watches {
		q, err := s.queue(watches[i].Queue)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		v := &q.view
		if v.dirty || watches[i].Since == 0 && first || now-v.lookedAt >= int64(every) {
			v.dirty, v.lookedAt = false, now
			due = append(due, q)
		}
		v.watchedAt = now
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range due {
		if q.view.dirty { // meanwhile
			s.signalLocked()
		}
	}
	return due, s.changed, nil
}

// lookAll looks at queues and notes what is new.
func (s *Source) lookAll(ctx context.Context, due []*queue) error {
	for i, q := range due {
		st, err := s.stats(ctx, q)
		if err != nil {
			s.mu.Lock()
			for _, q := range due[i:] {
				q.view.dirty = true
			}
			s.mu.Unlock()
			if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
				<-ctx.Done() // the connection's deadline is the context's, and was a moment earlier
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		s.mu.Lock()
		known := q.view.version
		q.view.learn(st, time.Now().UnixNano())
		if q.view.version != known {
			s.signalLocked() // the news are for everybody that waits, not for who looked
		}
		s.wakeLocked(q)
		s.mu.Unlock()
	}
	return nil
}

// learn takes what a look found. Only what was not reported before is an event: something
// due where nothing was, or due earlier.
func (v *view) learn(st *stats, now int64) {
	lanes := driver.LaneSet(0)
	next := int64(never)
	for l, first := range st.first {
		switch {
		case first == noDeadline:
		case first <= st.now:
			lanes = lanes.With(redrive.Lane(l))
		default:
			next = min(next, now+(first-st.now)*1000)
		}
	}
	if st.waiting > 0 {
		lanes = lanes.With(redrive.LaneFresh)
	}
	suspects := st.lease != noDeadline && st.lease <= st.now
	if st.lease > st.now {
		next = min(next, now+(st.lease-st.now)*1000)
	}
	if lanes&^v.lanes != 0 || suspects && !v.suspects || next < v.next-soon {
		v.version++
	}
	v.lanes, v.suspects, v.next, v.waiting = lanes, suspects, next, st.waiting > 0
}

// events returns an event for each watch whose queue has another version.
func (s *Source) events(watches []driver.Watch) []driver.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []driver.Event
	now := time.Now().UnixNano()
	for i := range watches {
		v := &s.queues[watches[i].Queue].view
		if v.version == watches[i].Since {
			continue
		}
		e := driver.Event{Queue: watches[i].Queue, Version: v.version, NextDueIn: driver.Never, Lanes: v.lanes, Suspects: v.suspects}
		switch {
		case v.lanes != 0:
			e.NextDueIn = 0
		case v.next != never:
			e.NextDueIn = time.Duration(max(v.next-now, 0))
			if e.NextDueIn == 0 {
				e.Lanes = driver.AllLanes
			}
		}
		all = append(all, e)
	}
	return all
}

// drained notes that a claim found less than it asked for: what comes now is new.
func (s *Source) drained(q *queue, req *driver.ClaimRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Isolated {
		q.view.suspects = false
	} else {
		q.view.lanes &^= 1 << req.Lane
	}
	q.view.dirty = true
	s.signalLocked()
}

// published has a waiter of this process look, unless it knows that something waits.
func (s *Source) published(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.view.lanes.Has(redrive.LaneFresh) && !q.view.dirty {
		q.view.dirty = true
		s.signalLocked()
	}
}

// look has a waiter of this process look at a queue.
func (s *Source) look(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.view.dirty = true
	s.signalLocked()
}

func (s *Source) signalLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wakeLocked has a goroutine block for a queue whose list is empty, if there are not
// too many of them.
func (s *Source) wakeLocked(q *queue) {
	v := &q.view
	if v.waiting || s.closed() {
		return
	}
	if v.waker {
		select {
		case v.idle <- struct{}{}:
		default:
		}
		return
	}
	n := 0
	for _, other := range s.queues {
		if other.view.waker {
			n++
		}
	}
	if n < wakeLimit {
		v.waker, v.idle = true, make(chan struct{}, 1)
		s.wakers.Go(func() { s.wake(q, v.idle) })
	}
}

// wake blocks for a queue while its list is empty. The token stays in its list: it is
// turned round, so that nothing is lost with whoever was woken by it.
func (s *Source) wake(q *queue, idle <-chan struct{}) {
	for {
		err := s.blocked.BLMove(context.Background(), q.keys.wake, q.keys.wake, "RIGHT", "LEFT", blockFor).Err()
		woken := err == nil
		if s.closed() {
			return
		}
		if woken {
			s.look(q)
			select {
			case <-idle:
			case <-s.closing:
				return
			}
		} else if noNil(err) != nil { // looks go on meanwhile, and see what there is
			select {
			case <-time.After(pollLeast):
			case <-s.closing:
				return
			}
		}
		s.mu.Lock()
		if time.Now().UnixNano()-q.view.watchedAt > int64(wakerIdle) {
			q.view.waker = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// stats is what a look found; see script/look.lua. Times are the server's microseconds.
type stats struct {
	now, waiting            int64
	delayed                 [driver.Lanes]int64
	processing, dead, lease int64
	first                   [driver.Lanes]int64
}

func (s *Source) stats(ctx context.Context, q *queue) (*stats, error) {
	k := q.keys
	v, err := s.conn.Run(ctx, lookScript, []string{k.waiting, k.taken, k.due[0], k.due[1], k.due[2], k.leases, k.dead})
	if err != nil {
		return nil, redisconn.Fault(err)
	}
	n, err := codes(lookScript.Name(), v, 11, nil)
	if err != nil {
		return nil, err
	}
	return &stats{now: n[0], waiting: n[1], delayed: [3]int64(n[2:5]), processing: n[5], dead: n[6], first: [3]int64(n[7:10]), lease: n[10]}, nil
}
