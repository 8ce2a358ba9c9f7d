package engine

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// soloStep takes suspects of a source, one after the other, while the process is
// otherwise idle.
func (c *consumer) soloStep(f *feed) {
	now := time.Now()
	c.mu.Lock()
	want := f.suspects && !c.stopped
	others := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.suspects }) && !c.stopped
	wait := c.soloAt
	c.mu.Unlock()
	held, took := c.e.solo.held(c, now)
	switch {
	case !want && others:
		return
	case !want:
		if !held || c.inFlight() == 0 {
			c.waiveAlone(now)
			c.e.solo.release(c)
		}
		return
	case now.Before(wait):
		c.mu.Lock()
		c.timerLocked(wait)
		c.mu.Unlock()
		return
	case held && c.inFlight() > 0: // the one before is not settled yet
		return
	case held && took > soloSlice:
		c.e.solo.release(c)
		c.mu.Lock()
		c.soloAt = now.Add(soloSlice)
		c.timerLocked(c.soloAt)
		c.mu.Unlock()
		return
	}
	o := c.options()
	if c.alone != nil && c.alone.of != o { // the gates may be others now
		c.waiveAlone(now)
	}
	if c.alone == nil && !c.reserveAlone(o, now) {
		return
	}
	granted, again := c.e.solo.acquire(c, now)
	if granted {
		c.claimAlone(f, o)
		return
	}
	if again.IsZero() { // another has it, and wakes us
		return
	}
	wanted := c.e.solo.wanted(c)
	if !wanted { // we gave way
		c.waiveAlone(now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !wanted {
		c.soloAt = again
	}
	c.timerLocked(again)
}

// reserveAlone asks the gates for a suspect before the process is kept idle for it.
func (c *consumer) reserveAlone(o *consumerConfig, now time.Time) bool {
	g := new(grants)
	if c.reserve(g, o, now, redrive.LaneFresh, 1) > 0 {
		c.alone = g
		return true
	}
	c.e.solo.release(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = g.reason
	c.soloAt = now.Add(claimRetry)
	c.timerLocked(c.soloAt)
	return false
}

// waiveAlone gives back what the gates granted for a suspect.
func (c *consumer) waiveAlone(now time.Time) {
	if c.alone != nil {
		g := c.alone
		c.alone = nil
		c.giveBack(g, now, 1)
	}
}

func (c *consumer) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy - c.stuck + c.settling
}

// claimAlone claims one suspect and starts it. The process is ours, and the gates
// allowed it.
func (c *consumer) claimAlone(f *feed, o *consumerConfig) {
	g := c.alone
	c.alone = nil
	kinds, except := c.kinds(o, g)
	req := driver.ClaimRequest{Queue: c.queue, Isolated: true, Kinds: kinds, ExceptKinds: except, ExceptIDs: g.exceptIDs, Max: 1,
		Lease: o.Lease, Instance: c.e.opts.Instance}
	ds, err := c.claimGranted(g, 1, func() ([]redrive.Delivery, error) { return f.src.Claim(c.e.run, req) })
	now := time.Now()
	if err != nil || len(ds) == 0 {
		c.mu.Lock()
		f.suspects, f.refresh = false, true
		c.soloAt = now.Add(claimRetry) // another has it, or it is of a kind that is not for us
		if err != nil {
			f.refresh = false
			f.dueAt = now.Add(claimRetry)
			c.timerLocked(f.dueAt)
		}
		c.mu.Unlock()
		c.e.solo.release(c)
		return
	}
	c.mu.Lock()
	f.refresh = true // are there more?
	c.mu.Unlock()
	c.start(f, o, ds, startAlone, now)
}
