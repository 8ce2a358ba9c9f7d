package bench

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/internal/sim"
)

// TestControls prints the figures of each strategy in each case. It asserts nothing
// but that no request vanishes: the figures are for people to compare. Unless figures are
// asked for, one length of each outage is enough. (-v does not ask: test runners set it.)
func TestControls(t *testing.T) {
	strategies := []struct {
		name string
		make func(c *sim.Case, seed uint64) sim.Strategy
	}{
		{"none, unpaced", func(*sim.Case, uint64) sim.Strategy { return &control{admit: none()} }},
		{"none, paced", func(c *sim.Case, _ uint64) sim.Strategy { return &control{admit: none(), rate: pacedRate * c.Rate} }},
		{"gobreaker, unpaced", func(*sim.Case, uint64) sim.Strategy { return &control{admit: gobreakerAdmit()} }},
		{"gobreaker, paced", func(c *sim.Case, _ uint64) sim.Strategy {
			return &control{admit: gobreakerAdmit(), rate: pacedRate * c.Rate}
		}},
		{"failsafe-go, unpaced", func(*sim.Case, uint64) sim.Strategy { return &control{admit: failsafeAdmit()} }},
		{"failsafe-go, paced", func(c *sim.Case, _ uint64) sim.Strategy {
			return &control{admit: failsafeAdmit(), rate: pacedRate * c.Rate}
		}},
		{"**guard**", func(_ *sim.Case, seed uint64) sim.Strategy { return sim.NewGuard(sim.CaseConfig, seed) }},
	}
	runs := 1
	if os.Getenv("REDRIVE_PROOF_ROUNDS") != "" {
		runs = sim.CaseRuns
	}
	t.Log("| case | strategy | detected after s | calls to the sick | sync % | undelivered | back after s | drained after s | peak x | p99 ms | rejected % |")
	for _, c := range sim.Cases() {
		for _, s := range strategies {
			synctest.Test(t, func(t *testing.T) {
				var mean sim.Figures
				sick := 0
				for i := range runs {
					sc, to := c.Scenario(i)
					sc.Tick = func(d time.Duration) { <-time.After(d) }
					res, err := sim.Play(sc, s.make(&c, sc.Seed))
					if err != nil {
						t.Fatal(err)
					}
					f := res.Figures(&sc, sim.CaseStart, to)
					sick += res.Until(0, sim.CaseStart, to)
					mean.Detect = worst(mean.Detect, f.Detect)
					mean.Recovery = worst(mean.Recovery, f.Recovery)
					mean.Sync += f.Sync
					mean.Undelivered += f.Undelivered
					mean.Drain += f.Drain
					mean.Peak += f.Peak
					mean.P99 += f.P99
					mean.Rejected += f.Rejected
				}
				n := float64(runs)
				t.Logf("| %s | %s | %.1f | %d | %.1f | %d | %.1f | %.0f | %.2f | %.0f | %.2f |", c.Name, s.name, mean.Detect, sick/runs, 100*mean.Sync/n,
					mean.Undelivered/runs, mean.Recovery, mean.Drain/n, mean.Peak/n, 1000*mean.P99/n, 100*mean.Rejected/n)
			})
		}
	}
}

// worst is the larger of two figures of which -1 means never.
func worst(a, b float64) float64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

func noop(context.Context, int) (int, error) { return 0, nil }

func BenchmarkGuard(b *testing.B) {
	for name, timeout := range map[string]time.Duration{"plain": 0, "timeout": time.Second} {
		b.Run(name, func(b *testing.B) {
			g, err := guard.New(guard.Config[int, int]{Name: "bench", Health: guard.Health{SlowAfter: time.Second},
				Providers: []guard.Provider[int, int]{{Name: "a", Call: noop, Timeout: timeout}}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = g.Do(b.Context(), 1)
			}
		})
	}
}

func BenchmarkWithTimeout(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		_, _ = noop(ctx, 1)
		cancel()
	}
}

func BenchmarkGobreaker(b *testing.B) {
	cb := newGobreaker()
	b.ReportAllocs()
	for b.Loop() {
		done, err := cb.Allow()
		if err != nil {
			b.Fatal(err)
		}
		_, err = noop(b.Context(), 1)
		done(err)
	}
}

func BenchmarkFailsafePermit(b *testing.B) {
	cb := newFailsafe()
	b.ReportAllocs()
	for b.Loop() {
		if !cb.TryAcquirePermit() {
			b.Fatal("refused")
		}
		_, err := noop(b.Context(), 1)
		cb.RecordError(err)
	}
}

func BenchmarkFailsafeExecutor(b *testing.B) {
	cb := newFailsafe()
	e := failsafe.With(cb)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = e.Get(func() (any, error) { return noop(b.Context(), 1) })
	}
}
