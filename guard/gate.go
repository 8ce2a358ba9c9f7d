package guard

import (
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// gate lets a consumer of the guard's queue claim only what a provider takes.
type gate[Req, Resp any] struct{ g *Guard[Req, Resp] }

// Gate returns the gate of the guard's queue: see [engine.QueueOptions]. It keeps the
// backlog's pace, and no attempt is burnt on a provider that is down.
func (g *Guard[Req, Resp]) Gate() driver.Gate { return gate[Req, Resp]{g} }

// QueueOptions returns the options of a consumer of the guard's queue. Its breaker is
// off, as the guard knows the provider better.
func (g *Guard[Req, Resp]) QueueOptions() engine.QueueOptions {
	o := engine.QueueOptions{Gates: []driver.Gate{g.Gate()}, Breaker: engine.BreakerOptions{Off: true}}
	if g.cfg.Source != nil {
		o.Sources = []driver.Source{g.cfg.Source}
	}
	return o
}

// Reserve implements driver.Gate.
func (k gate[Req, Resp]) Reserve(now time.Time, a driver.Ask) driver.Grant {
	k.g.claims.watch(a.Queue)
	at := now.Sub(k.g.origin)
	var grant driver.Grant
	var soonest time.Duration
	for _, p := range k.g.providers {
		n := a.Max - grant.N
		if n == 0 {
			break
		}
		granted, wait := p.reserve(at, n)
		grant.N += granted
		if granted < n {
			if soonest == 0 || wait < soonest {
				soonest = wait
			}
			if grant.Reason == "" {
				grant.What, grant.Reason = "guard", "the pace of provider "+p.Name
			}
		}
	}
	if grant.N < a.Max {
		grant.Until = now.Add(max(soonest, time.Millisecond))
	}
	return grant
}

// reserve asks one provider for the backlog.
func (p *provider[Req, Resp]) reserve(at time.Duration, n int) (int, time.Duration) {
	p.mu.Lock()
	defer p.unlock()
	return p.m.Reserve(at, n)
}

// Return implements driver.Gate.
func (k gate[Req, Resp]) Return(now time.Time, _ driver.Grant, unused int) {
	k.g.giveBack(now.Sub(k.g.origin), unused)
}

// Report implements driver.Gate. The machine knows from Handle how the call ended;
// a request may also end without it, and then gives back what was reserved for it.
func (k gate[Req, Resp]) Report(now time.Time, d *redrive.Delivery, s *driver.Settlement) {
	if !k.g.claims.end(d) {
		k.g.giveBack(now.Sub(k.g.origin), 1)
	}
	k.Swept(now, d, s)
}

// Swept implements driver.SweepGate.
func (k gate[Req, Resp]) Swept(_ time.Time, d *redrive.Delivery, s *driver.Settlement) {
	if s != nil && s.Outcome.Terminal() && d.Key != "" {
		k.g.keys.done(d.Key)
	}
}

// claims knows which deliveries of queues that ask the gate have reached Handle, where
// their reservation ended: one that is reported without it still has it.
type claims struct {
	mu     sync.Mutex
	queues map[string]struct{}
	begun  map[redrive.Receipt]struct{}
}

// watch says that the deliveries of a queue will be reported.
func (c *claims) watch(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues, c.begun = make(map[string]struct{}), make(map[redrive.Receipt]struct{})
	}
	c.queues[queue] = struct{}{}
}

func (c *claims) begin(d *redrive.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.queues[d.Queue]; ok {
		c.begun[d.Receipt] = struct{}{}
	}
}

// end reports whether the delivery had begun.
func (c *claims) end(d *redrive.Delivery) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.begun[d.Receipt]
	delete(c.begun, d.Receipt)
	return ok
}
