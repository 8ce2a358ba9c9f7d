package engine

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// How settlements are repeated after a fault, and how large a group may be.
const (
	settleTimeout  = 30 * time.Second
	settleRetryMin = 10 * time.Millisecond
	settleRetryMax = time.Second
	settleGroup    = 4096
	settleParts    = 64 // calls a round of repetitions
	settleSingle   = 3  // failures of a single item before its text is suspected
)

// settler writes the settlements of one source in groups without a timer: the next
// group is whatever came in while the last one was written.
type settler struct {
	e       *Engine
	src     driver.Source
	max     int // items a call
	mu      sync.Mutex
	pending []settling
	spare   []settling
	batch   []driver.Settlement
	running bool

	failed    []settling // to be repeated
	repeating bool
}

// settling is a decided attempt on its way to the store.
type settling struct {
	a      *attempt
	tries  int // failed writes
	single int // of those, the ones in a group of one
}

func newSettler(e *Engine, src driver.Source) *settler {
	return &settler{e: e, src: src, max: src.Caps().Most(settleGroup)}
}

func (s *settler) add(a *attempt) {
	s.mu.Lock()
	s.pending = append(s.pending, settling{a: a})
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		s.e.workers.Go(s.run)
	}
}

// run writes groups until nothing is pending.
func (s *settler) run() {
	for {
		s.mu.Lock()
		group := s.pending
		if len(group) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		if len(group) > s.max {
			s.pending = append(s.spare[:0], group[s.max:]...)
			group = group[:s.max]
		} else {
			s.pending = s.spare[:0]
		}
		s.spare = nil
		s.mu.Unlock()

		s.later(s.write(group, &s.batch))

		s.mu.Lock()
		if s.spare == nil {
			clear(group)
			s.spare = group[:0]
		}
		s.mu.Unlock()
	}
}

// write settles a group and returns the items that failed for a passing reason.
func (s *settler) write(group []settling, scratch *[]driver.Settlement) (again []settling) {
	batch := (*scratch)[:0]
	for _, g := range group {
		batch = append(batch, g.a.settle)
	}
	*scratch = batch
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.e.base), settleTimeout)
	defer cancel()
	began := time.Now()
	errs := s.src.Settle(ctx, batch)
	s.e.observe(&Observation{Occasion: OnSettleGroup, Count: len(group), Duration: time.Since(began)})
	clear(batch)

	for i, g := range group {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if s.final(g.a, err) {
			continue
		}
		if g.tries++; len(group) == 1 {
			g.single++
		}
		if g.single >= settleSingle {
			g.a.settle.Failure = safeFailure(g.a.settle.Failure)
		}
		again = append(again, g)
	}
	if len(again) > 0 {
		s.e.log.LogAttrs(ctx, slog.LevelWarn, "settlements failed: retrying", slog.Int("count", len(again)),
			slog.String("queue", again[0].a.c.queue), slog.String("id", again[0].a.d.ID), slog.Any("error", driver.FirstError(errs)))
	}
	return again
}

// later has items repeated that failed.
func (s *settler) later(items []settling) {
	if len(items) == 0 {
		return
	}
	s.mu.Lock()
	s.failed = append(s.failed, items...)
	start := !s.repeating
	s.repeating = true
	s.mu.Unlock()
	if start {
		s.e.workers.Go(s.repeat)
	}
}

// repeat writes what failed again, in rounds whose distance grows while nothing
// succeeds, and in ever smaller parts taken at random, so that a faulty item soon
// stands by itself while a store that is down is asked at most settleParts times a round.
// Until they succeed their leases are extended.
func (s *settler) repeat() {
	delay := settleRetryMin
	var scratch []driver.Settlement
	for {
		t := time.NewTimer(delay)
		gaveUp := false
		select {
		case <-t.C:
		case <-s.e.giveUp:
			gaveUp = true
		}
		t.Stop()
		s.mu.Lock()
		items := s.failed
		s.failed = nil
		s.repeating = len(items) > 0
		s.mu.Unlock()
		switch {
		case len(items) == 0:
			return
		case gaveUp:
			s.e.undurable.Add(int64(len(items)))
			for _, it := range items {
				it.a.c.settled(it.a, ErrShutdown)
			}
			continue
		}
		again := s.round(items, &scratch)
		if delay = settleRetryMin; len(again) == len(items) {
			delay = min(settleRetryMin<<min(again[0].tries, 10), settleRetryMax)
		}
		s.mu.Lock()
		s.failed = append(s.failed, again...)
		s.mu.Unlock()
	}
}

// round writes items once, in parts, and returns those that failed.
func (s *settler) round(items []settling, scratch *[]driver.Settlement) (again []settling) {
	tries := 0
	for _, it := range items {
		tries = max(tries, it.tries)
	}
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	parts := min(1<<min(tries-1, 10), settleParts, len(items))
	for part := range slices.Chunk(items, min((len(items)+parts-1)/parts, s.max)) {
		again = append(again, s.write(part, scratch)...)
	}
	return again
}

// final reports whether an item needs no repetition: it succeeded, or its receipt is
// no longer good, or what it emits cannot be published, which fails the attempt.
func (s *settler) final(a *attempt, err error) bool {
	switch {
	case err == nil:
	case errors.Is(err, redrive.ErrLeaseLost), errors.Is(err, redrive.ErrNotFound), errors.Is(err, redrive.ErrClosed):
	case errors.Is(err, redrive.ErrConflict), errors.Is(err, redrive.ErrInvalid):
		if a.c.emitFailed(a, err) {
			return false
		}
	default:
		return false
	}
	a.c.settled(a, err)
	return true
}

// safeFailure is the failure reduced to what every store can hold: a store that
// refuses an item again and again may stumble over its text.
func safeFailure(f *redrive.Failure) *redrive.Failure {
	if f == nil {
		return nil
	}
	return &redrive.Failure{At: f.At, Duration: f.Duration, Attempt: f.Attempt, Reason: f.Reason, Types: []string{"redrive.unstorable"},
		Message: "the failure's text could not be stored: " + ascii(f.Message, 200), Host: f.Host, IP: f.IP, PID: f.PID, Service: f.Service,
		Version: f.Version, Env: f.Env, Config: f.Config, TraceID: f.TraceID, Signature: f.Signature}
}

// ascii keeps the printable ASCII of s, at most limit bytes.
func ascii(s string, limit int) string {
	b := make([]byte, 0, limit)
	for i := 0; i < len(s) && len(b) < limit; i++ {
		if c := s[i]; c >= ' ' && c < 0x7f {
			b = append(b, c)
		}
	}
	return string(b)
}
