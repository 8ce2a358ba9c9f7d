package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Classes of waiting messages beside the lanes.
const (
	ClassSuspect = driver.Lanes + iota
	ClassBlocked
	ClassLeased
	ClassLeasedBlocked // leased as expired, though behind the head of its key
	Classes
)

// Claimable are the classes that may be claimed.
var Claimable = [...]int{int(redrive.LaneFresh), int(redrive.LaneRetry), int(redrive.LaneRedrive), ClassSuspect, ClassLeased}

// ClassDied stands for the last death in a look at a queue, and for dead letters in Ahead and Pull.
const ClassDied = Classes

// PeekEach bounds the queues that are asked for by name; for more, one statement skips
// through the whole index.
const PeekEach = 100

// pollShare bounds polling to a twentieth of the time, also where a look is slow because
// the server is busy.
const pollShare = 20

// Heads is where each class of a queue begins.
type Heads [ClassDied + 1]Head

// Head is the beginning of a class.
type Head struct {
	There bool
	Due   time.Time
	Seq   int64
	In    time.Duration // until due, when it was seen
}

func (h *Heads) same(o *Heads) bool {
	for class := range h {
		x, y := &h[class], &o[class]
		if x.There != y.There || x.Seq != y.Seq || !x.Due.Equal(y.Due) {
			return false
		}
	}
	return true
}

// dueNow reports whether something can be claimed.
func (h *Heads) dueNow() bool {
	for _, class := range Claimable {
		if h[class].There && h[class].In <= 0 {
			return true
		}
	}
	return false
}

// event tells what may be claimed.
func (h *Heads) event(e *driver.Event) {
	e.NextDueIn = driver.Never
	for _, class := range Claimable {
		if !h[class].There {
			continue
		}
		e.NextDueIn = min(e.NextDueIn, max(h[class].In, 0))
		switch {
		case h[class].In > 0:
		case class == ClassSuspect || class == ClassLeased:
			e.Suspects = true
		default:
			e.Lanes = e.Lanes.With(redrive.Lane(class)) //nolint:gosec // one of the lanes
		}
	}
}

// Watcher lets callers wait for changes of queues. One goroutine polls for all queues
// that somebody waits for, fast after a change and slower and slower while there is
// none; what is noticed wakes waiters at once. Its fields are set before it is used.
type Watcher struct {
	// Peek looks where the classes of queues begin.
	Peek func(ctx context.Context, names []string) (map[string]Heads, error)
	// Ready reports why a call cannot begin.
	Ready func(ctx context.Context) error
	// Closed ends all waiting.
	Closed <-chan struct{}
	// Shortest and Longest bound the time between two looks, Timeout a look.
	Shortest, Longest, Timeout time.Duration

	mu      sync.Mutex
	queues  map[string]*watched
	waiters map[*waiter]struct{}
}

type waiter struct {
	watches []driver.Watch
	wake    chan struct{}
}

// watched is a queue that somebody waits or waited for.
type watched struct {
	version uint64
	seen    Heads
	stale   time.Duration // how long to keep still about what is due and stays there
	quiet   time.Time     // until then
}

// queue returns a queue, which is new to the watcher at version 1. mu is held.
func (w *Watcher) queue(name string) *watched {
	q := w.queues[name]
	if q == nil {
		if w.queues == nil {
			w.queues = make(map[string]*watched)
		}
		q = &watched{version: 1}
		w.queues[name] = q
	}
	return q
}

// Notice says that queues were changed, and wakes those who wait for one of them.
func (w *Watcher) Notice(queues []string) {
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

func (w *Watcher) wakeLocked() {
	for waiter := range w.waiters {
		select {
		case waiter.wake <- struct{}{}:
		default:
		}
	}
}

// Wake has all waiters look whether they can go on.
func (w *Watcher) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

// Wait carries out the Wait of a [driver.Source].
func (w *Watcher) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	me := &waiter{watches: watches, wake: make(chan struct{}, 1)}
	w.mu.Lock()
	if w.waiters == nil {
		w.waiters = make(map[*waiter]struct{})
	}
	w.waiters[me] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiters, me)
		w.mu.Unlock()
	}()
	for {
		if err := w.Ready(ctx); err != nil {
			return nil, err
		}
		if events := w.news(watches); len(events) > 0 {
			if err := w.fill(ctx, events); err != nil {
				return nil, err
			}
			return events, nil
		}
		select {
		case <-me.wake:
		case <-ctx.Done():
		case <-w.Closed:
		}
	}
}

// news returns an event for each watch whose queue has another version.
func (w *Watcher) news(watches []driver.Watch) []driver.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []driver.Event
	for i := range watches {
		if q := w.queue(watches[i].Queue); q.version != watches[i].Since {
			events = append(events, driver.Event{Queue: watches[i].Queue, Version: q.version})
		}
	}
	return events
}

// fill tells what may be claimed of the queues of events.
func (w *Watcher) fill(ctx context.Context, events []driver.Event) error {
	names := make([]string, len(events))
	for i := range events {
		names[i] = events[i].Queue
	}
	found, err := w.Peek(ctx, names)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range events {
		h := found[events[i].Queue]
		w.queue(events[i].Queue).seen = h
		h.event(&events[i])
	}
	return nil
}

// Poll looks for changes until ctx ends.
func (w *Watcher) Poll(ctx context.Context) {
	interval := w.Shortest
	for ctx.Err() == nil {
		t := time.NewTimer(interval)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		names := w.awaited()
		if len(names) == 0 || ctx.Err() != nil {
			interval = min(2*interval, w.Longest)
			continue
		}
		look, cancel := context.WithTimeout(ctx, w.Timeout)
		began := time.Now()
		found, err := w.Peek(look, names)
		least := min(max(w.Shortest, pollShare*time.Since(began)), w.Longest)
		cancel()
		switch {
		case err != nil:
			interval = w.Longest
		case w.compare(names, found):
			interval = least
		default:
			interval = min(max(2*interval, least), w.Longest)
		}
	}
}

// awaited returns the queues that somebody waits for.
func (w *Watcher) awaited() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// compare raises the versions of queues that begin elsewhere than before, and reports
// whether there are any. What is due and stays where it is is reported again after a while
// that grows: a claim may have passed it over because of a lock.
func (w *Watcher) compare(names []string, found map[string]Heads) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	woken := false
	for _, name := range names {
		q := w.queue(name)
		h := found[name]
		switch {
		case !h.same(&q.seen):
			q.stale, q.quiet = w.Shortest, now.Add(w.Shortest)
			changed = true
		case h.dueNow() && now.After(q.quiet):
			q.stale = min(2*max(q.stale, w.Shortest), w.Longest)
			q.quiet = now.Add(q.stale)
		default:
			continue
		}
		q.seen = h
		q.version++
		woken = true
	}
	if woken {
		w.wakeLocked()
	}
	return changed
}
