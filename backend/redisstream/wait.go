package redisstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// One goroutine a process and partition reads the stream of notices, in which every step names the
// queues that it changed; a second one blocks on the streams of watched queues, for
// entries that other clients add without a notice. Both only raise versions; what a
// queue holds is asked by who waits.

// Bounds of the waiter.
const (
	noticeBatch = 1000                   // notices read at once; the stream keeps 2000
	noticeBlock = 5 * time.Second        // of one blocking read
	watchMost   = 200                    // streams one blocking read watches for other clients' entries
	watchBlock  = 250 * time.Millisecond // of that read: what is watched anew waits so long at most
	watchPause  = 5 * time.Millisecond   // between a wake-up and the next read
	lookBatch   = 50                     // queues asked about in one pipeline
)

// waiter keeps the versions of queues.
type waiter struct {
	mu       sync.Mutex
	started  bool
	versions map[string]uint64
	armed    map[string]string // queue -> last entry known, of those to watch
	rearmed  chan struct{}
	woken    chan struct{} // closed and made anew when a version rises
}

func (w *waiter) init() {
	w.versions = make(map[string]uint64)
	w.armed = make(map[string]string)
	w.rearmed = make(chan struct{}, 1)
	w.woken = make(chan struct{})
}

// version returns a queue's version. The caller holds the lock.
func (w *waiter) version(queue string) uint64 {
	v, ok := w.versions[queue]
	if !ok {
		v = 1
		w.versions[queue] = v
	}
	return v
}

// raise raises the versions of queues, of all with none named.
func (w *waiter) raise(queues ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if queues == nil {
		for q := range w.versions {
			w.versions[q]++
		}
	}
	for _, q := range queues {
		w.versions[q] = w.version(q) + 1
	}
	close(w.woken)
	w.woken = make(chan struct{})
}

// changed returns the watches whose queue has another version, with it.
func (w *waiter) changed(watches []driver.Watch) (list []driver.Watch, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range watches {
		if v := w.version(x.Queue); v != x.Since {
			list = append(list, driver.Watch{Queue: x.Queue, Since: v})
		}
	}
	return list, w.woken
}

// Wait implements driver.Source. It does not poll: two blocking reads a process (and
// partition) serve all queues. Entries that other clients add are seen at once in the 200 queues that were
// watched last, within a quarter of a second for each further 200.
func (s *Store) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	if err := s.startWaiting(ctx); err != nil {
		return nil, err
	}
	for {
		changed, woken := s.wait.changed(watches)
		if s.ctx.Err() != nil {
			return nil, redrive.ErrClosed
		}
		if len(changed) > 0 {
			return s.look(ctx, changed)
		}
		select {
		case <-woken:
		case <-s.ctx.Done():
			return nil, redrive.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ended is the error of a call under a context: the end of that, if it is the cause.
func ended(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < time.Millisecond {
		<-ctx.Done() // the connection's deadline came a moment before
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// look asks about queues and returns their events.
func (s *Store) look(ctx context.Context, changed []driver.Watch) ([]driver.Event, error) {
	events := make([]driver.Event, 0, len(changed))
	for page := range slices.Chunk(changed, lookBatch) {
		names := make([]string, len(page))
		for i := range page {
			names[i] = page[i].Queue
		}
		tallies, err := s.tallies(ctx, names)
		if err != nil {
			return nil, ended(ctx, err)
		}
		for i := range page {
			some := make([]driver.Event, len(tallies[i]))
			for k, t := range tallies[i] {
				some[k] = t.event(page[i].Queue, page[i].Since)
				s.all()[k].wait.arm(page[i].Queue, t.last)
			}
			events = append(events, mergeEvents(some))
		}
	}
	return events, nil
}

func (t *tally) event(queue string, version uint64) driver.Event {
	e := driver.Event{Queue: queue, Version: version, NextDueIn: driver.Never, Lanes: t.lanes, Suspects: t.suspects}
	if t.next >= 0 {
		if left := max(t.next-t.now, 0); left < int64(driver.Never/time.Microsecond) {
			e.NextDueIn = time.Duration(left) * time.Microsecond
		}
	}
	return e
}

// arm lets a queue's stream be watched from an entry on.
func (w *waiter) arm(queue, last string) {
	w.mu.Lock()
	w.armed[queue] = last
	w.mu.Unlock()
	select {
	case w.rearmed <- struct{}{}:
	default:
	}
}

// startWaiting starts the two readers, once, from the newest notice on.
func (s *Store) startWaiting(ctx context.Context) error {
	s.wait.mu.Lock()
	defer s.wait.mu.Unlock()
	if s.wait.started {
		return nil
	}
	if s.ctx.Err() != nil {
		return redrive.ErrClosed
	}
	var newest []string
	for _, p := range s.all() {
		last, err := p.lastNotice(ctx)
		if err != nil {
			return ended(ctx, s.fail(err))
		}
		newest = append(newest, last)
	}
	s.wait.started = true
	for i, p := range s.all() {
		s.bg.Go(func() { p.readNotices(newest[i]) })
		s.bg.Go(p.watchStreams)
	}
	return nil
}

func (s *Store) lastNotice(ctx context.Context) (string, error) {
	last, err := s.conn.XRevRangeN(ctx, s.prefix+":notify", "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(last) == 0 {
		return "0", nil
	}
	return last[0].ID, nil
}

// readNotices raises the versions of queues that are named. After a fault, or when it was
// too slow to see all, everything may have changed.
func (s *Store) readNotices(last string) {
	for s.ctx.Err() == nil {
		got, err := s.conn.XRead(s.ctx, &redis.XReadArgs{Streams: []string{s.prefix + ":notify", last}, Count: noticeBatch, Block: noticeBlock}).Result()
		switch {
		case err == redis.Nil: //nolint:errorlint // the client returns it bare
			continue
		case err != nil:
			s.pause(100 * time.Millisecond)
			if at, err := s.lastNotice(s.ctx); err == nil {
				last = at
				s.raise()
			}
			continue
		}
		s.stats.wakeups.Add(1)
		list := got[0].Messages
		last = list[len(list)-1].ID
		if len(list) == noticeBatch {
			s.raise()
			continue
		}
		var names []string
		for i := range list {
			if name, ok := list[i].Values["q"].(string); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		s.raise(names...)
	}
}

// raise raises the versions of queues; they belong to the whole store.
func (s *Store) raise(queues ...string) {
	if s.whole != nil {
		s = s.whole
	}
	s.wait.raise(queues...)
}

// watchStreams raises the versions of queues whose stream grew.
func (s *Store) watchStreams() {
	for s.ctx.Err() == nil {
		names, ids := s.wait.watched()
		if len(names) == 0 {
			select {
			case <-s.wait.rearmed:
			case <-s.ctx.Done():
			}
			continue
		}
		streams := make([]string, 0, 2*len(names))
		for _, name := range names {
			streams = append(streams, s.prefix+name)
		}
		got, err := s.conn.XRead(s.ctx, &redis.XReadArgs{Streams: append(streams, ids...), Count: 1, Block: watchBlock}).Result()
		if err != nil {
			if err != redis.Nil { //nolint:errorlint // the client returns it bare
				s.pause(100 * time.Millisecond)
			}
			continue
		}
		var grown []string
		for i := range got {
			grown = append(grown, got[i].Stream[len(s.prefix):])
		}
		s.wait.disarm(grown)
		s.raise(grown...)
		s.pause(watchPause) // lets who waits ask, and arm them anew
	}
}

// watched returns some of the armed queues with their last entries; a map's order makes
// every one come by.
func (w *waiter) watched() (names, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q, id := range w.armed {
		if len(names) == watchMost {
			break
		}
		names, ids = append(names, q), append(ids, id)
	}
	return names, ids
}

func (w *waiter) disarm(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range queues {
		delete(w.armed, q)
	}
}

// pause waits for a while or for Close.
func (s *Store) pause(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d):
	}
}
