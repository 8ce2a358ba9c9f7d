package redrive

import "time"

// breakerPlace is the breaker's place among a consumer's own gates.
const breakerPlace = 1

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
