package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
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

// A canary that begins while a batch is being changed is of that batch, also where a plan keeps no results any more.
func TestPlanGetsACanaryInTheMiddleOfABatch(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 20, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 20})
		m.edit(id, func(p map[string]any) { p["done"] = 100_000 })
		five := 5
		m.store.beforeUpdate(sync.OnceFunc(func() {
			if err := m.plans.Change(context.Background(), id, plan.Pace{Canary: &five}); err != nil {
				t.Error(err)
			}
		}))
		defer m.run(m.plans)()
		deadtest.Pass(3 * time.Second)
		if p := m.plan(id); p.Problem != "" || p.Canary == nil || p.Canary.Size != 5 || p.Canary.Waiting != 5 {
			t.Fatalf("%q, %+v", p.Problem, p.Canary)
		}
		m.settleAll("q", redrive.OutcomeDone, "")
		m.ends(id, time.Minute, plan.Done, 100_020, 0)
	})
}

// edit changes the record of a plan.
func (m *morgue) edit(id string, change func(p map[string]any)) {
	m.T.Helper()
	r, err := m.store.GetRecord(context.Background(), "plans", id)
	if err != nil {
		m.T.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(r.Value, &p); err != nil {
		m.T.Fatal(err)
	}
	change(p)
	value, err := json.Marshal(p)
	if err != nil {
		m.T.Fatal(err)
	}
	if _, err := m.store.Apply(context.Background(), driver.Batch{Records: []driver.RecordWrite{{Space: "plans", Key: id, Value: value, Version: r.Version}}}); err != nil {
		m.T.Fatal(err)
	}
}

// Somebody changes the canary while the runner is about to write what it made of the one before.
func TestPlanCanaryIsChangedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name   string
		canary int
		check  func(m *morgue, p *plan.Plan)
	}{
		{"a larger one", 7, func(m *morgue, p *plan.Plan) {
			if p.State != plan.Running || p.Canary.Stage != plan.StageCanary || p.Canary.Size != 7 || p.Done != 7 {
				m.T.Errorf("%s after %d: %+v", p.State, p.Done, p.Canary)
			}
		}},
		{"none", 0, func(m *morgue, p *plan.Plan) {
			if p.State != plan.Done || p.Canary != nil || p.Done != 300 {
				m.T.Errorf("%s after %d: %+v", p.State, p.Done, p.Canary)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 300, nil)
				id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 5, Rate: 1000})
				deadtest.Pass(5 * time.Second)
				m.settleAll("q", redrive.OutcomeDone, "")
				m.store.beforePlan(func() {
					if err := m.plans.Change(context.Background(), id, plan.Pace{Canary: &c.canary}); err != nil {
						t.Error(err)
					}
				})
				deadtest.Pass(10 * time.Second)
				p := m.plan(id)
				c.check(m, &p)
			})
		})
	}
	t.Run("none, and the cause is back", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			m.Kill("q", 300, nil)
			none := 0
			id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 1, Rate: 5})
			deadtest.Pass(3 * time.Second)
			m.settleAll("q", redrive.OutcomeDone, "")
			deadtest.Pass(4 * time.Second)
			if n := m.settleAll("q", redrive.OutcomeDead, cause); n == 0 {
				t.Fatal("nothing followed the canary")
			}
			m.store.beforePlan(func() {
				if err := m.plans.Change(context.Background(), id, plan.Pace{Canary: &none, Rate: 1000}); err != nil {
					t.Error(err)
				}
			})
			m.ends(id, time.Minute, plan.Done, 300, 0)
		})
	})
}
