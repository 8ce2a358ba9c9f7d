package redrive

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Weights by which the lanes share the slots: fresh 8, retry 2, redrive 1.
var laneWeight = [Lanes]int{8, 2, 1}

// Delays of a consumer that cannot go on at once.
const (
	claimRetry    = time.Second           // after a claim that failed, or found nothing where something was due
	claimSoon     = 20 * time.Millisecond // the first time that it found nothing
	expireEvery   = time.Second           // sweeps for what expired while a gate refuses
	expireBatch   = 256
	settlingBound = 1024 // decided but not yet durable, at most this or 8 times the slots
)

// breakerPlace is the breaker's place among a consumer's own gates.
const breakerPlace = 1

// consumerConfig is what Handle was given, with defaults; it is replaced as a whole.
type consumerConfig struct {
	QueueOptions
	handler Handler
}

// consumer works on one queue. It has no goroutine while nothing is to be done: an
// event, a timer or a freed slot wakes it, and one pump at a time claims what the
// slots and gates allow.
type consumer struct {
	e       *Engine
	queue   string
	config  atomic.Pointer[consumerConfig]
	pauses  *pauseGate
	breaker *breakerGate
	own     []Gate  // pauses, breaker, budget
	scratch []Grant // of the pump
	alone   *grants // of the pump: what the gates granted for a suspect that is not claimed yet
	gateMu  sync.Mutex

	mu        sync.Mutex
	feeds     []*feed
	turn      int // the feed that is asked first
	pumping   bool
	again     bool
	stopped   bool
	idle      *sync.Cond
	busy      int // slots taken
	stuck     int
	settling  int
	inflight  [Lanes]int
	first     *attempt // list of what is in flight or settling
	head      *attempt // of the attempts that no worker has taken yet
	tail      *attempt
	spawning  bool // a worker was started and has not begun
	timer     *time.Timer
	timerAt   time.Time
	ticker    *time.Timer
	ticking   bool
	refused   string
	unhandled bool
	expireAt  time.Time
	soloTries int
	soloAt    time.Time // no suspects before this
}

// feed is a consumer's view of one source.
type feed struct {
	c       *consumer
	src     Source
	caps    Caps
	hub     *hub
	settler *settler

	// Under the consumer's lock.
	lanes    LaneSet       // may have something due
	empty    LaneSet       // were found empty since the last event or look, though something was said to be due
	suspects bool          // something may be claimed alone
	narrowed bool          // the newest claim was narrowed by a gate
	refresh  bool          // ask the source what is due next
	wait     time.Duration // before asking again for what was said to be due and not found
	dueAt    time.Time     // then ask again; zero: nothing is known to become due
}

func newConsumer(e *Engine, queue string, cfg *consumerConfig) *consumer {
	c := &consumer{e: e, queue: queue, pauses: newPauseGate(cfg.Target), breaker: newBreakerGate(cfg.Breaker, cfg.Target)}
	c.idle = sync.NewCond(&c.mu)
	c.own = []Gate{c.pauses, breakerPlace: c.breaker, newBudgetGate()}
	c.breaker.onChange = func(s BreakerStatus) {
		e.observe(&Observation{Occasion: OnBreaker, Queue: queue, Text: s.State})
		e.log.LogAttrs(e.base, slog.LevelWarn, "breaker "+s.State, slog.String("queue", queue), slog.String("target", s.Key), slog.String("reason", s.Reason))
	}
	c.config.Store(cfg)
	return c
}

func (c *consumer) options() *consumerConfig { return c.config.Load() }

// notify takes an event of a source.
func (c *consumer) notify(f *feed, ev *Event, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.empty, f.wait = 0, 0
	c.learnLocked(f, ev, now)
	if f.lanes != 0 || f.suspects {
		c.wakeLocked()
	} else if !f.dueAt.IsZero() {
		c.timerLocked(f.dueAt)
	}
}

// learnLocked keeps what a source said about its queue.
func (c *consumer) learnLocked(f *feed, ev *Event, now time.Time) {
	f.refresh = false
	f.suspects = ev.Suspects
	f.dueAt = time.Time{}
	switch {
	case ev.NextDueIn <= 0:
		f.lanes |= ev.Lanes
	case ev.NextDueIn < Never:
		f.dueAt = now.Add(ev.NextDueIn)
	}
}

func (c *consumer) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

// wakeAfresh looks anew at what is due, as more of it may be for us than before.
func (c *consumer) wakeAfresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.feeds {
		f.refresh, f.empty, f.wait = true, 0, 0
	}
	c.soloAt = time.Time{}
	c.wakeLocked()
}

func (c *consumer) wakeLocked() {
	switch {
	case c.stopped || !c.e.started.Load():
	case c.pumping:
		c.again = true
	default:
		c.pumping = true
		go c.pump()
	}
}

// hasWorkLocked reports that something may be claimed as soon as a slot is free.
func (c *consumer) hasWorkLocked() bool {
	for _, f := range c.feeds {
		if f.lanes != 0 || f.suspects || f.refresh {
			return true
		}
	}
	return false
}

// timerLocked wakes the consumer at a time, if no earlier wake-up is set.
func (c *consumer) timerLocked(at time.Time) {
	if c.stopped || !c.timerAt.IsZero() && !at.Before(c.timerAt) {
		return
	}
	c.timerAt = at
	d := max(time.Until(at), 0)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.onTimer)
		return
	}
	c.timer.Reset(d)
}

func (c *consumer) onTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.timerAt.IsZero() || now.Before(c.timerAt) { // it was set anew meanwhile
		return
	}
	c.timerAt = time.Time{}
	for _, f := range c.feeds {
		if !f.dueAt.IsZero() && !now.Before(f.dueAt) {
			f.dueAt, f.refresh, f.empty = time.Time{}, true, 0
		}
		if !f.dueAt.IsZero() {
			c.timerLocked(f.dueAt)
		}
	}
	c.wakeLocked()
}

// pump claims until there is nothing to claim or no slot to put it.
func (c *consumer) pump() {
	for {
		ok := false
		c.e.guard("consumer of "+c.queue, func() {
			c.step()
			ok = true
		})
		c.mu.Lock()
		if !ok {
			c.timerLocked(time.Now().Add(claimRetry))
		}
		if !c.again || c.stopped {
			c.pumping = false
			if c.first == nil { // an idle queue keeps little
				c.scratch = nil
			}
			c.idle.Broadcast()
			c.yieldLocked()
			c.mu.Unlock()
			return
		}
		c.again = false
		c.mu.Unlock()
	}
}

// step asks each source in turn.
func (c *consumer) step() {
	c.mu.Lock()
	feeds := c.feeds
	c.turn++
	turn := c.turn
	c.mu.Unlock()
	for i := range feeds {
		f := feeds[(turn+i)%len(feeds)]
		c.refreshFeed(f)
		c.soloStep(f)
		c.claimLanes(f)
		c.refreshFeed(f)
	}
}

// refreshFeed asks the source what is due next, where that is not known.
func (c *consumer) refreshFeed(f *feed) {
	c.mu.Lock()
	ask := f.refresh && !c.stopped
	c.mu.Unlock()
	if !ask {
		return
	}
	events, err := f.src.Wait(c.e.run, []Watch{{Queue: c.queue}})
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || len(events) == 0 {
		if c.e.run.Err() == nil && !errors.Is(err, ErrClosed) {
			f.dueAt = now.Add(claimRetry)
			c.timerLocked(f.dueAt)
		}
		return
	}
	ev := events[0]
	// What is said to be due and was just found empty is not for us: of a kind that
	// nobody handles, or excluded. We look again later, or at the next event.
	missing := ev.NextDueIn <= 0 && f.empty&ev.Lanes != 0
	ev.Lanes &^= f.empty
	c.learnLocked(f, &ev, now)
	if missing {
		f.wait = min(max(2*f.wait, claimSoon), claimRetry)
		f.dueAt = now.Add(f.wait)
	}
	c.unhandled = missing && f.wait == claimRetry && !f.narrowed
	if !f.dueAt.IsZero() {
		c.timerLocked(f.dueAt)
	}
	if f.lanes != 0 || f.suspects && !now.Before(c.soloAt) {
		c.again = true
	}
}

// claimLanes fills the free slots from the lanes of a source that have something
// due, by their weights.
func (c *consumer) claimLanes(f *feed) {
	var refused, dry LaneSet
	for {
		o := c.options()
		now := time.Now()
		c.mu.Lock()
		lane, n, ok := c.chooseLocked(f, o, refused)
		c.mu.Unlock()
		if !ok {
			break
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
		if !c.e.solo.enter(c, n) {
			c.giveBack(&g, o, now, n)
			return
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
func (c *consumer) chooseLocked(f *feed, o *consumerConfig, refused LaneSet) (lane Lane, n int, ok bool) {
	free := o.Concurrency - c.busy
	if free <= 0 || c.stopped || c.settling >= max(settlingBound, 8*o.Concurrency) {
		return 0, 0, false
	}
	weights := 0
	for l := range LaneFresh + lanes {
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
	return lane, atMost(n, f.caps), true
}

// claim claims from one lane and starts what it got. It reports false if the source
// failed.
func (c *consumer) claim(f *feed, o *consumerConfig, g *grants, lane Lane, n int) (got int, ok bool) {
	defer func() { c.e.solo.leave(n - got) }()
	kinds, except := c.kinds(o, g)
	req := ClaimRequest{Queue: c.queue, Lane: lane, Kinds: kinds, ExceptKinds: except, ExceptIDs: g.exceptIDs,
		Max: n, Lease: o.Lease, Instance: c.e.opts.Instance}
	ds, err := f.src.Claim(c.e.run, req)
	now := time.Now()
	c.claimed(g, ds)
	c.giveBack(g, o, now, n-len(ds))
	got = len(ds)
	c.mu.Lock()
	if len(ds) > 0 {
		f.wait = 0
	}
	f.narrowed = g.probing() || len(g.exceptKinds) > 0
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
		if c.e.run.Err() == nil && !errors.Is(err, ErrClosed) {
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

// kinds combines what the handler handles with what the gates allow.
func (c *consumer) kinds(o *consumerConfig, g *grants) (only, except []string) {
	only, except = g.kinds, g.exceptKinds
	k, ok := o.handler.(interface{ Kinds() ([]string, bool) })
	if !ok {
		return only, except
	}
	handled, all := k.Kinds()
	if all {
		return only, except
	}
	if len(only) == 0 {
		return handled, except
	}
	only = slices.DeleteFunc(slices.Clone(only), func(kind string) bool { return !slices.Contains(handled, kind) })
	if len(only) == 0 {
		return handled, handled // nothing is allowed
	}
	return only, except
}

// grants is what all gates together allow.
type grants struct {
	each                          []Grant
	kinds, exceptKinds, exceptIDs []string
	until                         time.Time
	reason                        string
}

// probing reports a grant for single messages, whose absence says nothing about what
// else is due.
func (g *grants) probing() bool { return len(g.kinds) > 0 || len(g.exceptIDs) > 0 }

// gates calls f for the engine's own gates and the queue's.
func (c *consumer) gates(o *consumerConfig, f func(i int, g Gate)) {
	for i, g := range c.own {
		f(i, g)
	}
	for i, g := range o.Gates {
		f(len(c.own)+i, g)
	}
}

// reserve asks the gates one after the other, each for what the one before granted.
func (c *consumer) reserve(g *grants, o *consumerConfig, now time.Time, lane Lane, n int) int {
	c.gateMu.Lock()
	defer c.gateMu.Unlock()
	c.gates(o, func(_ int, gate Gate) {
		if n == 0 {
			return
		}
		one := gate.Reserve(now, Ask{Queue: c.queue, Lane: lane, Max: n})
		g.each = append(g.each, one)
		if one.N < n {
			n = max(one.N, 0)
			g.until, g.reason = one.Until, one.Reason
		}
		if len(one.Kinds) > 0 {
			g.kinds = one.Kinds
		}
		g.exceptKinds = append(g.exceptKinds, one.ExceptKinds...)
		g.exceptIDs = append(g.exceptIDs, one.ExceptIDs...)
	})
	c.giveBackAbove(g, o, now, n)
	return n
}

// giveBackAbove returns to each gate what a later one did not allow.
func (c *consumer) giveBackAbove(g *grants, o *consumerConfig, now time.Time, n int) {
	c.gates(o, func(i int, gate Gate) {
		if i < len(g.each) && g.each[i].N > n {
			gate.Return(now, g.each[i], g.each[i].N-n)
			g.each[i].N = n
		}
	})
}

// giveBack returns to all gates what was not used.
func (c *consumer) giveBack(g *grants, o *consumerConfig, now time.Time, unused int) {
	if unused <= 0 {
		return
	}
	c.gateMu.Lock()
	defer c.gateMu.Unlock()
	c.gates(o, func(i int, gate Gate) {
		if i < len(g.each) {
			gate.Return(now, g.each[i], unused)
		}
	})
}

// claimed tells the breaker which message its probe became.
func (c *consumer) claimed(g *grants, ds []Delivery) {
	if len(g.each) > breakerPlace {
		c.breaker.claimed(g.each[breakerPlace], ds)
	}
}

// startAs is how deliveries were claimed.
type startAs uint8

const (
	startNormal startAs = iota
	startAlone          // a suspect, alone in the process
	startSwept          // to be ended because they expired; one that has not is given back
)

// start puts deliveries into slots.
func (c *consumer) start(f *feed, o *consumerConfig, ds []Delivery, as startAs, now time.Time) {
	batch := make([]attempt, len(ds))
	c.mu.Lock()
	for i := range ds {
		a, d := &batch[i], &ds[i]
		p := c.policy(o, d)
		*a = attempt{c: c, f: f, d: d, policy: p, base: c.e.base, alone: as == startAlone, began: now, extendedAt: now}
		c.busy++
		c.inflight[d.Lane]++
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
		s, ok := unfit(a.d, a.policy, func(err error, r Reason) *Failure { return c.failure(a, err, r, now) })
		if as == startSwept && !ok {
			s.Outcome, ok = OutcomeRelease, true
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

var defaultPolicy = Policy{}.WithDefaults()

// policy chooses the policy of a message: the default one where the choice is nil or
// panics.
func (c *consumer) policy(o *consumerConfig, d *Delivery) (p *Policy) {
	defer func() {
		if p == nil {
			p = &defaultPolicy
		} else if p.Name == "" || p.MaxAttempts == 0 || p.MaxCrashes == 0 || p.Timeout == 0 || p.Backoff == nil {
			whole := p.WithDefaults()
			p = &whole
		}
		if o.MaxAge > 0 && (p.MaxAge == 0 || p.MaxAge > o.MaxAge) {
			younger := *p
			younger.MaxAge = o.MaxAge
			p = &younger
		}
	}()
	defer c.e.recovered("policy")
	return o.Policy(&d.Message)
}

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
	if c.alone == nil && !c.reserveAlone(o, now) {
		return
	}
	granted, again := c.e.solo.acquire(c, now)
	if granted {
		c.claimAlone(f, o, now)
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
	if c.reserve(g, o, now, LaneFresh, 1) > 0 {
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
		c.giveBack(c.alone, c.options(), now, 1)
		c.alone = nil
	}
}

func (c *consumer) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy - c.stuck + c.settling
}

// claimAlone claims one suspect and starts it. The process is ours, and the gates
// allowed it.
func (c *consumer) claimAlone(f *feed, o *consumerConfig, now time.Time) {
	g := c.alone
	c.alone = nil
	kinds, except := c.kinds(o, g)
	ds, err := f.src.Claim(c.e.run, ClaimRequest{Queue: c.queue, Alone: true, Kinds: kinds, ExceptKinds: except,
		ExceptIDs: g.exceptIDs, Max: 1, Lease: o.Lease, Instance: c.e.opts.Instance})
	now = time.Now()
	c.claimed(g, ds)
	c.giveBack(g, o, now, 1-len(ds))
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

// sweepExpired ends what expired while a gate refuses to let anything be claimed.
func (c *consumer) sweepExpired(f *feed, o *consumerConfig, now time.Time) {
	c.mu.Lock()
	due := !now.Before(c.expireAt)
	if due {
		c.expireAt = now.Add(expireEvery)
	}
	c.timerLocked(c.expireAt)
	c.mu.Unlock()
	batch := atMost(expireBatch, f.caps)
	if !due || !c.e.solo.enter(c, batch) {
		return
	}
	ds, err := f.src.Claim(c.e.run, ClaimRequest{Queue: c.queue, Expired: true, MaxAge: o.MaxAge, Max: batch,
		Lease: o.Lease, Instance: c.e.opts.Instance})
	if err != nil {
		ds = nil
	}
	c.e.solo.leave(batch - len(ds))
	if len(ds) > 0 {
		c.start(f, o, ds, startSwept, now)
	}
}

// pause holds back a target, kind or the whole queue.
func (c *consumer) pause(target, reason string, d time.Duration) {
	c.pauses.pause(time.Now(), target, reason, d)
	c.e.observe(&Observation{Occasion: OnPaused, Queue: c.queue, Text: reason})
	c.e.log.LogAttrs(context.Background(), slog.LevelWarn, "paused", slog.String("queue", c.queue), slog.String("target", target),
		slog.String("reason", reason), slog.Duration("for", d))
	if d > 0 {
		c.mu.Lock()
		c.timerLocked(time.Now().Add(d))
		c.mu.Unlock()
	}
}
