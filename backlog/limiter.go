package backlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Limits bounds what waits in a queue, or in all queues together. A zero field does
// not bound.
type Limits struct {
	Depth int64         // waiting messages, leased ones included
	Bytes int64         // their size
	Age   time.Duration // how long the oldest message has been due
	// Soft is the share of a limit at which it begins to warn, and below which a queue
	// that was refused is open again. Defaults to 0.8.
	Soft float64
}

// DefaultSoft is the default of Limits.Soft.
const DefaultSoft = 0.8

func (l Limits) none() bool { return l.Depth <= 0 && l.Bytes <= 0 && l.Age <= 0 }

func (l Limits) soft() float64 {
	if l.Soft > 0 && l.Soft <= 1 {
		return l.Soft
	}
	return DefaultSoft
}

// Options configures [New]. Every field has a default.
type Options struct {
	// Total bounds all queues together. Defaults to no bound.
	Total Limits
	// Block lets Publish wait until there is room, or its context ends, instead of
	// refusing at once.
	Block bool
	// Refresh is how old the counts may be that decide. Between two readings what was
	// published here is added. Defaults to 100 ms.
	Refresh time.Duration
	// Accepted and Refused are called with how many messages of a queue the store took,
	// and how many had no room. They must be fast and safe for concurrent use. Optional.
	Accepted, Refused func(queue string, n int)
}

// Bounds of Limiter.
const (
	defaultRefresh   = 100 * time.Millisecond
	refreshTimeout   = 5 * time.Second
	refreshShare     = 20     // reading counts takes at most 1/20 of the time
	maxRereads       = 3      // by one Publish that may find room in what counts twice
	maxMarks         = 16_384 // queues remembered at once
	minRetryAfter    = time.Second
	maxRetryAfter    = time.Minute
	drainMemory      = 5 * time.Second       // over which the drain rate is smoothed
	minDrainInterval = 50 * time.Millisecond // between two readings that tell a rate
)

// Limiter is a [redrive.Sink] that refuses what would bring a queue, or the store, above
// its limits, with [redrive.ErrBacklogged]. What was refused once stays refused until it is
// below the soft mark. One process never exceeds a limit of depth or bytes by its own
// publishes; several processes may, by what they publish within one Refresh. It is
// safe for concurrent use.
type Limiter struct {
	store  driver.Store
	limits func(queue string) Limits
	o      Options

	mu         sync.Mutex
	marks      map[string]*mark
	total      mark
	wanted     map[string]struct{} // queues whose counts are too old; "": all
	refreshing chan struct{}       // closed when the refresh in progress is over
	round      uint64              // number of the newest refresh
	notBefore  time.Time           // the next refresh, so that a slow one is rare
}

// New returns a sink in front of a store. limits gives the limits of a
// queue; it is asked for every publish, must be fast and safe for concurrent use, and
// may be nil when only Total counts.
func New(store driver.Store, limits func(queue string) Limits, o Options) *Limiter {
	if limits == nil {
		limits = func(string) Limits { return Limits{} }
	}
	o.Refresh = text.Positive(o.Refresh, defaultRefresh)
	return &Limiter{store: store, limits: limits, o: o, marks: make(map[string]*mark), wanted: make(map[string]struct{})}
}

// Publish implements Sink.
func (w *Limiter) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	errs := make([]error, len(msgs))
	left := make([]int, len(msgs)) // indexes of what is neither published nor refused
	for i := range left {
		left[i] = i
	}
	for rereads := 0; ; {
		w.fresh(ctx, msgs, left)
		admitted, refused, sure := w.admit(msgs, left)
		w.pass(ctx, msgs, admitted, errs)
		left = refused
		if len(left) == 0 {
			break
		}
		if !sure && rereads < maxRereads && ctx.Err() == nil {
			rereads++
			continue
		}
		if !w.o.Block {
			w.refuse(msgs, left, errs, redrive.ErrBacklogged)
			break
		}
		if err := sleep(ctx, w.o.Refresh); err != nil {
			w.refuse(msgs, left, errs, fmt.Errorf("%w: %w", redrive.ErrBacklogged, context.Cause(ctx)))
			break
		}
	}
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// pass publishes what was admitted, and counts what the store took.
func (w *Limiter) pass(ctx context.Context, msgs []redrive.Message, admitted []int, errs []error) {
	if len(admitted) == 0 {
		return
	}
	batch := msgs
	if len(admitted) < len(msgs) {
		batch = make([]redrive.Message, len(admitted))
		for i, at := range admitted {
			batch[i] = msgs[at]
		}
	}
	results := w.store.Publish(ctx, batch)
	for i, at := range admitted {
		msgs[at].ID = batch[i].ID
		if results != nil {
			errs[at] = results[i]
		}
	}
	w.landed(msgs, admitted, func(at int) bool { return errs[at] == nil || errors.Is(errs[at], redrive.ErrUnknown) })
	count(w.o.Accepted, msgs, admitted, errs)
}

func (w *Limiter) refuse(msgs []redrive.Message, refused []int, errs []error, err error) {
	for _, at := range refused {
		errs[at] = &redrive.Error{Op: "publish", Queue: msgs[at].Queue, ID: msgs[at].ID, Err: err}
	}
	count(w.o.Refused, msgs, refused, nil)
}

// count reports how many messages of each queue something happened to.
func count(report func(queue string, n int), msgs []redrive.Message, which []int, errs []error) {
	if report == nil {
		return
	}
	count := make(map[string]int, 1)
	for _, at := range which {
		if errs == nil || errs[at] == nil {
			count[msgs[at].Queue]++
		}
	}
	for queue, n := range count {
		report(queue, n)
	}
}

// Level tells how full a queue is, or the store if that is worse: [driver.LevelOK],
// [driver.LevelWarn] above the soft mark, [driver.LevelRefused] when publishes are refused. In the
// last case retryAfter says when to try again, by how fast the queue drains: from 1 s
// to 60 s.
func (w *Limiter) Level(queue string) (level driver.Level, retryAfter time.Duration) {
	one := []redrive.Message{{Queue: queue}}
	w.fresh(context.Background(), one, []int{0})
	w.mu.Lock()
	defer w.mu.Unlock()
	level, retryAfter = w.total.level(w.o.Total)
	if m := w.marks[queue]; m != nil {
		l, after := m.level(w.limits(queue))
		level, retryAfter = max(level, l), max(retryAfter, after)
	}
	return level, retryAfter
}

// admit splits messages into those that have room and those that have not; it is not
// sure of the latter where a new reading may find room. Of one queue nothing overtakes
// what was refused.
func (w *Limiter) admit(msgs []redrive.Message, which []int) (admitted, refused []int, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var unsure []*mark
	fits := func(m *mark, l Limits, size int64) bool {
		if slices.Contains(unsure, m) {
			return false
		}
		room, sure := m.fits(l, size)
		if !sure {
			m.unsure, unsure = true, append(unsure, m)
		}
		return room
	}
	for _, at := range which {
		m := &msgs[at]
		size := waitingSize(m)
		mark := w.marks[m.Queue]
		if mark != nil && !fits(mark, w.limits(m.Queue), size) || !fits(&w.total, w.o.Total, size) {
			refused = append(refused, at)
			continue
		}
		if mark != nil {
			mark.flight.add(size)
		}
		w.total.flight.add(size)
		admitted = append(admitted, at)
	}
	return admitted, refused, len(unsure) == 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitingSize is what a message will take in the store. Before it is published it may
// still lack its id.
func waitingSize(m *redrive.Message) int64 {
	n := m.Size()
	if m.ID == "" {
		n += len("00000000-0000-0000-0000-000000000000")
	}
	return int64(n)
}

// fresh reads counts that are too old, if nobody else is reading. It waits only for a
// queue that was never read, or where it is not sure whether there is room.
func (w *Limiter) fresh(ctx context.Context, msgs []redrive.Message, which []int) {
	for range 3 { // the reading we wait for may have begun before we asked, or fail
		w.mu.Lock()
		now := time.Now()
		urgent := w.want(now, msgs, which)
		if len(w.wanted) == 0 || !urgent && (w.refreshing != nil || now.Before(w.notBefore)) {
			w.mu.Unlock()
			return
		}
		if busy := w.refreshing; busy != nil {
			w.mu.Unlock()
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return
			}
		}
		queues := w.begin()
		w.mu.Unlock()
		w.refresh(ctx, queues)
		return
	}
}

// want notes which counts are too old, and reports whether nothing can be decided
// before they are read.
func (w *Limiter) want(now time.Time, msgs []redrive.Message, which []int) (urgent bool) {
	stale := func(queue string, m *mark) {
		must := !m.known || m.unsure
		urgent = urgent || must
		if must || now.Sub(m.at) >= w.o.Refresh {
			w.wanted[queue] = struct{}{}
		}
	}
	if !w.o.Total.none() {
		stale("", &w.total)
	}
	for _, at := range which {
		if queue := msgs[at].Queue; !w.limits(queue).none() {
			stale(queue, w.mark(queue))
		}
	}
	return urgent
}

// mark returns the mark of a queue, made on demand.
func (w *Limiter) mark(queue string) *mark {
	m := w.marks[queue]
	if m != nil {
		return m
	}
	if len(w.marks) >= maxMarks {
		for name, old := range w.marks {
			if old.flight.count == 0 && !old.refused {
				delete(w.marks, name)
				delete(w.wanted, name)
			}
			if len(w.marks) < maxMarks*3/4 {
				break
			}
		}
	}
	m = new(mark)
	w.marks[queue] = m
	return m
}

// begin starts a refresh and returns the queues to read; nil means all.
func (w *Limiter) begin() (queues []string) {
	w.refreshing = make(chan struct{})
	w.round++
	if _, all := w.wanted[""]; !all {
		queues = slices.Collect(maps.Keys(w.wanted))
	}
	clear(w.wanted)
	return queues
}

// refresh reads counts. If that fails, what was known goes on to count.
func (w *Limiter) refresh(ctx context.Context, queues []string) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	began := time.Now()
	counts, err := w.store.Counts(ctx, queues...)
	var clock time.Time
	if err == nil {
		clock, err = w.store.Now(ctx)
	}
	now := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.notBefore = now.Add(refreshShare * now.Sub(began))
	close(w.refreshing)
	w.refreshing = nil
	if err != nil {
		w.trust(queues)
		return
	}
	byQueue := make(map[string]*reading, len(counts))
	var all reading
	for i := range counts {
		r := newReading(&counts[i], clock)
		byQueue[counts[i].Queue] = &r
		all.add(&r)
	}
	none := new(reading)
	if queues == nil {
		w.total.learn(w.round, &all, now)
		queues = slices.Collect(maps.Keys(w.marks))
	}
	for _, queue := range queues {
		if m := w.marks[queue]; m != nil {
			r := byQueue[queue]
			if r == nil {
				r = none
			}
			m.learn(w.round, r, now)
		}
	}
}

// trust takes what is known of queues, nil for all, as it stands.
func (w *Limiter) trust(queues []string) {
	if queues == nil {
		w.total.trust()
		for _, m := range w.marks {
			m.trust()
		}
	}
	for _, queue := range queues {
		if m := w.marks[queue]; m != nil {
			m.trust()
		}
	}
}
