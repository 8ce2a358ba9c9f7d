package engine

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// isolatedStep takes suspects of a source, one after the other, while the process is
// otherwise idle.
func (c *consumer) isolatedStep(f *feed) {
	now := time.Now()
	c.mu.Lock()
	want := f.suspects && !c.stopped
	others := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.suspects }) && !c.stopped
	wait := c.isolateAt
	c.mu.Unlock()
	held, took := c.e.isolation.held(c, now)
	switch {
	case !want && others:
		return
	case !want:
		if !held || c.inFlight() == 0 {
			c.waiveIsolated(now)
			c.e.isolation.release(c)
		}
		return
	case now.Before(wait):
		c.mu.Lock()
		c.timerLocked(wait)
		c.mu.Unlock()
		return
	case held && c.inFlight() > 0: // the one before is not settled yet
		return
	case held && took > isolationSlice:
		c.e.isolation.release(c)
		c.mu.Lock()
		c.isolateAt = now.Add(isolationSlice)
		c.timerLocked(c.isolateAt)
		c.mu.Unlock()
		return
	}
	o := c.options()
	if c.isolated != nil && c.isolated.of != o { // the gates may be others now
		c.waiveIsolated(now)
	}
	if c.isolated == nil && !c.reserveIsolated(o, now) {
		return
	}
	granted, again := c.e.isolation.acquire(c, now)
	if granted {
		c.claimIsolated(f, o)
		return
	}
	if again.IsZero() { // another has it, and wakes us
		return
	}
	wanted := c.e.isolation.wanted(c)
	if !wanted { // we gave way
		c.waiveIsolated(now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !wanted {
		c.isolateAt = again
	}
	c.timerLocked(again)
}

// reserveIsolated asks the gates for a suspect before the process is kept idle for it.
func (c *consumer) reserveIsolated(o *consumerConfig, now time.Time) bool {
	g := new(grants)
	if c.reserve(g, o, now, redrive.LaneFresh, 1) > 0 {
		c.isolated = g
		return true
	}
	c.e.isolation.release(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = g.reason
	c.isolateAt = now.Add(claimRetry)
	c.timerLocked(c.isolateAt)
	return false
}

// waiveIsolated gives back what the gates granted for a suspect.
func (c *consumer) waiveIsolated(now time.Time) {
	if c.isolated != nil {
		g := c.isolated
		c.isolated = nil
		c.giveBack(g, now, 1)
	}
}

func (c *consumer) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy - c.stuck + c.settling
}

// claimIsolated claims one suspect and starts it. The process is ours, and the gates
// allowed it.
func (c *consumer) claimIsolated(f *feed, o *consumerConfig) {
	g := c.isolated
	c.isolated = nil
	kinds, except := c.kinds(o, g)
	req := driver.ClaimRequest{Queue: c.queue, Isolated: true, Kinds: kinds, ExceptKinds: except, ExceptIDs: g.exceptIDs, Max: 1,
		Lease: o.Lease, Instance: c.e.opts.Instance}
	ds, err := c.claimGranted(g, 1, func() ([]redrive.Delivery, error) { return f.src.Claim(c.e.run, req) })
	now := time.Now()
	if err != nil || len(ds) == 0 {
		c.mu.Lock()
		f.suspects, f.refresh = false, true
		c.isolateAt = now.Add(claimRetry) // another has it, or it is of a kind that is not for us
		if err != nil {
			f.refresh = false
			f.dueAt = now.Add(claimRetry)
			c.timerLocked(f.dueAt)
		}
		c.mu.Unlock()
		c.e.isolation.release(c)
		return
	}
	c.mu.Lock()
	f.refresh = true // are there more?
	c.mu.Unlock()
	c.start(f, o, ds, startIsolated, now)
}
