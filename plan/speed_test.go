package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

func (m *morgue) eta(id string) time.Time {
	p := m.plan(id)
	return p.ETA()
}

// How long a plan takes is known from its start on, and measured once it runs.
func TestPlanETA(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 1000, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 50})
		began := m.plan(id).CreatedAt
		// 20 s, less what its first step has done when it is looked at.
		if took := m.eta(id).Sub(began); took < 19*time.Second || took > 20*time.Second {
			t.Errorf("1000 at 50/s will take %s", took)
		}
		deadtest.Pass(11 * time.Second)
		p := m.plan(id)
		if r := p.Measured.Rate; r < 49 || r > 52 {
			t.Errorf("at 50/s it was measured to do %v/s", r)
		}
		if took := p.ETA().Sub(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("half way, 1000 at 50/s will take %s", took)
		}
		if err := m.plans.Pause(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		if eta := m.eta(id); !eta.IsZero() {
			t.Errorf("a plan that is paused will end at %s", eta)
		}
		deadtest.Pass(time.Hour)
		if err := m.plans.Resume(context.Background(), id, plan.Pace{}); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(7 * time.Second)
		if p := m.plan(id); p.Measured.Rate < 49 {
			t.Errorf("an hour's pause counts: %v/s", p.Measured.Rate)
		}
		m.ends(id, time.Minute, plan.Done, 1000, 0)
	})
}

// A plan that waits for its canary, or cannot go on, says no time.
func TestPlanWithoutETA(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 100, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Canary: 5})
		deadtest.Pass(time.Minute)
		if eta := m.eta(id); !eta.IsZero() {
			t.Errorf("a canary that waits will end at %s", eta)
		}
	})
}

// What died again of a cause that the plan did not set out to redrive is new.
func TestPlanProgressTellsNewCauses(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 30, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 20})
		deadtest.Pass(time.Second)
		known := m.settleAll("q", redrive.OutcomeDead, cause)
		deadtest.Pass(time.Second / 2)
		others := m.settleAll("q", redrive.OutcomeDead, "another cause")
		m.ends(id, time.Minute, plan.Done, 30, 0)
		p := m.plan(id)
		got, err := m.plans.Progress(context.Background(), &p)
		if err != nil || got.DiedAgain != int64(known+others) || got.NewCauses != int64(others) || others == 0 || got.Waiting != int64(30-known-others) {
			t.Errorf("%+v, %v of %d and %d", got, err, known, others)
		}
	})
}
