package redrive

import "time"

// Backoff is the delay before the next attempt after a number of failures (from 1).
// It is a pure function: random returns a number in [0,1). The delay is never
// negative.
type Backoff interface {
	Delay(failures int, random func() float64) time.Duration
}

// DefaultBackoff is exponential with full jitter: base 1 s, multiplier 2, max 1 h.
var DefaultBackoff Backoff
