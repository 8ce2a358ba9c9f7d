package bench

import (
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/redrive/redrive/guard/internal/machine"
	"github.com/redrive/redrive/guard/internal/sim"
)

// What the breakers are set to: half of at least 20 calls in 10 s, open for 5 s, 10
// probes; a call is slow, and a failure, after 500 ms.
const (
	window    = 10 * time.Second
	openFor   = 5 * time.Second
	probes    = 10
	minCalls  = 20
	slowAfter = 500 * time.Millisecond
)

// pacedRate is the drain of a paced queue, in units of the normal rate.
const pacedRate = 0.5

var errFailed = errors.New("failed")

// admit asks a breaker; done receives whether the call succeeded.
type admit func() (done func(ok bool), err error)

// control is a breaker as a strategy, with a queue that is paced or not.
type control struct {
	admit  admit
	rate   float64 // of the drain; 0: unpaced
	tokens float64
	at     time.Duration
}

// Begin implements sim.Strategy.
func (c *control) Begin(now time.Duration, _ bool) (func(time.Duration, machine.Outcome), bool) {
	done, err := c.admit()
	if err != nil {
		return nil, false
	}
	return func(end time.Duration, v machine.Outcome) {
		done(v.Class == machine.ClassSuccess && end-now <= slowAfter)
	}, true
}

// Reserve implements sim.Strategy.
func (c *control) Reserve(now time.Duration, n int) (int, time.Duration) {
	if c.rate == 0 {
		return n, 0
	}
	c.tokens = min(c.tokens+c.rate*(now-c.at).Seconds(), c.rate/10+1)
	c.at = now
	granted := min(n, int(c.tokens))
	c.tokens -= float64(granted)
	return granted, 10 * time.Millisecond
}

var _ sim.Strategy = (*control)(nil)

func none() admit {
	return func() (func(bool), error) { return func(bool) {}, nil }
}

func newGobreaker() *gobreaker.TwoStepCircuitBreaker[any] {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{MaxRequests: probes, Interval: window, BucketPeriod: time.Second, Timeout: openFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= minCalls && float64(c.TotalFailures) >= 0.5*float64(c.Requests)
		}})
}

func gobreakerAdmit() admit {
	cb := newGobreaker()
	return func() (func(bool), error) {
		done, err := cb.Allow()
		if err != nil {
			return nil, err
		}
		return func(ok bool) {
			if ok {
				done(nil)
			} else {
				done(errFailed)
			}
		}, nil
	}
}

func newFailsafe() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, minCalls, window).WithDelay(openFor).
		WithSuccessThreshold(probes).Build()
}

func failsafeAdmit() admit {
	cb := newFailsafe()
	return func() (func(bool), error) {
		if !cb.TryAcquirePermit() {
			return nil, errFailed
		}
		return func(ok bool) {
			if ok {
				cb.RecordSuccess()
			} else {
				cb.RecordFailure()
			}
		}, nil
	}
}
