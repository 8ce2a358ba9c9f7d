package engine

import (
	"fmt"
	"time"

	"github.com/redrive/redrive/driver"
)

// What holds a queue, beside the word of a gate ([driver.Grant]).
const (
	HoldGate  = "gate"  // a gate that says no word
	HoldSlots = "slots" // all slots are taken
)

// Hold is what keeps messages of a queue that are due from being claimed, or lets only some
// through: a gate of [QueueOptions], or that all slots are taken.
type Hold struct {
	What   string    // a word for programs
	Reason string    // for people
	Since  time.Time // since when, without 5 s in which it held nothing back
	Until  time.Time // when it lets something through; zero: that is not known
}

// holdGap is how long something may let all through and still be held to go on, as a rate does
// between two tokens.
const holdGap = 5 * time.Second

// spell is the time in which something holds a queue.
type spell struct {
	hold  Hold
	on    bool
	ended time.Time // when it last let all through
}

// refuse notes that something is held back.
func (s *spell) refuse(now time.Time, what, reason string, until time.Time) {
	if s.hold.Since.IsZero() || !s.on && now.Sub(s.ended) > holdGap {
		s.hold.Since = now
	}
	s.on, s.hold.What, s.hold.Reason, s.hold.Until = true, what, reason, until
}

// allow notes that all was let through.
func (s *spell) allow(now time.Time) {
	if s.on {
		s.on, s.ended = false, now
	}
}

// add appends the hold if it goes on.
func (s *spell) add(all []Hold, now time.Time) []Hold {
	if s.hold.Since.IsZero() || !s.on && now.Sub(s.ended) > holdGap {
		return all
	}
	return append(all, s.hold)
}

// noteGate notes what a gate of the queue's options granted.
func (s *gateSet) noteGate(i int, now time.Time, a driver.Ask, g *driver.Grant) {
	if i -= len(s.own); i < 0 { // whose own status is exact
		return
	}
	for len(s.spells) <= i {
		s.spells = append(s.spells, spell{})
	}
	if g.N >= a.Max {
		s.spells[i].allow(now)
		return
	}
	what := g.What
	if what == "" {
		what = HoldGate
	}
	s.spells[i].refuse(now, what, g.Reason, g.Until)
}

// gateHolds returns what the gates of the queue's options hold back.
func (s *gateSet) gateHolds(now time.Time) (all []Hold) {
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	for i := range s.spells {
		all = s.spells[i].add(all, now)
	}
	return all
}

// noteSlotsLocked notes whether all slots are taken.
func (c *consumer) noteSlotsLocked(o *consumerConfig, now time.Time) {
	if c.busy < o.Concurrency {
		c.full.allow(now)
		return
	}
	c.full.refuse(now, HoldSlots, "", time.Time{})
}

// slotsHoldLocked returns that all slots are taken, and by which kind most of them.
func (c *consumer) slotsHoldLocked(all []Hold, now time.Time) []Hold {
	before := len(all)
	if all = c.full.add(all, now); len(all) == before {
		return all
	}
	most := new(kindUse)
	for _, u := range c.uses {
		if u.busy > most.busy || u.busy == most.busy && u.kind < most.kind {
			most = u
		}
	}
	h := &all[before]
	h.Reason = fmt.Sprintf("%d of %d slots are taken", min(c.busy, c.options().Concurrency), c.options().Concurrency)
	if most.kind != "" {
		h.Reason += fmt.Sprintf(", %d by kind %q", most.busy, most.kind)
	}
	if c.stuck > 0 {
		h.Reason += fmt.Sprintf(", %d by handlers that ignore their context", c.stuck)
	}
	return all
}
