package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Waiting. One goroutine polls for all queues that somebody waits for, fast after a
// change and slower and slower while there is none. What this process changes itself,
// and what others announce, wakes waiters at once.

// peekEach bounds the queues that are asked for by name; for more, one statement skips
// through the whole index.
const peekEach = 100

// pollShare bounds polling to a twentieth of the time, also where a look is slow because
// the server is busy.
const pollShare = 20

// Classes in peek of the last death and of the time.
const (
	classDied = 7
	classNow  = 8
)

// claimable are the classes that may be claimed.
var claimable = [...]int{int(redrive.LaneFresh), int(redrive.LaneRetry), int(redrive.LaneRedrive), classSuspect, classLeased}

// watcher knows what was last seen of the queues.
type watcher struct {
	mu      sync.Mutex
	queues  map[string]*watched
	waiters map[*waiter]struct{}
	kick    chan struct{} // has the poller look now
}

type waiter struct {
	watches []redrive.Watch
	wake    chan struct{}
}

// watched is a queue that somebody waits or waited for.
type watched struct {
	version uint64
	seen    beginnings
	stale   time.Duration // how long to keep still about what is due and stays there
	quiet   time.Time     // until then
}

// beginnings is where each class of a queue begins.
type beginnings [classDied + 1]beginning

type beginning struct {
	there bool
	due   time.Time
	seq   int64
	in    time.Duration // until due, when it was seen
}

func (b *beginnings) same(o *beginnings) bool {
	for class := range b {
		x, y := &b[class], &o[class]
		if x.there != y.there || x.seq != y.seq || !x.due.Equal(y.due) {
			return false
		}
	}
	return true
}

// dueNow reports whether something can be claimed.
func (b *beginnings) dueNow() bool {
	for class := range classDied {
		if b[class].there && b[class].in <= 0 {
			return true
		}
	}
	return false
}

func (w *watcher) init() {
	w.queues, w.waiters = make(map[string]*watched), make(map[*waiter]struct{})
	w.kick = make(chan struct{}, 1)
}

// queue returns a queue, which is new to the watcher at version 1. mu is held.
func (w *watcher) queue(name string) *watched {
	q := w.queues[name]
	if q == nil {
		q = &watched{version: 1}
		w.queues[name] = q
	}
	return q
}

// changed says that queues of this store were changed by this process, and lets other
// processes know.
func (s *Store) changed(queues ...string) {
	s.notice(queues)
	s.hints.add(queues)
}

// notice wakes those who wait for one of the queues.
func (s *Store) notice(queues []string) {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	news := false
	for _, name := range queues {
		if q := w.queues[name]; q != nil { // else nobody has waited for it yet
			q.version++
			news = true
		}
	}
	if news {
		w.wakeLocked()
	}
}

func (w *watcher) wakeLocked() {
	for waiter := range w.waiters {
		select {
		case waiter.wake <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

// Wait implements redrive.Source. A change is seen at once if this process made it or
// another announced it, else within the longest poll interval.
func (s *Store) Wait(ctx context.Context, watches []redrive.Watch) ([]redrive.Event, error) {
	me := &waiter{watches: watches, wake: make(chan struct{}, 1)}
	s.watcher.mu.Lock()
	s.watcher.waiters[me] = struct{}{}
	s.watcher.mu.Unlock()
	defer func() {
		s.watcher.mu.Lock()
		delete(s.watcher.waiters, me)
		s.watcher.mu.Unlock()
	}()
	for {
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		if events := s.watcher.news(watches); len(events) > 0 {
			if err := s.fill(ctx, events); err != nil {
				return nil, err
			}
			return events, nil
		}
		select {
		case <-me.wake:
		case <-ctx.Done():
		case <-s.alive.Done():
		}
	}
}

// news returns an event for each watch whose queue has another version.
func (w *watcher) news(watches []redrive.Watch) []redrive.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []redrive.Event
	for i := range watches {
		if q := w.queue(watches[i].Queue); q.version != watches[i].Since {
			events = append(events, redrive.Event{Queue: watches[i].Queue, Version: q.version})
		}
	}
	return events
}

// fill tells what may be claimed of the queues of events.
func (s *Store) fill(ctx context.Context, events []redrive.Event) error {
	names := make([]string, len(events))
	for i := range events {
		names[i] = events[i].Queue
	}
	found, err := s.peek(ctx, names)
	if err != nil {
		return err
	}
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	for i := range events {
		e := &events[i]
		b := found[e.Queue]
		q := s.watcher.queue(e.Queue)
		q.seen = b
		e.NextDueIn = redrive.Never
		for class := range classDied {
			if !b[class].there {
				continue
			}
			e.NextDueIn = min(e.NextDueIn, max(b[class].in, 0))
			switch {
			case b[class].in > 0:
			case class == classSuspect || class == classLeased:
				e.Suspects = true
			default:
				e.Lanes = e.Lanes.With(redrive.Lane(class))
			}
		}
	}
	return nil
}

// peek looks where the classes of queues begin.
func (s *Store) peek(ctx context.Context, names []string) (map[string]beginnings, error) {
	var found map[string]beginnings
	var now time.Time
	statement, args := "peek_all", []any(nil)
	var wholes []sqlstore.Beginning
	if len(names) <= peekEach {
		var begins []*time.Time
		var queues []string
		var classes []int64
		for _, name := range names {
			for _, class := range claimable {
				from := s.floors.OfQueue(name, class)
				if from.IsZero() {
					wholes = append(wholes, sqlstore.Beginning{Queue: name, Class: class})
				}
				from = orWhole(from)
				queues, classes, begins = append(queues, name), append(classes, int64(class)), append(begins, &from)
			}
		}
		statement, args = "peek", []any{names, queues, classes, begins}
	}
	began := time.Now()
	err := s.read(ctx, statement, func() { found = make(map[string]beginnings, len(names)) }, func(r row) error {
		var queue string
		var class int
		var in float64
		var b beginning
		if err := r.Scan(&queue, &class, &b.due, &b.seq, &in); err != nil {
			return err
		}
		if class == classNow {
			now = b.due
			return nil
		}
		b.there, b.in = true, time.Duration(min(in, 250*365*86400)*float64(time.Second))
		if in > 0 {
			b.in += time.Microsecond // nobody shall come too early
		}
		all := found[queue]
		all[class] = b
		found[queue] = all
		return nil
	}, args...)
	if err == nil {
		for i := range wholes {
			wholes[i].First = found[wholes[i].Queue][wholes[i].Class].due
		}
		s.floors.Peeked(wholes, time.Since(began), now)
	}
	return found, err
}

// poll looks for changes until ctx ends.
func (s *Store) poll(ctx context.Context) {
	interval := s.pollMin
	for ctx.Err() == nil {
		t := time.NewTimer(interval)
		select {
		case <-t.C:
		case <-s.watcher.kick:
			interval = s.pollMin
		case <-ctx.Done():
		}
		t.Stop()
		names := s.watcher.awaited()
		if len(names) == 0 || ctx.Err() != nil {
			interval = min(2*interval, s.pollMax)
			continue
		}
		look, cancel := context.WithTimeout(ctx, s.timeout)
		began := time.Now()
		found, err := s.peek(look, names)
		least := min(max(s.pollMin, pollShare*time.Since(began)), s.pollMax)
		cancel()
		switch {
		case err != nil:
			interval = s.pollMax
		case s.watcher.compare(names, found, s.pollMin, s.pollMax):
			interval = least
		default:
			interval = min(max(2*interval, least), s.pollMax)
		}
	}
}

// awaited returns the queues that somebody waits for.
func (w *watcher) awaited() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) == 1 {
		for one := range w.waiters {
			return queueNames(one.watches)
		}
	}
	seen := make(map[string]bool)
	var names []string
	for one := range w.waiters {
		for i := range one.watches {
			if name := one.watches[i].Queue; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

func queueNames(watches []redrive.Watch) []string {
	names := make([]string, len(watches))
	for i := range watches {
		names[i] = watches[i].Queue
	}
	return names
}

// compare raises the versions of queues that begin elsewhere than before, and reports
// whether there are any. What is due and stays where it is is told again after a while
// that grows: a claim may have passed it over because of a lock.
func (w *watcher) compare(names []string, found map[string]beginnings, shortest, longest time.Duration) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	woken := false
	for _, name := range names {
		q := w.queue(name)
		b := found[name]
		switch {
		case !b.same(&q.seen):
			q.stale, q.quiet = shortest, now.Add(shortest)
			changed = true
		case b.dueNow() && now.After(q.quiet):
			q.stale = min(2*max(q.stale, shortest), longest)
			q.quiet = now.Add(q.stale)
		default:
			continue
		}
		q.seen = b
		q.version++
		woken = true
	}
	if woken {
		w.wakeLocked()
	}
	return changed
}
