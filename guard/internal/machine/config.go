package machine

import "time"

// Health says by which signs a provider is taken for sick. A negative number
// switches a rule off.
type Health struct {
	ErrorRate     float64
	MinCalls      int
	Window        time.Duration
	Consecutive   int
	NetworkErrors int
	SlowAfter     time.Duration
	SlowRun       int
	TrendFactor   float64
	TrendLast     bool
}

// Config is what a Machine runs under. Fields that are zero get their default.
type Config struct {
	Health   Health
	After    time.Duration // a provider that is down is taken back then; 0: by probes
	Start    float64       // share of the live calls that then goes through
	Fixed    float64       // calls of the backlog a second; 0: it adapts
	Preset   Preset
	MaxInUse int  // calls in flight; 0: no limit
	Shared   bool // canaries only under a lease, see Machine.Lend
}

// Preset is what only the kind of a provider decides.
type Preset struct {
	Hold     time.Duration // a provider that is down gets no calls for so long; doubled by each failed probe
	MaxHold  time.Duration // up to this
	Canaries int           // probes in a row that must succeed
	MaxShare float64       // the backlog's rate, in units of the usual live rate
}

// The rest is the same for all.
const (
	trendFloor = 100 * time.Millisecond // a mean below is no outage
	trendCalls = 20                     // answers that a second needs to be judged
	trendRun   = 2                      // seconds in a row

	rampFactor = 2 // of the share, with each step
	rampStep   = 500 * time.Millisecond
	rampCalls  = 5   // a step has at least
	rampBad    = 0.1 // of them, more failures make the share shrink
	minRate    = 2   // live calls a second that always go through

	drainStart = 1    // calls of the backlog a second, at first
	drainMost  = 50   // where no live call was ever seen
	reserved   = 0.2  // the backlog's part of a rate cap
	decrease   = 0.75 // of a rate cap, with each refusal
)

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// withDefaults returns the configuration with every zero field that has a default
// set.
func (c Config) withDefaults() Config {
	h := &c.Health
	h.ErrorRate = or(h.ErrorRate, 0.5)
	h.MinCalls = or(h.MinCalls, 20)
	h.Window = or(h.Window, 10*time.Second)
	h.Consecutive = or(h.Consecutive, 8)
	h.NetworkErrors = or(h.NetworkErrors, 5)
	h.SlowRun = or(h.SlowRun, 10)
	c.Start = or(c.Start, 0.05)
	x := &c.Preset
	x.Hold = or(x.Hold, time.Second)
	x.MaxHold = max(or(x.MaxHold, 4*time.Second), x.Hold)
	x.Canaries = or(x.Canaries, 2)
	x.MaxShare = or(x.MaxShare, 0.6)
	return c
}
