package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
	"github.com/redrive/redrive/guard/internal/sim"
)

const (
	after = sim.CaseAfter
	start = sim.CaseStart
)

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// rounds returns how often a long test is played: more in a proof.
func rounds(t *testing.T, short int) int {
	n, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS"))
	if err != nil {
		return short
	}
	t.Logf("%d rounds", n)
	return max(n, short)
}

// golden is what the mean of a scenario's runs must keep: what is better passes.
type golden struct {
	detect   float64 // seconds, at most; 0: not looked at
	calls    float64 // to the sick provider until detected, at most
	sync     float64 // share, at least
	recovery float64 // seconds, at most
	peak     float64 // at most
	rejected float64 // share, at most
}

var want = map[string]golden{
	"A fast errors":      {0.5, 30, 0.79, 8, 1.7, 0},
	"B hang":             {1, 150, 0.79, 8, 1.7, 0},
	"C 20x slower":       {1, 150, 0.79, 8, 1.7, 0},
	"D quota 50%":        {1.5, 300, 0.70, 18, 1.7, 0.05},
	"E reset":            {0.2, 15, 0.79, 8, 1.7, 0},
	"F 30% errors":       {0, 0, 0.90, 8, 1.7, 0},
	"G cold restart":     {0.5, 30, 0.75, 15, 1.7, 0},
	"H cold, sheds load": {0.5, 30, 0.75, 16, 1.7, 0},
	"A at 20/s":          {1, 30, 0.77, 8, 2.1, 0},
	"B at 20/s":          {2, 40, 0.77, 8, 2.1, 0},
	"A at 2/s":           {6, 30, 0.74, 20, 4, 0},
	"B at 2/s":           {8, 30, 0.74, 20, 4, 0},
	"E at 2/s":           {6, 30, 0.74, 20, 4, 0},
}

type measured struct {
	sim.Figures
	detect float64
	calls  int
	after  int
}

// play runs a case with each length and returns the means.
func play(t *testing.T, one *sim.Case) (mean measured) {
	t.Helper()
	const runs = sim.CaseRuns
	w := want[one.Name]
	for i := range runs {
		sc, to := one.Scenario(i)
		sc.Tick = pass
		g := sim.NewGuard(sim.CaseConfig, sc.Seed)
		res, err := sim.Play(sc, g)
		if err != nil {
			t.Fatal(err)
		}
		f := res.Figures(&sc, start, to)
		for _, c := range g.M.Changes() {
			if c.At < start && c.To != machine.Healthy {
				t.Errorf("%s: %s -> %s at %s before anything was wrong: %s", one.Name, c.From, c.To, c.At, c.Reason)
			}
			if c.At >= start && c.From == machine.Healthy {
				mean.detect += (c.At - start).Seconds() / runs
				mean.calls += res.Until(0, start, c.At)
				dead := res.Until(0, c.At, to)
				mean.after = max(mean.after, dead)
				if holds := 4 + int((to-c.At).Seconds()/(0.8*4)); w.calls > 0 && w.rejected == 0 && dead > holds {
					t.Errorf("%s: %d calls to a dead provider in %s, want at most one a hold: %d", one.Name, dead, to-c.At, holds)
				}
				break
			}
		}
		mean.Sync += f.Sync / runs
		mean.Recovery += f.Recovery / runs
		mean.Drain += f.Drain / runs
		mean.P99 += f.P99 / runs
		mean.Rejected += f.Rejected / runs
		mean.Peak += f.Peak / runs
		mean.Undelivered += f.Undelivered
		if f.Recovery < 0 {
			t.Errorf("%s, run %d: it never recovered", one.Name, i)
		}
	}
	mean.calls /= runs
	return mean
}

// TestScenarios plays the seven ways in which a provider gets sick, and low rates,
// and compares the figures with the golden table. With -v it prints them.
func TestScenarios(t *testing.T) {
	for _, one := range sim.Cases() {
		t.Run(one.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := play(t, &one)
				t.Logf("| %s | %.2f | %d | %d | %.1f | %d | %.1f | %.0f | %.2f | %.0f | %.2f |", one.Name, m.detect, m.calls, m.after, m.Sync*100,
					m.Undelivered, m.Recovery, m.Drain, m.Peak, m.P99*1000, m.Rejected*100)
				w := want[one.Name]
				if w.detect > 0 && (m.detect > w.detect || float64(m.calls) > w.calls) {
					t.Errorf("detected after %.2f s and %d calls, want %.2f s and %.0f", m.detect, m.calls, w.detect, w.calls)
				}
				if m.Undelivered > 0 || m.Sync < w.sync || m.Recovery > w.recovery || m.Peak > w.peak || m.Rejected > w.rejected {
					t.Errorf("got %+v, want %+v", m.Figures, w)
				}
			})
		})
	}
}

// TestTwoProviders lets the first of two die for 30 s; the second takes over.
func TestTwoProviders(t *testing.T) {
	for _, m := range []sim.Mode{sim.Errors, sim.Hang} {
		sc := sim.Scenario{Seed: 1, Rate: 200, Live: 90 * time.Second, After: after,
			Providers: [][]sim.Phase{{{From: start, To: 2 * start, Mode: m}}, {{To: time.Hour, Mode: sim.Quota, Rate: 250}}}}
		res, err := sim.Play(sc, sim.NewGuard(sim.CaseConfig, 1), sim.NewGuard(sim.CaseConfig, 2))
		if err != nil {
			t.Fatal(err)
		}
		f := res.Figures(&sc, start, 2*start)
		sick := res.Until(0, start, 2*start)
		perRequest := float64(res.Calls[0]+res.Calls[1]) / float64(res.Sent)
		t.Logf("mode %d: sync %.1f %%, undelivered %d, calls to the dead one %d, calls a request %.3f, p99 %.0f ms", m, f.Sync*100, res.Pending, sick, perRequest, f.P99*1000)
		if f.Sync < 0.97 || res.Pending > 0 || sick > 150 || perRequest > 1.03 {
			t.Errorf("mode %d: got %+v, %d calls to the dead provider", m, f, sick)
		}
	}
}

// TestStationary looks for false trips where nothing is wrong but the tail of the
// latency is heavy, and where 2 % of the calls fail by chance.
func TestStationary(t *testing.T) {
	hours := float64(rounds(t, 1)) / 12
	length := time.Duration(min(hours, 24) * float64(time.Hour))
	for _, rate := range []float64{2, 20, 200} {
		for name, phase := range map[string]sim.Phase{"heavy tail": {}, "2 % errors": {To: 100 * time.Hour, Mode: sim.Flaky, Rate: 0.02}} {
			sc := sim.Scenario{Seed: 7, Rate: rate, Live: length, After: time.Minute, Tail: 0.01, Providers: [][]sim.Phase{{phase}}}
			g := sim.NewGuard(sim.CaseConfig, 7)
			if _, err := sim.Play(sc, g); err != nil {
				t.Fatal(err)
			}
			for _, c := range g.M.Changes() {
				t.Errorf("%s at %g/s, seed %d: at %s %s -> %s: %s", name, rate, sc.Seed, c.At, c.From, c.To, c.Reason)
			}
		}
	}
}

// TestScripts plays scripts of random outages. Whatever happens, no request may
// vanish, the queue empties and the provider is healthy again in the end.
func TestScripts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("REDRIVE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("REDRIVE_SEED=%d", seed)
	outages := 0
	for i := range rounds(t, 300) {
		one := seed + uint64(i)
		rng := rand.New(rand.NewPCG(one, 5))
		var script []sim.Phase
		at := time.Duration(0)
		for at < 2*time.Minute {
			from := at + time.Duration(rng.IntN(20_000))*time.Millisecond
			to := from + time.Duration(rng.IntN(15_000))*time.Millisecond
			rate := rng.Float64()
			ph := sim.Phase{From: from, To: to, Mode: sim.Mode(1 + rng.IntN(6)), Rate: rate}
			if ph.Mode == sim.Quota {
				ph.Rate = 5 + 20*rate
			}
			script = append(script, ph)
			at = to
			outages++
		}
		sc := sim.Scenario{Seed: one, Rate: 2 + 30*rng.Float64(), Live: at + time.Minute, After: 15 * time.Minute, Providers: [][]sim.Phase{script}, Tail: 0.01}
		g := sim.NewGuard(sim.CaseConfig, one)
		res, err := sim.Play(sc, g)
		if err != nil {
			t.Fatal(err)
		}
		if s := g.M.Stats(sc.Live + sc.After); res.Pending > 0 || s.State != machine.Healthy || s.InUse != 0 {
			t.Fatalf("seed %d: %d of %d undelivered, %s (%s), %d in use; script %s", one, res.Pending, res.Sent, s.State, s.Reason, s.InUse, fmt.Sprint(script))
		}
	}
	t.Logf("%d outages", outages)
}
