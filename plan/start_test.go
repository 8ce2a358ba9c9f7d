package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// A start that is repeated under its id is the same plan, also after its end; another request is none.
func TestPlanStartedAgain(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 20, nil)
		ctx := context.Background()
		asked := plan.Request{ID: "mine", Reason: "INC-812: they need schema 2", Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 1000, Actor: "me"}
		first, err := m.plans.Create(ctx, asked)
		if err != nil || first.ID != "mine" || first.Request.Reason != asked.Reason {
			t.Fatal(first, err)
		}
		m.ends("mine", time.Minute, plan.Done, 20, 0)
		again := asked
		again.Actor = "a colleague"
		if there, err := m.plans.Create(ctx, again); !errors.Is(err, redrive.ErrDuplicate) || there.State != plan.Done || there.Request.Actor != "me" {
			t.Errorf("the same again: %+v, %v", there, err)
		}
		other := asked
		other.Canary = 3
		if _, err := m.plans.Create(ctx, other); !errors.Is(err, redrive.ErrConflict) {
			t.Errorf("another request: %v", err)
		}
		// By names, which a plan forgets at its end.
		named := plan.Request{ID: "named", Action: driver.ActRedrive, Refs: []redrive.Ref{{Queue: "q", ID: "m00001"}}}
		for _, want := range []error{nil, redrive.ErrDuplicate} {
			if _, err := m.plans.Create(ctx, named); !errors.Is(err, want) {
				t.Errorf("by names: %v, want %v", err, want)
			}
			m.ends("named", time.Minute, plan.Done, 0, 1)
		}
		named.Refs[0].ID = "m00002"
		if _, err := m.plans.Create(ctx, named); !errors.Is(err, redrive.ErrConflict) {
			t.Errorf("by other names: %v", err)
		}
		for _, r := range []plan.Request{{ID: "a/b"}, {Reason: strings.Repeat("x", 2<<10+1)}, {Reason: "\xff"}} {
			r.Action, r.All = driver.ActRedrive, true
			if _, err := m.plans.Create(ctx, r); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

// Of two starts under one id at the same time one makes the plan.
func TestPlanStartedAtOnce(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 3, nil)
		r := plan.Request{ID: "one", Action: driver.ActDrop, Query: redrive.Query{Queue: "q"}}
		m.store.beforePlan(func() {
			if _, err := m.process("faster").Create(context.Background(), r); err != nil {
				t.Error(err)
			}
		})
		if there, err := m.plans.Create(context.Background(), r); !errors.Is(err, redrive.ErrDuplicate) || there.ID != "one" {
			t.Errorf("the slower one: %+v, %v", there, err)
		}
		if list, err := m.plans.List(context.Background()); len(list) != 1 || err != nil {
			t.Errorf("%d plans, %v", len(list), err)
		}
	})
}

// The newest plan is the first of the list, whatever the ids.
func TestPlansInOrder(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		for _, id := range []string{"b", "c", "a"} {
			<-time.After(time.Second)
			if _, err := m.plans.Create(context.Background(), plan.Request{ID: id, Action: driver.ActDrop, All: true}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := m.plans.List(context.Background())
		if err != nil || len(list) != 3 || list[0].ID != "a" || list[1].ID != "c" || list[2].ID != "b" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
