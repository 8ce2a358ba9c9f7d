// Package spool accepts messages for a while when the store behind it cannot be reached:
// into a store of its own beside the process, from which they go to the main store, in
// order and once, when it is back.
package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
)

// Options configures a [Spool]. Every field has a default.
type Options struct {
	// Messages and Bytes bound what the spool holds; beyond, publishes are answered with
	// 503. They default to 100,000 and 256 MiB.
	Messages, Bytes int64
	// Queues bounds how many queues have messages in the spool. Defaults to 1000.
	Queues int
	// Retry is how often the main store is tried while it is away. Defaults to 1 s.
	Retry time.Duration
	// Accepted receives that n messages were spooled, Drained that n went on. Optional.
	Accepted, Drained func(n int)
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// key is that of every message in the spool: so they can be read, and deleted, in the
// order in which they came. The message's own is a header there, as is all that would
// keep it from going on at once.
const key = "spool"

// Headers of a spooled message. They are taken off before it goes on.
const (
	headerKey       = headername.SpoolKey
	headerDeliverAt = headername.SpoolDeliverAt
	headerExpiresAt = headername.SpoolExpiresAt
)

const (
	drainBatch   = 200
	drainTimeout = 30 * time.Second
	retryAfter   = 5 * time.Second
)

// Spool is a [redrive.Sink] before a main one. What it accepted is as durable as the
// spool's store; the main store gets it under the same id, so that a repetition is known
// there as a duplicate. It is safe for concurrent use.
type Spool struct {
	main  redrive.Sink
	store driver.Store
	o     Options

	mu     sync.Mutex     // of publishes into the spool, and of what follows
	queues map[string]int // messages in the spool
	bytes  int64
	held   atomic.Int64 // messages in the spool
	wake   chan struct{}
	away   atomic.Bool // the main store was not reached the last time
}

// Open returns a spool over a store, with what it still holds.
func Open(ctx context.Context, main redrive.Sink, store driver.Store, o Options) (*Spool, error) {
	if o.Messages <= 0 {
		o.Messages = 100_000
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 20
	}
	if o.Queues <= 0 {
		o.Queues = 1000
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.Accepted == nil {
		o.Accepted = func(int) {}
	}
	if o.Drained == nil {
		o.Drained = func(int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Spool{main: main, store: store, o: o, queues: make(map[string]int), wake: make(chan struct{}, 1)}
	counts, err := store.Counts(ctx)
	if err != nil {
		return nil, err
	}
	for i := range counts {
		if n := counts[i].AllWaiting(); n > 0 {
			s.queues[counts[i].Queue] = int(n)
			s.bytes += counts[i].Bytes
			s.held.Add(n)
		}
	}
	return s, nil
}

// Held returns how many messages are in the spool.
func (s *Spool) Held() int64 { return s.held.Load() }

// Away reports whether the main store could not be reached the last time.
func (s *Spool) Away() bool { return s.away.Load() }

// Level tells how full a queue is, as the main sink does.
func (s *Spool) Level(queue string) (driver.Level, time.Duration) {
	if l, ok := driver.As[driver.LimitedSink](s.main); ok && !s.away.Load() {
		return l.Level(queue)
	}
	return driver.LevelOK, 0
}

// Room tells what is left of a queue's limits, as the main sink does.
func (s *Spool) Room(queue string) (left, limit int64, reset time.Duration) {
	if l, ok := driver.As[driver.LimitedSink](s.main); ok && !s.away.Load() {
		return l.Room(queue)
	}
	return 0, 0, 0
}

// Publish implements redrive.Sink. While messages of a queue are in the spool, others of
// that queue go there too, so that none overtakes.
func (s *Spool) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	errs := make([]error, len(msgs))
	var direct, aside []int
	s.mu.Lock()
	for i := range msgs {
		if s.queues[msgs[i].Queue] > 0 || s.away.Load() && s.held.Load() > 0 {
			aside = append(aside, i)
		} else {
			direct = append(direct, i)
		}
	}
	s.mu.Unlock()
	aside = append(aside, s.publish(ctx, msgs, direct, errs)...)
	slices.Sort(aside)
	s.deadLetter(ctx, msgs, aside, errs)
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// publish gives messages to the main sink and returns which it could not take, though
// there is nothing wrong with them.
func (s *Spool) publish(ctx context.Context, msgs []redrive.Message, which []int, errs []error) (unreachable []int) {
	if len(which) == 0 {
		return nil
	}
	batch := make([]redrive.Message, len(which))
	for i, at := range which {
		batch[i] = msgs[at]
	}
	results := s.main.Publish(ctx, batch)
	for i, at := range which {
		msgs[at].ID = batch[i].ID
		if results == nil || results[i] == nil {
			continue
		}
		errs[at] = results[i]
		if Unreachable(results[i]) && ctx.Err() == nil {
			unreachable = append(unreachable, at)
		}
	}
	s.away.Store(len(unreachable) > 0)
	return unreachable
}

// Unreachable reports whether an error of a sink means that the store is not there, and
// that nothing was stored for certain. Where that is not certain the caller must repeat,
// as without a spool.
func Unreachable(err error) bool {
	for _, known := range []error{
		redrive.ErrDuplicate, redrive.ErrConflict, redrive.ErrInvalid, redrive.ErrBacklogged, redrive.ErrFull, redrive.ErrUnknown, redrive.ErrClosed,
		redrive.ErrCorrupt, context.Canceled,
	} {
		if errors.Is(err, known) {
			return false
		}
	}
	var p *problem.Problem
	return err != nil && !errors.As(err, &p)
}

// deadLetter stores messages in the spool, within its limits.
func (s *Spool) deadLetter(ctx context.Context, msgs []redrive.Message, which []int, errs []error) {
	if len(which) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var batch []redrive.Message
	var at []int
	size := s.bytes
	for _, i := range which {
		m := spooled(&msgs[i], now)
		if err := m.Validate(); err != nil {
			errs[i] = err
			continue
		}
		size += int64(m.Size())
		_, known := s.queues[m.Queue]
		if s.held.Load()+int64(len(batch)) >= s.o.Messages || size > s.o.Bytes || !known && len(s.queues) >= s.o.Queues {
			errs[i] = full(errs[i])
			continue
		}
		batch, at = append(batch, m), append(at, i)
	}
	results := s.store.Publish(ctx, batch)
	n := 0
	for i, where := range at {
		var err error
		if results != nil {
			err = results[i]
		}
		errs[where] = err
		if err == nil {
			msgs[where].ID = batch[i].ID
			s.queues[batch[i].Queue]++
			s.bytes += int64(batch[i].Size())
			n++
		}
	}
	if n == 0 {
		return
	}
	s.held.Add(int64(n))
	s.o.Accepted(n)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// full is the answer when the spool has no room.
func full(cause error) error {
	detail := ""
	if cause != nil {
		detail = "and what waits for it has filled the spool"
	}
	p := problem.Of(redrive.ErrUnavailable).After(retryAfter)
	p.Detail = detail
	return p
}

// spooled is a message as the spool keeps it.
func spooled(m *redrive.Message, now time.Time) redrive.Message {
	c := *m
	c.Headers = slices.Clone(m.Headers)
	note := func(name, value string) {
		if value != "" {
			c.Headers.Add(name, value)
		}
	}
	note(headerKey, m.Key)
	due := m.DeliverAt
	if at := now.Add(m.Delay); m.Delay > 0 && at.After(due) {
		due = at
	}
	if !due.IsZero() {
		note(headerDeliverAt, due.UTC().Format(time.RFC3339Nano))
	}
	if !m.ExpiresAt.IsZero() {
		note(headerExpiresAt, m.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	c.Key, c.Delay, c.DeliverAt, c.ExpiresAt = key, 0, time.Time{}, time.Time{}
	return c
}

// restored is a spooled message as it was published.
func restored(m *redrive.Message) (redrive.Message, error) {
	c := redrive.Message{ID: m.ID, Queue: m.Queue, Kind: m.Kind, Headers: m.Headers.Clone(), Body: m.Body, ReplyTo: m.ReplyTo}
	c.Key, _ = m.Headers.Get(headerKey)
	for name, at := range map[string]*time.Time{headerDeliverAt: &c.DeliverAt, headerExpiresAt: &c.ExpiresAt} {
		text, ok := m.Headers.Get(name)
		if !ok {
			continue
		}
		var err error
		if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return c, fmt.Errorf("%w spooled message: %w", redrive.ErrInvalid, err)
		}
	}
	for _, name := range []string{headerKey, headerDeliverAt, headerExpiresAt} {
		c.Headers.Del(name)
	}
	return c, nil
}
