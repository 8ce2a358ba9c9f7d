package mysql

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Waiting. One goroutine polls for all queues that somebody waits for, fast after a
// change and slower and slower while there is none. What this process changes itself
// wakes waiters at once.

// peekEach bounds the queues that are asked for by name; for more, one statement skips
// through the whole index.
const peekEach = 100

// class of the last death in peek.
const classDied = 7

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
	due   int64
	in    time.Duration // until due, when it was seen
}

func (b *beginnings) same(o *beginnings) bool {
	for class := range b {
		x, y := &b[class], &o[class]
		if x.there != y.there || x.due != y.due {
			return false
		}
	}
	return true
}

// dueNow reports whether something can be claimed.
func (b *beginnings) dueNow() bool {
	for class := range classDied {
		if b[class].there && b[class].in <= 0 && class != classBlocked && class != classLeasedBlocked {
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

// changed says that queues of this store were changed by this process, and wakes those
// of it who wait for one of them.
func (s *Store) changed(queues ...string) {
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

// Wait implements redrive.Source. A change is seen at once if this process made it, else
// within the longest poll interval.
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
		s.watcher.queue(e.Queue).seen = b
		e.NextDueIn = redrive.Never
		for class := range classDied {
			if !b[class].there || class == classBlocked || class == classLeasedBlocked {
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
	var now int64
	scan := func(r row) error {
		var queue string
		var class int
		b := beginning{there: true}
		if err := r.Scan(&queue, &class, &b.due); err != nil {
			return err
		}
		b.in = time.Duration(min(b.due-now, span(redrive.Never))) * time.Microsecond
		all := found[queue]
		all[class] = b
		found[queue] = all
		return nil
	}
	steps, wholes := s.peekSteps(names, scan)
	steps = append([]step{{sql: s.sql.get("now"), scan: scanInto(&now)}}, steps...)
	for part := range slices.Chunk(names, listMax) {
		l := idList{ids: part}
		steps = append(steps, step{sql: s.sql.with("peek_dead", ":ids", places(len(part))), args: l.args()[1:], scan: scan})
	}
	began := time.Now()
	err := s.read(ctx, "peek", func() { found = make(map[string]beginnings, len(names)) }, steps...)
	if err == nil {
		for i := range wholes {
			if b := found[wholes[i].Queue][wholes[i].Class]; b.there {
				wholes[i].First = timeAt(b.due)
			}
		}
		s.floors.Peeked(wholes, time.Since(began), timeAt(now))
	}
	return found, err
}

// claimable are the classes that may be claimed.
var claimable = [...]int{int(redrive.LaneFresh), int(redrive.LaneRetry), int(redrive.LaneRedrive), classSuspect, classLeased}

// peekSteps are the looks at queues: at those with floors class by class from there on, at
// the others together, of which it returns what they see.
func (s *Store) peekSteps(names []string, scan func(row) error) (steps []step, wholes []sqlstore.Beginning) {
	var together []string
	if len(names) <= peekEach {
		for _, name := range names {
			var from [len(claimable)]time.Time
			for i, class := range claimable {
				from[i] = s.floors.OfQueue(name, class)
			}
			if from == [len(claimable)]time.Time{} {
				together = append(together, name)
				for _, class := range claimable {
					wholes = append(wholes, sqlstore.Beginning{Queue: name, Class: class})
				}
				continue
			}
			for i, class := range claimable {
				steps = append(steps, step{sql: s.sql.get("peek_from"), args: []any{[]byte(name), class, orWhole(from[i])}, scan: scan})
			}
		}
	}
	if len(together) > 0 || len(names) > peekEach {
		waiting, args := peekStatement(s.sql, together)
		steps = append(steps, step{sql: waiting, args: args, scan: scan})
	}
	return steps, wholes
}

// peekStatement is the statement for some queues, or for all if there are none or many.
func peekStatement(sql *statements, names []string) (string, []any) {
	if len(names) == 0 || len(names) > peekEach {
		return sql.get("peek_all"), nil
	}
	l := idList{ids: names}
	return sql.with("peek", ":ids", places(len(names))), l.args()[1:]
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
		found, err := s.peek(look, names)
		cancel()
		switch {
		case err != nil:
			interval = s.pollMax
		case s.watcher.compare(names, found, s.pollMin, s.pollMax):
			interval = s.pollMin
		default:
			interval = min(2*interval, s.pollMax)
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

// Wake says that queues were changed by a transaction that was committed outside of the
// store, such as that of a [Store.PublishTx]: waiters of this process look at once
// instead of at the next poll.
func (s *Store) Wake(queues ...string) { s.changed(queues...) }
