package engine

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Claims run ahead of free slots, so that handlers do not wait for the round trip of a claim: by what
// ends during two claims (Little's law: how many wait is the rate times how long each waits). Short
// handlers at a distant server have the most ahead, handlers of 100 ms none.
const (
	aheadClaims = 2
	aheadMost   = 1024                   // in flight, with the slots
	aheadSlots  = 16                     // and so often the slots
	aheadFlows  = 50 * time.Millisecond  // since an attempt ended: else nothing is claimed ahead
	aheadStalls = 250 * time.Millisecond // since one ended: what is ahead is given back
	aheadLease  = 40                     // a claim that takes a longer part of the lease has nothing ahead
)

// pace is how fast attempts end and claims are answered.
type pace struct {
	ended   int           // attempts since the last claim was answered
	endedAt time.Time     // the newest of them
	since   time.Time     // when that was answered
	rate    float64       // attempts a second
	claim   time.Duration // a claim takes
	ahead   int           // may be claimed beyond the slots
}

// answered notes a claim, and sets how far the next ones run ahead.
func (p *pace) answered(o *consumerConfig, began, now time.Time) {
	took := now.Sub(began)
	p.claim = (3*p.claim + took) / 4
	if passed := now.Sub(p.since).Seconds(); !p.since.IsZero() && passed > 0 {
		p.rate = (p.rate + float64(p.ended)/passed) / 2
	}
	p.ended, p.since = 0, now
	most := min(aheadSlots*o.Concurrency, aheadMost) - o.Concurrency
	if p.ahead = min(int(aheadClaims*p.rate*p.claim.Seconds()), most); p.ahead < 0 || p.claim > o.Lease/aheadLease {
		p.ahead = 0
	}
}

// roomLocked returns how many messages may be claimed. While others are in line it is none, or worth a claim.
func (c *consumer) roomLocked(o *consumerConfig, now time.Time) int {
	ahead := c.pace.ahead
	if ahead > 0 && now.Sub(c.pace.endedAt) > aheadFlows {
		ahead = 0
	}
	free := o.Concurrency + ahead - c.busy
	if c.inLine > 0 && free < ahead/2 {
		return 0
	}
	return max(free, 0)
}

// closed has what was claimed ahead given back instead of begun: a pause, or a breaker that opened, holds for it, too.
func (c *consumer) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closings++
}

// beyondLocked takes what is in line beyond the free slots: of a consumer that stops, or whose handlers
// do not end.
func (c *consumer) beyondLocked(o *consumerConfig) (first *attempt) {
	keep := min(max(o.Concurrency-c.running, 0), c.inLine)
	if keep == c.inLine {
		return nil
	}
	at := &c.head
	c.tail = nil
	for range keep {
		c.tail, at = *at, &(*at).behind
	}
	first, *at, c.inLine = *at, nil, keep
	return first
}

// stalledLocked takes the line of attempts that wait behind handlers that do not end.
func (c *consumer) stalledLocked(o *consumerConfig, now time.Time) (first *attempt) {
	if now.Sub(c.pace.endedAt) < aheadStalls {
		return nil
	}
	return c.beyondLocked(o)
}

// giveBackLine releases attempts of the line, which no handler has seen.
func (c *consumer) giveBackLine(first *attempt) {
	for a := first; a != nil; {
		next := a.behind
		a.behind = nil
		c.unbegun(a)
		a = next
	}
}

// unbegun ends an attempt that no handler has seen. If a shutdown released it, this changes nothing but its slot.
func (c *consumer) unbegun(a *attempt) {
	c.mu.Lock()
	running := a.state == attemptRunning
	c.mu.Unlock()
	if running {
		a.settle = driver.Settlement{Receipt: a.d.Receipt, Outcome: redrive.OutcomeRelease}
		c.conclude(a, nil, false)
	}
	c.free(a)
}
