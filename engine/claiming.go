package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Weights by which the lanes share the slots: fresh 8, retry 2, redrive 1.
var laneWeight = [driver.Lanes]int{8, 2, 1}

// claimLanes fills the free slots from the lanes of a source that have something
// due, by their weights.
func (c *consumer) claimLanes(f *feed) {
	var refused, dry driver.LaneSet
	for {
		o := c.options()
		now := time.Now()
		c.mu.Lock()
		lane, n, ok := c.chooseLocked(f, o, now, refused)
		c.noteSlotsLocked(o, now)
		if !ok {
			c.mu.Unlock()
			break
		}
		n, full, look := c.kindRoomLocked(f, o, n)
		c.mu.Unlock()
		if n == 0 { // the source cannot leave out the kinds that have no room
			refused = refused.With(lane)
			continue
		}
		want := n
		g := grants{each: c.scratch[:0]}
		n = c.reserve(&g, o, now, lane, n)
		c.scratch = g.each
		if n < want {
			refused = refused.With(lane)
			c.mu.Lock()
			c.refused = g.reason
			if !g.until.IsZero() {
				c.timerLocked(g.until)
			}
			c.mu.Unlock()
		}
		if n == 0 {
			c.sweepExpired(f, o, now)
			continue
		}
		if !c.e.isolation.enter(c, n) {
			c.giveBack(&g, now, n)
			return
		}
		g.exceptKinds = append(g.exceptKinds, full...)
		if len(look) > 0 && n == want { // not with the few that a gate lets through, such as a probe
			g.exceptKinds, g.others = append(g.exceptKinds, look...), true
		}
		got, ok := c.claim(f, o, &g, lane, n)
		if !ok {
			return
		}
		if got == 0 && g.probing() { // a probe that found nothing says nothing about the lane
			if dry.Has(lane) {
				refused = refused.With(lane)
			}
			dry = dry.With(lane)
		}
	}
}

// chooseLocked picks the lane that has the least of its share of the slots, and how
// many messages to claim from it.
func (c *consumer) chooseLocked(f *feed, o *consumerConfig, now time.Time, refused driver.LaneSet) (lane redrive.Lane, n int, ok bool) {
	free := c.roomLocked(o, now)
	if free <= 0 || c.stopped || c.settling >= max(settlingBound, 8*o.Concurrency) {
		return 0, 0, false
	}
	weights := 0
	for l := range redrive.LaneFresh + redrive.Lane(driver.Lanes) {
		if !f.lanes.Has(l) || refused.Has(l) {
			continue
		}
		weights += laneWeight[l]
		if !ok || c.inflight[l]*laneWeight[lane] < c.inflight[lane]*laneWeight[l] {
			lane, ok = l, true
		}
	}
	if !ok {
		return 0, 0, false
	}
	n = max((free*laneWeight[lane]+weights-1)/weights, 1)
	return lane, f.caps.Most(n), true
}

// claim claims from one lane and starts what it got. It reports false if the source
// failed.
func (c *consumer) claim(f *feed, o *consumerConfig, g *grants, lane redrive.Lane, n int) (got int, ok bool) {
	defer func() { c.e.isolation.leave(n - got) }()
	kinds, except := c.kinds(o, g)
	req := driver.ClaimRequest{Queue: c.queue, Lane: lane, Kinds: kinds, ExceptKinds: except, ExceptIDs: g.exceptIDs,
		Max: n, Lease: o.Lease, Instance: c.e.opts.Instance}
	began := time.Now()
	ds, err := c.claimGranted(g, n, func() ([]redrive.Delivery, error) { return f.src.Claim(c.e.run, req) })
	now := time.Now()
	got = len(ds)
	c.mu.Lock()
	if len(ds) > 0 {
		f.wait = 0
		c.pace.answered(o, began, now)
	}
	if err == nil && len(ds) < n && !g.probing() {
		f.lanes &^= 1 << lane
		f.empty = f.empty.With(lane)
		if len(ds) > 0 {
			f.empty &^= 1 << lane
		}
		if f.lanes == 0 {
			f.refresh = true
		}
	}
	if err != nil && c.e.run.Err() == nil {
		f.lanes, f.refresh = 0, false
		f.dueAt = now.Add(claimRetry)
		c.timerLocked(f.dueAt)
	}
	c.mu.Unlock()
	if err != nil {
		if c.e.run.Err() == nil && !errors.Is(err, redrive.ErrClosed) {
			c.e.log.LogAttrs(c.e.run, slog.LevelError, "claim failed", slog.String("queue", c.queue), slog.Any("error", err))
		}
		return 0, false
	}
	if len(ds) > 0 {
		c.e.observe(&Observation{Occasion: OnClaim, Queue: c.queue, Count: len(ds)})
		c.start(f, o, ds, startNormal, now)
	}
	return len(ds), true
}

// sweepExpired ends what expired while a gate refuses to let anything be claimed.
func (c *consumer) sweepExpired(f *feed, o *consumerConfig, now time.Time) {
	c.mu.Lock()
	due := !now.Before(c.expireAt)
	if due {
		c.expireAt = now.Add(expireEvery)
	}
	c.timerLocked(c.expireAt)
	c.mu.Unlock()
	batch := f.caps.Most(expireBatch)
	if !due || !c.e.isolation.enter(c, batch) {
		return
	}
	ds, err := f.src.Claim(c.e.run, driver.ClaimRequest{Queue: c.queue, Expired: true, MaxAge: o.policies.maxAge, Max: batch,
		Lease: o.Lease, Instance: c.e.opts.Instance})
	if err != nil {
		ds = nil
	}
	c.e.isolation.leave(batch - len(ds))
	if len(ds) > 0 {
		c.start(f, o, ds, startSwept, now)
	}
}

// startAs is how deliveries were claimed.
type startAs uint8

const (
	startNormal   startAs = iota
	startIsolated         // a suspect, isolated in the process
	startSwept            // to be ended because they expired; one that has not is given back
)

// start puts deliveries into slots.
func (c *consumer) start(f *feed, o *consumerConfig, ds []redrive.Delivery, as startAs, now time.Time) {
	batch := make([]attempt, len(ds))
	c.mu.Lock()
	for i := range ds {
		a, d := &batch[i], &ds[i]
		*a = attempt{c: c, f: f, d: d, o: o, policy: o.policies.of(&d.Message), base: c.e.base, isolated: as == startIsolated, swept: as == startSwept, began: now, extendedAt: now, closings: c.closings, ahead: c.busy >= o.Concurrency}
		c.busy++
		c.inflight[d.Lane]++
		c.enterKindLocked(a)
		a.next = c.first
		if c.first != nil {
			c.first.prev = a
		}
		c.first = a
	}
	c.refused = ""
	c.tickLocked()
	c.mu.Unlock()
	for i := range batch {
		a := &batch[i]
		s, ok := unfit(a.d, a.policy, func(err error, r redrive.Reason) *redrive.Failure { return c.failure(a, err, r, now) })
		if as == startSwept && !ok {
			s.Outcome, ok = redrive.OutcomeRelease, true
		}
		if ok {
			a.settle = s
			c.conclude(a, nil, false)
			c.free(a)
			continue
		}
		if c.e.opts.Observer != nil {
			c.e.observe(&Observation{Occasion: OnStart, Queue: c.queue, Delivery: a.d})
		}
		c.ready(a)
	}
}

var defaultPolicy = redrive.Policy{}.WithDefaults()
