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
	TrendFloor    time.Duration
	TrendCalls    int
	TrendSeconds  int
	TrendLast     bool
}

// Exit says how a provider that is down is taken back.
type Exit struct {
	After     time.Duration
	Hold      time.Duration
	MaxHold   time.Duration
	Canaries  int
	Start     float64
	Factor    float64
	MinRate   float64
	Step      time.Duration
	StepCalls int
	MaxBad    float64
}

// Pace says how fast the backlog is worked off, and how a rate cap moves.
type Pace struct {
	MaxShare float64
	Reserve  float64
	Start    float64
	MaxRate  float64
	Fixed    float64
	Decrease float64
}

// Config is what a Machine runs under. Fields that are zero get their default.
type Config struct {
	Health   Health
	Exit     Exit
	Pace     Pace
	MaxInUse int  // calls in flight; 0: no limit
	Shared   bool // canaries only under a lease, see Machine.Lend
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// WithDefaults returns the configuration with every zero field that has a default
// set.
func (c Config) WithDefaults() Config {
	h := &c.Health
	h.ErrorRate = or(h.ErrorRate, 0.5)
	h.MinCalls = or(h.MinCalls, 20)
	h.Window = or(h.Window, 10*time.Second)
	h.Consecutive = or(h.Consecutive, 8)
	h.NetworkErrors = or(h.NetworkErrors, 5)
	h.SlowRun = or(h.SlowRun, 10)
	h.TrendFloor = or(h.TrendFloor, 100*time.Millisecond)
	h.TrendCalls = or(h.TrendCalls, 20)
	h.TrendSeconds = or(h.TrendSeconds, 2)
	x := &c.Exit
	x.Hold = or(x.Hold, time.Second)
	x.MaxHold = max(or(x.MaxHold, 4*time.Second), x.Hold)
	x.Canaries = or(x.Canaries, 2)
	x.Start = or(x.Start, 0.05)
	x.Factor = or(x.Factor, 2)
	x.MinRate = or(x.MinRate, 2)
	x.Step = or(x.Step, 500*time.Millisecond)
	x.StepCalls = or(x.StepCalls, 5)
	x.MaxBad = or(x.MaxBad, 0.1)
	p := &c.Pace
	p.MaxShare = or(p.MaxShare, 0.6)
	p.Reserve = or(p.Reserve, 0.2)
	p.Start = or(p.Start, 1)
	p.MaxRate = or(p.MaxRate, 50)
	p.Decrease = or(p.Decrease, 0.75)
	return c
}
