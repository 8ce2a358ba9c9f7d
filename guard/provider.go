package guard

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/redrive/redrive/guard/internal/machine"
)

// provider is a provider with its machine. Nothing else is done under its lock.
type provider[Req, Resp any] struct {
	Provider[Req, Resp]
	index int
	tell  func([]machine.Transition) // passes changes of state on

	mu      sync.Mutex
	m       *machine.Machine
	limiter *rate.Limiter // nil: none
	share   float64       // of MaxRate that is this instance's
	joinAt  time.Time     // from then on it is, as the others know of us
	calls   [machine.Classes]int64
	refused int64 // live calls that were not let through
	version int64 // of the record that was read or written last
	dirty   bool  // the state is not yet in the record
	adopted bool  // the change that is told next came from the record
}

// newMachine returns the machine of a provider that was not called yet.
func newMachine(c machine.Config) *machine.Machine {
	return machine.New(c, rand.Float64)
}

// limitBurst is how many calls may come at once, by default.
func limitBurst(perSecond float64, burst int) int {
	if burst > 0 {
		return burst
	}
	return max(int(perSecond/50), 1)
}

// setShare gives this instance its part of the rate.
func (p *provider[Req, Resp]) setShare(share float64) {
	if p.limiter == nil || p.share == share {
		return
	}
	p.share = share
	p.limiter.SetLimit(rate.Limit(p.MaxRate * share))
	p.limiter.SetBurst(max(int(float64(limitBurst(p.MaxRate, p.Burst))*share), 1))
}

// unlock unlocks and then tells what has changed.
func (p *provider[Req, Resp]) unlock() {
	if !p.m.Changed() {
		p.mu.Unlock()
		return
	}
	changes := p.m.Changes()
	p.dirty = p.dirty || !p.adopted
	p.adopted = false
	p.mu.Unlock()
	p.tell(changes)
}

// acquire asks for a permit for a live or a background call.
func (p *provider[Req, Resp]) acquire(now time.Duration, background bool) (machine.Permit, bool) {
	p.mu.Lock()
	defer p.unlock()
	var at time.Time
	if p.limiter != nil {
		at = time.Now()
		if at.Before(p.joinAt) || p.limiter.TokensAt(at) < 1 {
			if !background {
				p.refused++
			}
			return machine.Permit{}, false
		}
	}
	permit, ok := p.m.Acquire(now, background)
	switch {
	case !ok && !background:
		p.refused++
	case ok && p.limiter != nil:
		p.limiter.AllowN(at, 1)
	}
	return permit, ok
}

// release gives a permit back.
func (p *provider[Req, Resp]) release(permit machine.Permit, now time.Duration, v Verdict) {
	p.mu.Lock()
	defer p.unlock()
	p.calls[v.Class]++
	p.m.Release(permit, now, machine.Verdict{Class: v.Class, RetryAfter: v.RetryAfter})
}

func (p *provider[Req, Resp]) state() State {
	p.mu.Lock()
	defer p.unlock()
	return p.m.State()
}
