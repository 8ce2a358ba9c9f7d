package guard

import (
	"time"

	"github.com/redrive/redrive"
)

// gate lets a consumer of the guard's queue claim only what a provider takes.
type gate[Req, Resp any] struct{ g *Guard[Req, Resp] }

// Gate returns the gate of the guard's queue: see [redrive.QueueOptions]. It keeps the
// backlog's pace, and no attempt is burnt on a provider that is down.
func (g *Guard[Req, Resp]) Gate() redrive.Gate { return gate[Req, Resp]{g} }

// QueueOptions returns the options of a consumer of the guard's queue. Its breaker is
// off, as the guard knows the provider better.
func (g *Guard[Req, Resp]) QueueOptions() redrive.QueueOptions {
	o := redrive.QueueOptions{Gates: []redrive.Gate{g.Gate()}, Breaker: redrive.BreakerOptions{Off: true}}
	if g.cfg.Source != nil {
		o.Sources = []redrive.Source{g.cfg.Source}
	}
	return o
}

// Reserve implements redrive.Gate.
func (k gate[Req, Resp]) Reserve(now time.Time, a redrive.Ask) redrive.Grant {
	at := now.Sub(k.g.origin)
	var grant redrive.Grant
	var soonest time.Duration
	for _, p := range k.g.providers {
		n := a.Max - grant.N
		if n == 0 {
			break
		}
		granted, wait := p.reserve(at, now, n)
		grant.N += granted
		if granted < n {
			if soonest == 0 || wait < soonest {
				soonest = wait
			}
			if grant.Reason == "" {
				grant.Reason = "the pace of provider " + p.Name
			}
		}
	}
	if grant.N < a.Max {
		grant.Until = now.Add(max(soonest, time.Millisecond))
	}
	return grant
}

// reserve asks one provider for the backlog.
func (p *provider[Req, Resp]) reserve(at time.Duration, now time.Time, n int) (int, time.Duration) {
	p.mu.Lock()
	defer p.unlock()
	if p.limiter != nil {
		tokens := p.limiter.TokensAt(now)
		if now.Before(p.joinAt) || tokens < 1 {
			return 0, 20 * time.Millisecond
		}
		n = min(n, int(tokens))
	}
	return p.m.Reserve(at, n)
}

// Return implements redrive.Gate.
func (k gate[Req, Resp]) Return(now time.Time, _ redrive.Grant, unused int) {
	if unused == 0 {
		return
	}
	at := now.Sub(k.g.origin)
	for _, p := range k.g.providers {
		p.mu.Lock()
		unused -= p.m.Return(at, unused)
		p.unlock()
		if unused <= 0 {
			return
		}
	}
}

// Report implements redrive.Gate. The machine knows from Handle how the call ended;
// a request may also end without it.
func (k gate[Req, Resp]) Report(_ time.Time, d *redrive.Delivery, s *redrive.Settlement) {
	if s == nil || !s.Outcome.Terminal() {
		return
	}
	if d.Key != "" {
		k.g.keys.done(d.Key)
	}
	k.g.waiters.wake(d.ID)
}
