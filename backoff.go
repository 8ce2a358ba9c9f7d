package redrive

import (
	"math"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Backoff is the delay before the next attempt after a number of failures (from 1).
// It is a pure function: random returns a number in [0,1). The delay is never
// negative.
type Backoff interface {
	Delay(failures int, random func() float64) time.Duration
}

// DefaultBackoff is exponential with full jitter: base 1 s, multiplier 2, max 1 h.
var DefaultBackoff Backoff = Exponential{}

// Defaults of Exponential and Decorrelated.
const (
	defaultBackoffBase       = time.Second
	defaultBackoffMultiplier = 2.0
	defaultBackoffMax        = time.Hour
)

// Jitter is how randomness enters an [Exponential] backoff.
type Jitter uint8

// The jitters. With d = Base * Multiplier^(failures-1):
const (
	// JitterFull is anything up to the delay: random(0, min(Max, d)). Of all it
	// spreads a herd best.
	JitterFull Jitter = iota
	// JitterNone is the delay itself: min(Max, d).
	JitterNone
	// JitterEqual is half of the delay and a random part of the other half.
	JitterEqual
	// JitterPlusMinus is min(Max, d) plus or minus up to Spread. It may exceed Max by
	// Spread, and so stays spread at the cap.
	JitterPlusMinus
	// JitterPlusMinusInside is min(Max, Base * Multiplier^failures plus or minus up
	// to Spread). It is kept because people know it, but it bunches: at the cap half
	// of all messages, and soon all of them, wait exactly Max and come back together.
	JitterPlusMinusInside
)

var jitterNames = []string{"full", "none", "equal", "plus-minus", "plus-minus-inside"}

// String returns the jitter in lower case.
func (j Jitter) String() string { return text.Enum(jitterNames, j) }

// MarshalText implements encoding.TextMarshaler.
func (j Jitter) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (j *Jitter) UnmarshalText(b []byte) (err error) {
	*j, err = text.ParseEnum[Jitter](ErrInvalid, jitterNames, string(b), "jitter")
	return err
}

// Exponential grows by a factor with each failure up to a maximum. Fields that are
// zero or less mean their defaults.
type Exponential struct {
	Base       time.Duration // after the first failure; 1 s
	Multiplier float64       // from failure to failure; 2
	Max        time.Duration // the cap; 1 h
	Jitter     Jitter        // full
	Spread     time.Duration // of the plus-minus jitters; Base
}

// Delay implements Backoff.
func (e Exponential) Delay(failures int, random func() float64) time.Duration {
	base := float64(text.Positive(e.Base, defaultBackoffBase))
	limit := float64(text.Positive(e.Max, defaultBackoffMax))
	spread := float64(e.Spread)
	if e.Spread <= 0 {
		spread = base
	}
	multiplier := e.Multiplier
	if !(multiplier > 0) { // NaN too
		multiplier = defaultBackoffMultiplier
	}
	n := float64(max(failures, 1))
	capped := min(limit, base*math.Pow(multiplier, n-1))
	switch e.Jitter {
	case JitterNone:
		return text.Duration(capped)
	case JitterEqual:
		return text.Duration(capped/2 + capped/2*random())
	case JitterPlusMinus:
		return text.Duration(capped + spread*(2*random()-1))
	case JitterPlusMinusInside:
		return text.Duration(min(limit, base*math.Pow(multiplier, n)+spread*(2*random()-1)))
	default:
		return text.Duration(capped * random())
	}
}

// Decorrelated takes each delay from between Base and three times the delay before,
// at most Max. Fields that are zero or less mean their defaults.
type Decorrelated struct {
	Base time.Duration // 1 s
	Max  time.Duration // 1 h
}

// decorrelatedSteps bounds the chain: long before this it has forgotten its start.
const decorrelatedSteps = 100

// Delay implements Backoff. As nothing is kept between attempts, it plays the chain
// from the first failure each time.
func (d Decorrelated) Delay(failures int, random func() float64) time.Duration {
	base := float64(text.Positive(d.Base, defaultBackoffBase))
	limit := float64(text.Positive(d.Max, defaultBackoffMax))
	delay := base
	for range min(max(failures, 1), decorrelatedSteps) {
		delay = min(limit, base+(3*delay-base)*random())
	}
	return text.Duration(delay)
}

// Fixed is the same delay each time.
type Fixed struct{ Interval time.Duration }

// Delay implements Backoff.
func (f Fixed) Delay(int, func() float64) time.Duration { return max(f.Interval, 0) }

// Schedule is a list of delays, one a failure; the last repeats. An empty one is
// [DefaultBackoff].
type Schedule []time.Duration

// Delay implements Backoff.
func (s Schedule) Delay(failures int, random func() float64) time.Duration {
	if len(s) == 0 {
		return DefaultBackoff.Delay(failures, random)
	}
	return max(s[min(max(failures, 1), len(s))-1], 0)
}
