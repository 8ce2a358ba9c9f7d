// Package backlog limits what waits in a queue: a [Limiter] is a sink that refuses
// publishes above a depth, a size or an age with [redrive.ErrBacklogged].
package backlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Options configures [New]. Every field has a default.
type Options struct {
	// Total bounds all queues together. Defaults to no bound.
	Total Limits
	// Refresh is how old the counts may be that decide. Between two readings what was
	// published here is added. Defaults to 100 ms.
	Refresh time.Duration
}

// Bounds of Limiter.
const (
	defaultRefresh = 100 * time.Millisecond
	readTimeout    = 5 * time.Second
	readShare      = 20     // reading counts takes at most 1/20 of the time
	maxRecords     = 16_384 // queues remembered at once
)

// Limiter is a [redrive.Sink] that refuses what would bring a queue, or the store, above
// its limits, with [redrive.ErrBacklogged]. What was refused once stays refused until it is
// below the soft limit.
//
// A limit of depth or bytes is exceeded at most by what was in flight when the counts were
// read, and by what other processes publish to the same store within one Refresh (or
// within 20 times as long as it takes to read the counts, if that is more). It may refuse
// early by what is published while the counts are read, until they are read again. While they cannot be read, what
// was known goes on to count. It is safe for concurrent use.
type Limiter struct {
	store  driver.Store
	limits func(queue string) Limits
	o      Options

	mu      sync.Mutex
	records map[string]*record // by queue; "" is the whole store
}

// New returns a sink in front of a store. limits gives the limits of a
// queue; it is asked for every publish, must be fast and safe for concurrent use, and
// may be nil when only Total counts.
func New(store driver.Store, limits func(queue string) Limits, o Options) *Limiter {
	if limits == nil {
		limits = func(string) Limits { return Limits{} }
	}
	o.Refresh = text.Positive(o.Refresh, defaultRefresh)
	return &Limiter{store: store, limits: limits, o: o, records: make(map[string]*record)}
}

// Publish implements [redrive.Sink].
func (l *Limiter) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	admitted, errs := l.admit(ctx, msgs)
	switch len(admitted) {
	case 0:
		return errs
	case len(msgs):
		errs = l.store.Publish(ctx, msgs)
		l.landed(msgs, errs, nil)
		return errs
	}
	batch := make([]redrive.Message, len(admitted))
	for i, at := range admitted {
		batch[i] = msgs[at]
	}
	results := l.store.Publish(ctx, batch)
	l.landed(batch, results, nil)
	for i, at := range admitted {
		msgs[at].ID = batch[i].ID
		if results != nil {
			errs[at] = results[i]
		}
	}
	return errs
}

// Apply is [driver.Store.Apply] for a batch whose Publish must fit below the limits as a
// whole: where one message does not, nothing is done and the error is [redrive.ErrBacklogged].
func (l *Limiter) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if len(b.Publish) == 0 {
		return l.store.Apply(ctx, b)
	}
	if admitted, errs := l.admit(ctx, b.Publish); len(admitted) < len(b.Publish) {
		refused := driver.FirstError(errs)
		for _, at := range admitted {
			l.landed(b.Publish[at:at+1], nil, refused)
		}
		return nil, refused
	}
	items, err := l.store.Apply(ctx, b)
	l.landed(b.Publish, items, err)
	return items, err
}

// admit returns the indexes of the messages that have room, which count from now on, and
// the errors of the others. Of one queue nothing overtakes what was refused.
func (l *Limiter) admit(ctx context.Context, msgs []redrive.Message) (admitted []int, errs []error) {
	names := make([]string, len(msgs))
	for i := range msgs {
		names[i] = msgs[i].Queue
	}
	l.refresh(ctx, false, names...)
	l.mu.Lock()
	defer l.mu.Unlock()
	admitted, errs = make([]int, 0, len(msgs)), make([]error, len(msgs))
	for i := range msgs {
		m, size := &msgs[i], waitingSize(&msgs[i])
		own, total := l.record(m.Queue), l.record("")
		if !own.fits(l.limits(m.Queue), size) || !total.fits(l.o.Total, size) {
			errs[i] = &redrive.Error{Op: "publish", Queue: m.Queue, ID: m.ID, Err: redrive.ErrBacklogged}
			continue
		}
		admitted = append(admitted, i)
		own.added.add(1, size)
		total.added.add(1, size)
	}
	return admitted, errs
}

// landed takes back what err, or its own error, says was not stored.
func (l *Limiter) landed(msgs []redrive.Message, errs []error, err error) {
	if err == nil && errs == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range msgs {
		result := err
		if result == nil {
			result = errs[i]
		}
		if result != nil && !errors.Is(result, redrive.ErrUnknown) {
			size := waitingSize(&msgs[i])
			l.record(msgs[i].Queue).added.add(-1, -size)
			l.record("").added.add(-1, -size)
		}
	}
}

// record returns what is known of a queue, made on demand. Beyond a bound all are made
// anew. l.mu is held.
func (l *Limiter) record(queue string) *record {
	r := l.records[queue]
	if r == nil {
		if len(l.records) >= maxRecords {
			clear(l.records)
		}
		r = new(record)
		l.records[queue] = r
	}
	return r
}

// refresh reads the counts of queues and of the store where they are too old and nobody
// else reads them. unlimited: of queues without limits, too.
func (l *Limiter) refresh(ctx context.Context, unlimited bool, queues ...string) {
	var stale []string
	now := time.Now()
	l.mu.Lock()
	for i := -1; i < len(queues); i++ {
		queue, limits := "", l.o.Total
		if i >= 0 {
			queue, limits = queues[i], l.limits(queues[i])
		}
		if r := l.record(queue); (!limits.none() || unlimited && i >= 0) && !r.reading && !now.Before(r.next) {
			r.reading = true
			r.known.add(r.added.count, r.added.bytes)
			r.added = usage{}
			stale = append(stale, queue)
		}
	}
	l.mu.Unlock()
	if len(stale) > 0 {
		l.read(ctx, stale)
	}
}

// read reads counts, of all queues if one is "".
func (l *Limiter) read(ctx context.Context, stale []string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began, queues := time.Now(), stale
	if slices.Contains(stale, "") {
		queues = nil
	}
	counts, err := l.store.Counts(ctx, queues...)
	var clock time.Time
	if err == nil {
		clock, err = l.store.Now(ctx)
	}
	waits := make(map[string]reading, len(counts)+1)
	for i := range counts {
		for _, queue := range []string{counts[i].Queue, ""} {
			of := waits[queue]
			of.add(&counts[i], clock)
			waits[queue] = of
		}
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queue := range stale {
		r := l.record(queue)
		r.reading = false
		if err == nil {
			r.learn(waits[queue], now)
		}
		if err == nil || !r.at.IsZero() { // what was never read is tried again at once
			r.next = now.Add(max(l.o.Refresh, readShare*now.Sub(began)))
		}
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
