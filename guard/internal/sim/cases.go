package sim

import (
	"math/rand/v2"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// Times of a case: live calls, what the queue gets after them, and when the outage
// begins.
const (
	CaseLive  = 180 * time.Second
	CaseAfter = 300 * time.Second
	CaseStart = 30 * time.Second
)

// CaseRuns is how many lengths of the outage a case is played with, so that no
// strategy profits from the phase.
const CaseRuns = 4

// CaseConfig is what the figures are measured with: the defaults, and a threshold for
// slow calls, which is off by default.
var CaseConfig = machine.Config{Health: machine.Health{SlowAfter: 500 * time.Millisecond}}

// NewGuard returns a machine as a strategy, with its randomness from a seed.
func NewGuard(c machine.Config, seed uint64) *Guard {
	rng := rand.New(rand.NewPCG(seed, 99))
	return &Guard{M: machine.New(c, rng.Float64)}
}

// Case is one way in which a provider gets sick.
type Case struct {
	Name   string
	Rate   float64       // live calls a second
	Length time.Duration // of the shortest outage
	Mode   Mode
	Share  float64 // Phase.Rate
	Then   Mode    // after the outage
}

// Cases returns the seven ways, the last of them in two models, and low rates.
func Cases() []Case {
	const half, whole = 30 * time.Second, 60 * time.Second
	return []Case{
		{Name: "A fast errors", Rate: 200, Length: half, Mode: Errors},
		{Name: "B hang", Rate: 200, Length: half, Mode: Hang},
		{Name: "C 20x slower", Rate: 200, Length: half, Mode: Slow},
		{Name: "D quota 50%", Rate: 200, Length: whole, Mode: Quota, Share: 100},
		{Name: "E reset", Rate: 200, Length: half, Mode: Reset},
		{Name: "F 30% errors", Rate: 200, Length: half, Mode: Flaky, Share: 0.3},
		{Name: "G cold restart", Rate: 200, Length: half, Mode: Errors, Then: ColdBoot},
		{Name: "H cold, sheds load", Rate: 200, Length: half, Mode: Errors, Then: ColdShed},
		{Name: "A at 20/s", Rate: 20, Length: half, Mode: Errors},
		{Name: "B at 20/s", Rate: 20, Length: half, Mode: Hang},
		{Name: "A at 2/s", Rate: 2, Length: half, Mode: Errors},
		{Name: "B at 2/s", Rate: 2, Length: half, Mode: Hang},
		{Name: "E at 2/s", Rate: 2, Length: half, Mode: Reset},
	}
}

// Scenario returns the i-th run of the case and the end of its outage.
func (c *Case) Scenario(i int) (Scenario, time.Duration) {
	to := CaseStart + c.Length + time.Duration(i)*1250*time.Millisecond
	script := []Phase{{From: CaseStart, To: to, Mode: c.Mode, Rate: c.Share}}
	if c.Then != OK {
		script = append(script, Phase{From: to, To: 100 * time.Hour, Mode: c.Then})
	}
	return Scenario{Seed: uint64(i) + 1, Rate: c.Rate, Live: CaseLive, After: CaseAfter, Providers: [][]Phase{script}}, to //nolint:gosec // not negative
}
