package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redrive/redrive"
)

// Leases are extended when a third of them has passed; we look twice as often. A
// handler is given up stuckGrace after its timeout.
const (
	extendShare = 3
	extendLooks = 6
	stuckGrace  = time.Second
)

// tickLocked starts the look after what is in flight, unless it is going on.
func (c *consumer) tickLocked() {
	if c.ticking || c.first == nil {
		return
	}
	c.ticking = true
	interval := min(c.options().Lease/extendLooks, longLooks)
	if c.ticker == nil {
		c.ticker = time.AfterFunc(interval, func() { c.e.guard("extender of "+c.queue, c.tick) })
		return
	}
	c.ticker.Reset(interval)
}

// tick extends the leases that are due for it and gives up handlers that ignore
// their context.
func (c *consumer) tick() {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ticking = false
		c.tickLocked()
	}()
	o := c.options()
	now := time.Now()
	var stuck []*attempt
	due := make(map[*feed][]*attempt)
	c.mu.Lock()
	bounded := c.lookAtKindsLocked(o, now)
	line := c.stalledLocked(o, now)
	for a := c.first; a != nil; a = a.next {
		if a.state == attemptRunning && !a.deadline.IsZero() && now.After(a.deadline.Add(stuckGrace)) {
			stuck = append(stuck, a)
		}
		if !a.lost && now.Sub(a.extendedAt) >= o.Lease/extendShare {
			due[a.f] = append(due[a.f], a)
		}
	}
	c.mu.Unlock()
	c.warnOfKinds(bounded)
	c.giveBackLine(line)
	for _, a := range stuck {
		c.giveUp(a)
	}
	for f, list := range due {
		for part := range slices.Chunk(list, f.caps.Most(len(list))) {
			c.extend(f, part, o.Lease, now)
		}
	}
}

// extend asks for another lease. An attempt whose lease is gone has its context
// cancelled with that cause; its result is still offered to the store, which takes
// it if nobody has claimed the message since.
func (c *consumer) extend(f *feed, list []*attempt, lease time.Duration, now time.Time) {
	receipts := make([]redrive.Receipt, len(list))
	for i, a := range list {
		receipts[i] = a.d.Receipt
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.e.base), lease/extendShare)
	errs := f.src.Extend(ctx, receipts, lease)
	cancel()
	for i, a := range list {
		var err error
		if errs != nil {
			err = errs[i]
		}
		switch {
		case err == nil:
			c.mu.Lock()
			a.extendedAt = now
			c.mu.Unlock()
		case errors.Is(err, redrive.ErrLeaseLost), errors.Is(err, redrive.ErrNotFound):
			c.mu.Lock()
			lost := !a.lost && a.state == attemptRunning
			a.lost = true
			c.mu.Unlock()
			if lost {
				a.cancel(redrive.ErrLeaseLost)
				c.e.observe(&Observation{Occasion: OnLeaseLost, Queue: c.queue, Delivery: a.d})
				c.e.log.LogAttrs(ctx, slog.LevelWarn, "lease lost", slog.String("queue", c.queue), slog.String("id", a.d.ID))
			}
		default: // the next look tries again
			c.e.log.LogAttrs(ctx, slog.LevelWarn, "lease not extended", slog.String("queue", c.queue), slog.String("id", a.d.ID), slog.Any("error", err))
		}
	}
}

// giveUp ends the attempt of a handler that ignores its context: the message goes on
// its way, the slot stays taken until the handler returns.
func (c *consumer) giveUp(a *attempt) {
	stack := a.stack()
	c.e.observe(&Observation{Occasion: OnStuck, Queue: c.queue, Delivery: a.d, Text: stack})
	c.e.log.LogAttrs(a.base, slog.LevelError, "handler ignores its context: slot not released",
		slog.String("queue", c.queue), slog.String("id", a.d.ID), slog.Duration("timeout", a.policy.Timeout), slog.String("stack", stack))
	c.conclude(a, &stuckError{err: a.errTimeout(), stack: stack}, true)
}

// stuckError is the failure of a handler that was given up.
type stuckError struct {
	err   error
	stack string
}

func (e *stuckError) Error() string   { return e.err.Error() }
func (*stuckError) ErrorName() string { return "engine.StuckError" }

func (e *stuckError) Unwrap() error      { return e.err }
func (e *stuckError) StackTrace() string { return e.stack }
