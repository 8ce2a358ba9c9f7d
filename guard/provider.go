package guard

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// provider is a provider with its machine. Nothing else is done under its lock.
type provider[Req, Resp any] struct {
	Provider[Req, Resp]
	index int
	tell  func([]machine.Transition) // passes changes of state on

	mu       sync.Mutex
	m        *machine.Machine
	share    float64       // of MaxRate that is this instance's
	joinAt   time.Duration // from then on it is, as the others know of us
	calls    [machine.Classes]int64
	overdue  int   // calls in flight whose callers have left
	version  int64 // of the record that was read or written last
	dirty    bool  // the state is not yet in the record
	restored bool  // the change that is reported next came from the record

	refused atomic.Int64 // live calls that were not let through
}

// newMachine returns the machine of a provider that was not called yet.
func newMachine(c machine.Config) *machine.Machine {
	return machine.New(c, rand.Float64)
}

// setShare gives this instance its part of the rate, from a time on.
func (p *provider[Req, Resp]) setShare(now time.Duration, share float64, from time.Duration) {
	if p.MaxRate == 0 {
		return
	}
	p.share, p.joinAt = share, from
	p.m.SetLimit(now, p.MaxRate*share, float64(p.Burst)*share, from)
}

// unlock unlocks and then tells what has changed.
func (p *provider[Req, Resp]) unlock() {
	if !p.m.Changed() {
		p.mu.Unlock()
		return
	}
	changes := p.m.Changes()
	p.dirty = p.dirty || !p.restored
	p.restored = false
	p.mu.Unlock()
	p.tell(changes)
}

// acquire asks for a permit for a live call.
func (p *provider[Req, Resp]) acquire(now time.Duration) (machine.Permit, bool) {
	p.mu.Lock()
	defer p.unlock()
	return p.m.Acquire(now, false)
}

// acquireSoon is acquire for a live call that waits for its turn under the rate, if that
// comes soon enough.
func (p *provider[Req, Resp]) acquireSoon(ctx context.Context, now func() time.Duration) (machine.Permit, bool) {
	p.mu.Lock()
	wait, ok := p.m.Book(now())
	p.unlock()
	if !ok {
		return machine.Permit{}, false
	}
	waited := waitFor(ctx, wait)
	p.mu.Lock()
	defer p.unlock()
	if !waited {
		p.m.Unbook()
		return machine.Permit{}, false
	}
	return p.m.AcquireBooked(now())
}

// waitFor waits, and reports false if ctx ends first or certainly would.
func waitFor(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(end) <= d {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// acquireBacklog asks for a permit for a call of the backlog, if the machine's having a
// reservation is as said. used reports that one was used up.
func (p *provider[Req, Resp]) acquireBacklog(now time.Duration, reserved bool) (permit machine.Permit, ok, used bool) {
	p.mu.Lock()
	defer p.unlock()
	if (p.m.Reserved() > 0) != reserved {
		return machine.Permit{}, false, false
	}
	permit, ok = p.m.Acquire(now, true)
	return permit, ok, reserved
}

// release gives a permit back.
func (p *provider[Req, Resp]) release(permit machine.Permit, now time.Duration, v Outcome) {
	p.mu.Lock()
	defer p.unlock()
	p.calls[v.Class]++
	p.m.Release(permit, now, machine.Outcome{Class: v.Class, RetryAfter: v.RetryAfter})
}

// leave learns from a call whose caller waits no longer. It stays in flight until end.
func (p *provider[Req, Resp]) leave(permit machine.Permit, now time.Duration, v Outcome) {
	p.mu.Lock()
	defer p.unlock()
	p.calls[v.Class]++
	p.overdue++
	p.m.Judge(permit, now, machine.Outcome{Class: v.Class, RetryAfter: v.RetryAfter})
}

// end gives the place of a call back whose caller has left.
func (p *provider[Req, Resp]) end() {
	p.mu.Lock()
	defer p.unlock()
	p.overdue--
	p.m.End()
}

func (p *provider[Req, Resp]) state() State {
	p.mu.Lock()
	defer p.unlock()
	return p.m.State()
}
