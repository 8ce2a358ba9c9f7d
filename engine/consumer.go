package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Delays of a consumer that cannot go on at once.
const (
	claimRetry    = time.Second           // after a claim that failed, or found nothing where something was due
	claimSoon     = 20 * time.Millisecond // the first time that it found nothing
	expireEvery   = time.Second           // sweeps for what expired while a gate refuses
	expireBatch   = 256
	settlingBound = 1024 // decided but not yet durable, at most this or 8 times the slots
)

// consumerConfig is what Handle was given, with defaults; it is replaced as a whole.
type consumerConfig struct {
	QueueOptions
	handler  redrive.Handler
	registry driver.Registry // the handler, if it knows its kinds
	policies *policySet
}

// consumer works on one queue. It has no goroutine while nothing is to be done: an
// event, a timer or a freed slot wakes it, and one pump at a time claims what the
// slots and gates allow.
type consumer struct {
	gateSet
	e        *Engine
	config   atomic.Pointer[consumerConfig]
	scratch  []driver.Grant // of the pump
	stray    *stray         // of the pump: this step claims unknown kinds, too
	strayAt  time.Time      // of the pump: the next such step
	unknown  unhandled
	isolated *grants // of the pump: what the gates granted for a suspect that is not claimed yet

	mu             sync.Mutex
	feeds          []*feed
	turn           int // the feed that is asked first
	pumping        bool
	again          bool
	stopped        bool
	idle           *sync.Cond
	busy           int // claimed, until its handler has returned
	running        int // of those, in a handler: slots taken
	inLine         int // of those, that no worker has taken yet
	closings       int // how often a pause or a breaker began to hold
	pace           pace
	stuck          int
	settling       int
	inflight       [driver.Lanes]int
	uses           map[string]*kindUse
	lastUse        *kindUse
	lookedAt       time.Time // at the kinds
	slow           []string  // kinds that hold their slots long
	slowMost       int       // slots that those may take together
	askOthers      bool      // the next claim is for other kinds than those
	first          *attempt  // list of what is in flight or settling
	head           *attempt  // of the attempts that no worker has taken yet
	tail           *attempt
	spawning       bool // a worker was started and has not begun
	timer          *time.Timer
	timerAt        time.Time
	ticker         *time.Timer
	ticking        bool
	refused        string
	full           spell // all slots are taken
	expireAt       time.Time
	isolationTries int
	isolateAt      time.Time // no suspects before this
}

func newConsumer(e *Engine, queue string, cfg *consumerConfig) *consumer {
	c := &consumer{e: e, uses: make(map[string]*kindUse), slowMost: cfg.Concurrency}
	c.init(queue, cfg.Breaker, cfg.Target)
	c.idle = sync.NewCond(&c.mu)
	c.breaker.onChange = func(s BreakerStatus) {
		c.closed()
		e.observe(&Observation{Occasion: OnBreaker, Queue: queue, Text: s.State})
		e.log.LogAttrs(e.base, slog.LevelWarn, "breaker "+s.State, slog.String("queue", queue), slog.String("target", s.Key), slog.String("reason", s.Reason))
	}
	c.newest = cfg
	c.config.Store(cfg)
	return c
}

func (c *consumer) options() *consumerConfig { return c.config.Load() }

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
	c.isolateAt = time.Time{}
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
		if c.stopped && c.isolated != nil {
			c.mu.Unlock()
			c.waiveIsolated(time.Now())
			c.mu.Lock()
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
	c.stray = c.strayTurn(time.Now())
	for i := range feeds {
		f := feeds[(turn+i)%len(feeds)]
		c.refreshFeed(f)
		c.isolatedStep(f)
		c.claimLanes(f)
		c.refreshFeed(f)
	}
}

// pause holds back a target, kind or the whole queue. asked: the handler asked for it.
func (c *consumer) pause(target, reason string, d time.Duration, asked bool) {
	c.pauses.pause(time.Now(), target, reason, d, asked)
	c.closed()
	c.e.observe(&Observation{Occasion: OnPaused, Queue: c.queue, Text: reason})
	c.e.log.LogAttrs(context.Background(), slog.LevelWarn, "paused", slog.String("queue", c.queue), slog.String("target", target),
		slog.String("reason", reason), slog.Duration("for", d))
	if d > 0 {
		c.mu.Lock()
		c.timerLocked(time.Now().Add(d))
		c.mu.Unlock()
	}
}
