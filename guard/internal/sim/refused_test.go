package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/guard/internal/sim"
)

// A provider that answered 429 to everything for 4 s is called as soon again as one that answered 500.
func TestRecoversFromRefusalsAsSoonAsFromErrors(t *testing.T) {
	for _, rate := range []float64{200, 60, 20} {
		synctest.Test(t, func(t *testing.T) {
			var mean [2]float64
			for i := range sim.CaseRuns {
				for k, mode := range []sim.Mode{sim.Errors, sim.Quota} {
					one := sim.Case{Rate: rate, Length: 4 * time.Second, Mode: mode}
					sc, to := one.Scenario(i)
					sc.Tick = pass
					res, err := sim.Play(sc, sim.NewGuard(sim.CaseConfig, sc.Seed))
					if err != nil {
						t.Fatal(err)
					}
					f := res.Figures(&sc, start, to)
					mean[k] += f.Recovery / sim.CaseRuns
					if f.Undelivered > 0 || f.Recovery < 0 {
						t.Errorf("%+v", f)
					}
				}
			}
			t.Logf("%g a second: well again in %.1f s after 500s, in %.1f s after 429s", rate, mean[0], mean[1])
			if mean[1] > 8 {
				t.Errorf("%g a second: well again in %.1f s", rate, mean[1])
			}
		})
	}
}
