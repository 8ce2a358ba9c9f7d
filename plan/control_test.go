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

func (m *morgue) change(id string, pace plan.Pace) {
	m.T.Helper()
	if err := m.plans.Change(context.Background(), id, pace); err != nil {
		m.T.Fatal(err)
	}
	deadtest.Pass(time.Second)
}

// Another rate takes effect at once, although the next step was hours away.
func TestPlanRateIsChanged(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 200, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Rate: 1.0 / 3600})
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.Done != 1 {
			t.Fatalf("at one an hour it did %d", p.Done)
		}
		m.change(id, plan.Pace{Rate: 100})
		if p := m.plan(id); p.Request.Rate != 100 || p.Request.Canary != 0 {
			t.Errorf("%+v", p.Request)
		}
		m.ends(id, 5*time.Second, plan.Done, 200, 0)
		if err := m.plans.Change(context.Background(), id, plan.Pace{Rate: 5}); !errors.Is(err, redrive.ErrState) {
			t.Errorf("a plan that has ended: %v", err)
		}
	})
}

// A canary is made larger while it waits, begun anew while the rest follows, and taken away.
func TestPlanCanaryIsChanged(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 300, nil)
		three, seven, none := 3, 7, 0
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 3, Rate: 10})
		deadtest.Pass(5 * time.Second)
		m.change(id, plan.Pace{Canary: &seven})
		deadtest.Pass(time.Second)
		if p := m.plan(id); p.Done != 7 || p.Canary.Size != 7 || p.Canary.Waiting != 7 {
			t.Fatalf("a larger canary: %d done, %+v", p.Done, p.Canary)
		}
		m.settleAll("q", redrive.OutcomeDone, "")
		deadtest.Pass(5 * time.Second)
		m.change(id, plan.Pace{Canary: &three})
		deadtest.Pass(time.Minute)
		p := m.plan(id)
		if p.Canary.Stage != plan.StageCanary || p.Canary.Size != 3 || p.Done <= 10 || p.Done > 60 {
			t.Fatalf("another canary: %d done, %+v", p.Done, p.Canary)
		}
		m.change(id, plan.Pace{Canary: &none, Rate: 1000})
		if p := m.plan(id); p.Canary != nil {
			t.Errorf("%+v", p.Canary)
		}
		m.ends(id, 5*time.Second, plan.Done, 300, 0)
	})
}

// A plan that was made without a canary gets one, which knows the causes.
func TestPlanGetsACanary(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 100, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 1})
		deadtest.Pass(3 * time.Second)
		m.settleAll("q", redrive.OutcomeDone, "")
		five := 5
		m.change(id, plan.Pace{Canary: &five, Rate: 100})
		deadtest.Pass(3 * time.Second)
		if n := m.settleAll("q", redrive.OutcomeDead, cause); n < 5 || n > 6 {
			t.Errorf("the canary is %d", n)
		}
		deadtest.Pass(3 * time.Second)
		if p := m.plan(id); p.State != plan.Stopped || p.Canary.Dead < 5 {
			t.Fatalf("%s: %s, %+v", p.State, p.Problem, p.Canary)
		}
		two := 2
		if err := m.plans.Resume(context.Background(), id, plan.Pace{Canary: &two, Rate: 50}); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(5 * time.Second)
		if p := m.plan(id); p.Canary.Size != 2 || p.Request.Rate != 50 || p.State != plan.Running {
			t.Errorf("resumed with another canary: %+v", p.Canary)
		}
		m.settleAll("q", redrive.OutcomeDone, "")
		m.ends(id, time.Minute, plan.Done, 100, 0)
	})
}

func TestPacesThatAreNone(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		many, two := 201, 2
		m.Kill("q", 2, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive})
		for _, pace := range []plan.Pace{{Rate: -1}, {Rate: 1e9}, {Canary: &many}} {
			if err := m.plans.Change(context.Background(), id, pace); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%+v: %v", pace, err)
			}
		}
		if err := m.plans.Change(context.Background(), m.create(plan.Request{Action: driver.ActDrop}), plan.Pace{Canary: &two}); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("a canary of what is dropped: %v", err)
		}
	})
}
