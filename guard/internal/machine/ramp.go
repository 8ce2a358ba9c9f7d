package machine

import (
	"fmt"
	"time"
)

// kneeStep is the factor of the share once it is near to where it failed before, and
// kneeNear how near that is.
const (
	kneeStep = 1.2
	kneeNear = 0.9
)

// ramp is the share of live calls that go through while a provider recovers.
type ramp struct {
	share  float64
	knee   float64 // the share at which it failed last; 1: it did not
	began  time.Duration
	calls  int
	bad    int
	credit float64
	floor  bucket
}

// admit lets the share through, but never less than minRate.
func (r *ramp) admit(m *Machine) bool {
	r.credit += r.share
	r.floor.fill(m.now, minRate, minRate)
	if r.credit >= 1 {
		r.credit--
		r.floor.tokens = max(r.floor.tokens-1, 0)
		return true
	}
	if r.floor.tokens < 1 {
		return false
	}
	r.floor.tokens--
	r.credit = max(r.credit-1, 0)
	return true
}

// count takes the result of a call of this step.
func (r *ramp) count(m *Machine, bad bool) {
	r.calls++
	if bad {
		r.bad++
	}
	r.step(m)
}

// step ends a step when it is time: the share grows or shrinks.
func (r *ramp) step(m *Machine) {
	if r.calls < rampCalls {
		return
	}
	if r.bad >= 2 && float64(r.bad) > rampBad*float64(r.calls) {
		r.narrow(m)
		return
	}
	if m.now-r.began < rampStep {
		return
	}
	next := r.share * rampFactor
	if near := r.knee * kneeNear; r.knee < 1 && next > near {
		next = max(r.share*kneeStep, near)
	}
	r.share, r.began, r.calls, r.bad = next, m.now, 0, 0
	if r.share >= 1 {
		m.restore("it bears all calls")
	}
}

func (r *ramp) narrow(m *Machine) {
	if r.share <= m.cfg.Start {
		m.fail(fmt.Sprintf("%d of %d calls failed while it recovered", r.bad, r.calls))
		return
	}
	r.knee = r.share
	r.share = max(r.share/rampFactor, m.cfg.Start)
	r.began, r.calls, r.bad = m.now, 0, 0
	m.drain.rate = max(m.drain.rate/2, drainStart)
	m.afresh()
}
