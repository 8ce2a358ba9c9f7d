package plan_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// settleAll ends what waits in the redrive lane of a queue.
func (m *morgue) settleAll(queue string, outcome redrive.Outcome, signature string) (n int) {
	m.T.Helper()
	ds, err := m.store.Claim(context.Background(), driver.ClaimRequest{Queue: queue, Lane: redrive.LaneRedrive, Max: 1000, Lease: time.Minute, Instance: "i"})
	if err != nil {
		m.T.Fatal(err)
	}
	for _, d := range ds {
		s := driver.Settlement{Receipt: d.Receipt, Outcome: outcome}
		if outcome != redrive.OutcomeDone {
			s.Reason = redrive.ReasonExhausted
			if outcome == redrive.OutcomeRetry {
				s.After = time.Hour
			}
			s.Failure = &redrive.Failure{Message: "again", Signature: signature}
		}
		if err := driver.FirstError(m.store.Settle(context.Background(), []driver.Settlement{s})); err != nil {
			m.T.Fatal(err)
		}
	}
	return len(ds)
}

const cause = "0123456789abcdef" // of what kill makes

func TestPlanWithCanary(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 200, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Canary: 7, Rate: 100})
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.Done != 7 || p.State != plan.Running || p.Canary.Stage != plan.StageCanary || p.Canary.Waiting != 7 {
			t.Fatalf("a minute without deliveries: %+v, %+v", p, p.Canary)
		}
		began := time.Now()
		if n := m.settleAll("q", redrive.OutcomeDone, ""); n != 7 {
			t.Fatalf("the canary is %d", n)
		}
		deadtest.Pass(2 * time.Second)
		if p := m.plan(id); p.Canary.Stage != plan.StageRamp || p.Canary.Delivered != 7 || p.Done <= 7 || p.Done > 60 {
			t.Errorf("at the ramp: %+v, %+v", p, p.Canary)
		}
		p := m.ends(id, time.Minute, plan.Done, 200, 0)
		if took := p.EndedAt.Sub(began); took < 4*time.Second || took > 20*time.Second {
			t.Errorf("193 at 10/s to 100/s took %s", took)
		}
	})
}

func TestPlanStopsWhenItsCanaryFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome redrive.Outcome
		sign    string
		says    string
	}{
		{"it died of the same", redrive.OutcomeDead, cause, "5 of the canary's 5 died again of the same cause: again (signature " + cause + ")"},
		{"it died of something else", redrive.OutcomeDead, "fedcba", "died again of another cause: again (signature fedcba)"},
		{"it is retried", redrive.OutcomeRetry, cause, "5 of the canary's 5 failed again of the same cause and are retried"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 100, nil)
				id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 5, Rate: 1000})
				deadtest.Pass(time.Second)
				m.settleAll("q", c.outcome, c.sign)
				deadtest.Pass(5 * time.Second)
				p := m.plan(id)
				if p.State != plan.Stopped || p.Done != 5 || !strings.Contains(p.Problem, c.says) {
					t.Fatalf("%s after %d: %q", p.State, p.Done, p.Problem)
				}
				deadtest.Pass(time.Hour)
				if p := m.plan(id); p.Done != 5 {
					t.Errorf("it goes on by itself: %+v", p)
				}
				// The cause is mended: another canary, then the rest.
				if err := m.plans.Resume(context.Background(), id, plan.Pace{}); err != nil {
					t.Fatal(err)
				}
				deadtest.Pass(3 * time.Second)
				if p := m.plan(id); p.Done != 10 || p.State != plan.Running || p.Canary.Size != 5 || p.Problem != "" {
					t.Errorf("resumed: %+v, %+v", p, p.Canary)
				}
				m.settleAll("q", redrive.OutcomeDone, "")
				m.ends(id, time.Minute, plan.Done, 100, 0)
			})
		})
	}
}

func TestPlanGoesOnWhenTheCauseOfAFewIsBack(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 50, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Canary: 3, Rate: 10})
		deadtest.Pass(time.Second)
		d, err := m.store.Claim(context.Background(), driver.ClaimRequest{Queue: "q", Lane: redrive.LaneRedrive, Max: 1, Lease: time.Minute, Instance: "i"})
		if err != nil || len(d) != 1 {
			t.Fatal(d, err)
		}
		retry := driver.Settlement{Receipt: d[0].Receipt, Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Message: "again", Signature: cause}}
		if err := driver.FirstError(m.store.Settle(context.Background(), []driver.Settlement{retry})); err != nil {
			t.Fatal(err)
		}
		m.settleAll("q", redrive.OutcomeDone, "")
		deadtest.Pass(10 * time.Second)
		if p := m.plan(id); p.State != plan.Running || p.Done != 3 || p.Canary.Delivered != 2 || p.Canary.Waiting != 1 {
			t.Errorf("one of three is retried: %+v, %+v", p, p.Canary)
		}
	})
}

func TestPlanStopsWhenTheCauseReturns(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 500, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Canary: 2, Rate: 20})
		deadtest.Pass(time.Second)
		m.settleAll("q", redrive.OutcomeDone, "")
		deadtest.Pass(5 * time.Second)
		m.settleAll("q", redrive.OutcomeDead, "of another kind")
		deadtest.Pass(3 * time.Second)
		if p := m.plan(id); p.State != plan.Running {
			t.Fatalf("another cause: %+v", p)
		}
		n := m.settleAll("q", redrive.OutcomeDead, cause)
		deadtest.Pass(3 * time.Second)
		p := m.plan(id)
		if want := fmt.Sprintf("%d messages died again of the same cause: again (signature %s)", n, cause); p.State != plan.Stopped || p.Problem != want || n < 2 {
			t.Fatalf("%s: %q, want %q", p.State, p.Problem, want)
		}
		// Who resumes it takes what happened before as known.
		if err := m.plans.Resume(context.Background(), id, plan.Pace{}); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(time.Second)
		m.settleAll("q", redrive.OutcomeDone, "")
		m.ends(id, time.Minute, plan.Done, 500, 0)
	})
}

func TestPlanWithACanaryOfAll(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 3, nil)
		m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
		id := m.create(plan.Request{Action: driver.ActRedrive, Canary: 10})
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.State != plan.Running || !p.Taken || p.Done != 3 || p.Failed != 1 {
			t.Errorf("it ended before its canary: %+v", p)
		}
		m.settleAll("q", redrive.OutcomeDone, "")
		m.ends(id, time.Minute, plan.Done, 3, 1)
	})
}

func TestPlanResults(t *testing.T) {
	for _, c := range []struct {
		name string
		r    plan.Request
	}{
		{"in place", plan.Request{Action: driver.ActRedrive}},
		{"under new ids", plan.Request{Action: driver.ActRedrive, NewID: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 200, nil)
				m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
				c.r.Query.Queue, c.r.Rate = "q", 1000
				id := m.create(c.r)
				m.ends(id, time.Minute, plan.Done, 200, 1)
				m.settleSome(t, "q", 50, redrive.OutcomeDone)
				m.settleSome(t, "q", 20, redrive.OutcomeDead)
				counts := map[plan.Outcome]int{}
				pages := 0
				for after := ""; ; pages++ {
					results, next, err := m.plans.Results(context.Background(), id, after, 30)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range results {
						counts[r.Outcome]++
						if r.Outcome == plan.DiedAgain && (r.Entry == nil || r.Entry.History.Latest().Message != "again") || (r.New != redrive.Ref{}) != (c.r.NewID && r.Outcome != plan.Refused) {
							t.Errorf("%+v", r)
						}
					}
					if after = next; next == "" {
						break
					}
				}
				want := map[plan.Outcome]int{plan.Delivered: 50, plan.DiedAgain: 20, plan.Waiting: 130, plan.Refused: 1}
				if fmt.Sprint(counts) != fmt.Sprint(want) || pages != 6 {
					t.Errorf("%v in %d pages, want %v", counts, pages, want)
				}
				p := m.plan(id)
				g, err := m.plans.Progress(context.Background(), &p)
				if err != nil || g != (plan.Progress{Delivered: 50, DiedAgain: 20, NewCauses: 20, Waiting: 130, Complete: true}) {
					t.Errorf("%+v, %v", g, err)
				}
			})
		})
	}
}

// settleSome ends n messages of the redrive lane.
func (m *morgue) settleSome(t *testing.T, queue string, n int, outcome redrive.Outcome) {
	t.Helper()
	ds, err := m.store.Claim(context.Background(), driver.ClaimRequest{Queue: queue, Lane: redrive.LaneRedrive, Max: n, Lease: time.Hour, Instance: "i"})
	if err != nil || len(ds) != n {
		t.Fatal(len(ds), err)
	}
	for _, d := range ds {
		s := driver.Settlement{Receipt: d.Receipt, Outcome: outcome, Reason: redrive.ReasonExhausted, Failure: &redrive.Failure{Message: "again"}}
		if err := driver.FirstError(m.store.Settle(context.Background(), []driver.Settlement{s})); err != nil {
			t.Fatal(err)
		}
	}
}
