package plan_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// A plan that was proposed touches nothing until another releases it, and then what was there when it was made.
func TestPlanIsProposed(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		ctx := context.Background()
		m.Kill("q", 20, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 2, Propose: true, Actor: "ana"})
		m.Kill("q", 5, nil)
		deadtest.Pass(time.Hour)
		if dead, _ := m.Left("q"); dead != 25 || m.plan(id).State != plan.Proposed {
			t.Fatalf("%d of 25 are dead, the plan is %s", dead, m.plan(id).State)
		}
		for what, err := range map[string]error{"resume": m.plans.Resume(ctx, id, plan.Pace{}), "pause": m.plans.Pause(ctx, id)} {
			if !errors.Is(err, redrive.ErrState) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := m.plans.Release(ctx, id, "ana"); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("by who proposed it: %v", err)
		}
		if err := m.plans.Release(ctx, id, "ben"); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(3 * time.Second)
		m.settleAll("q", redrive.OutcomeDone, "")
		if p := m.ends(id, time.Minute, plan.Done, 20, 0); p.ReleasedBy != "ben" || p.ReleasedAt.Sub(p.CreatedAt) < time.Hour || p.Request.Actor != "ana" {
			t.Errorf("%+v", p)
		}
		if err := m.plans.Release(ctx, id, "ben"); !errors.Is(err, redrive.ErrState) {
			t.Errorf("once more: %v", err)
		}
		withdrawn := m.create(plan.Request{Action: driver.ActDrop, Propose: true, Actor: "ana"})
		if err := m.plans.Cancel(ctx, withdrawn); err != nil {
			t.Fatal(err)
		}
		m.ends(withdrawn, time.Second, plan.Cancelled, 0, 0)
	})
}
