package engine

import (
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// breakerPlace is the breaker's place among a consumer's own gates.
const breakerPlace = 1

// grants is what all gates together allow. It is given back to the gates that granted
// it, also if the queue has got others since.
type grants struct {
	of                            *consumerConfig
	each                          []driver.Grant
	kinds, exceptKinds, exceptIDs []string
	until                         time.Time
	reason                        string
	others                        bool // it leaves out kinds that may be claimed
}

// probing reports a grant for single messages, or for some kinds, whose absence says nothing
// about what else is due.
func (g *grants) probing() bool { return len(g.kinds) > 0 || len(g.exceptIDs) > 0 || g.others }

// gateSet is the gates of a queue: the engine's own, and those of its options.
type gateSet struct {
	queue   string
	pauses  *pauseGate
	breaker *breakerGate
	own     []driver.Gate // pauses, breaker
	gateMu  sync.Mutex
	newest  *consumerConfig // of a consumer
	spells  []spell         // of the queue's gates
}

func (s *gateSet) init(queue string, o BreakerOptions, target string) {
	s.queue, s.pauses, s.breaker = queue, newPauseGate(target), newBreakerGate(o, target)
	s.own = []driver.Gate{s.pauses, breakerPlace: s.breaker}
}

// renew is called when the handler was replaced: what the engine's own gates know of the one
// before says nothing about it.
func (s *gateSet) renew(o *consumerConfig) {
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	s.newest, s.spells = o, nil
	s.pauses.renew(o.Target)
	s.breaker.renew(o.Breaker, o.Target)
}

// gates calls f for the engine's own gates and the queue's.
func (s *gateSet) gates(o *consumerConfig, f func(i int, g driver.Gate)) {
	for i, g := range s.own {
		f(i, g)
	}
	for i, g := range o.Gates {
		f(len(s.own)+i, g)
	}
}

// reserve asks the gates one after the other, each for what the one before granted.
func (s *gateSet) reserve(g *grants, o *consumerConfig, now time.Time, lane redrive.Lane, n int) int {
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	g.of = o
	whole := false
	defer func() {
		if !whole { // a gate panicked
			s.giveBackAbove(g, now, 0)
		}
	}()
	s.gates(o, func(i int, gate driver.Gate) {
		if n == 0 {
			return
		}
		ask := driver.Ask{Queue: s.queue, Lane: lane, Max: n}
		one := gate.Reserve(now, ask)
		g.each = append(g.each, one)
		s.noteGate(i, now, ask, &one)
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
	whole = true
	s.giveBackAbove(g, now, n)
	return n
}

// giveBackAbove returns to each gate what a later one did not allow.
func (s *gateSet) giveBackAbove(g *grants, now time.Time, n int) {
	s.gates(g.of, func(i int, gate driver.Gate) {
		if i < len(g.each) && g.each[i].N > n {
			gate.Return(now, g.each[i], g.each[i].N-n)
			g.each[i].N = n
		}
	})
}

// giveBack returns to all gates what was not used.
func (s *gateSet) giveBack(g *grants, now time.Time, unused int) {
	if unused <= 0 {
		return
	}
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	for i := range s.spells { // there was less than they let through
		s.spells[i].allow(now)
	}
	s.gates(g.of, func(i int, gate driver.Gate) {
		if i < len(g.each) {
			gate.Return(now, g.each[i], unused)
		}
	})
}

// claimed tells the breaker which message its probe became.
func (s *gateSet) claimed(g *grants, ds []redrive.Delivery) {
	if len(g.each) > breakerPlace {
		s.breaker.claimed(g.each[breakerPlace], ds)
	}
}

// claimGranted claims what was granted, and gives back what was not used of it, also if
// the source fails or panics.
func (s *gateSet) claimGranted(g *grants, n int, claim func() ([]redrive.Delivery, error)) (ds []redrive.Delivery, err error) {
	defer func() {
		s.claimed(g, ds)
		s.giveBack(g, time.Now(), n-len(ds))
	}()
	return claim()
}

// reportGates tells all gates how a delivery ended.
func (s *gateSet) reportGates(o *consumerConfig, d *redrive.Delivery, settled *driver.Settlement, now time.Time) {
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	s.reportFrom(0, o, d, settled, now)
}

// reportFrom tells the gates from i on. If one panics the others learn it all the same.
func (s *gateSet) reportFrom(i int, o *consumerConfig, d *redrive.Delivery, settled *driver.Settlement, now time.Time) {
	var g driver.Gate
	learned := settled
	switch n := i - len(s.own); {
	case n < 0:
		if g = s.own[i]; s.newest != nil && o != s.newest {
			learned = nil
		}
	case n < len(o.Gates):
		g = o.Gates[n]
	default:
		return
	}
	defer s.reportFrom(i+1, o, d, settled, now)
	g.Report(now, d, learned)
}

// sweptGates tells the gates that want to know what became of a message that no gate had
// granted.
func (s *gateSet) sweptGates(o *consumerConfig, d *redrive.Delivery, settled *driver.Settlement, now time.Time) {
	s.gateMu.Lock()
	defer s.gateMu.Unlock()
	for _, g := range o.Gates {
		if g, ok := g.(driver.SweepGate); ok {
			g.Swept(now, d, settled)
		}
	}
}
