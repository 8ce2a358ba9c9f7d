// Package adaptive bounds the calls in flight to a provider by what their durations
// tell, with the adaptive limiter of failsafe-go. It is the only package that imports
// it. It contains a provider that gets slow in another way than the guard's rules: it
// admits no more calls than come back.
package adaptive

import (
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/redrive/redrive/guard"
)

// Limits bound what the limiter may choose.
type Limits struct {
	Min     uint // calls in flight; defaults to 1
	Max     uint // defaults to 200
	Initial uint // defaults to 20
}

// New returns a limiter for [guard.Provider]. A call then costs about 200 ns and one
// allocation more.
func New(l Limits) guard.Limiter {
	if l.Min == 0 {
		l.Min = 1
	}
	if l.Max == 0 {
		l.Max = 200
	}
	if l.Initial == 0 {
		l.Initial = 20
	}
	l.Max = max(l.Max, l.Min)
	l.Initial = min(max(l.Initial, l.Min), l.Max)
	return limiter{adaptivelimiter.NewBuilder[any]().WithLimits(l.Min, l.Max, l.Initial).Build()}
}

type limiter struct {
	l adaptivelimiter.AdaptiveLimiter[any]
}

// TryAcquire implements guard.Limiter.
func (l limiter) TryAcquire() (guard.LimiterPermit, bool) { return l.l.TryAcquirePermit() }
