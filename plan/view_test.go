package plan_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// narrow is a store in which searches find only what is of one kind.
type narrow struct {
	plan.Finder
	kind string
}

func (n *narrow) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	q.Kind = n.kind
	return n.Finder.Find(ctx, q)
}

func (n *narrow) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	q.Kind = n.kind
	return n.Finder.Causes(ctx, q)
}

func (n *narrow) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	q.Kind = n.kind
	return n.Finder.Count(ctx, q)
}

// A plan looks through the view that it was made with, and only a process that knows the
// view makes it or carries it out.
func TestPlanLooksThroughItsView(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 10, nil)
		m.Kill("q", 3, func(e *redrive.Entry) { e.Kind = "seen" })
		r := plan.Request{Action: driver.ActDrop, Query: redrive.Query{Queue: "q"}, View: "narrow"}
		if _, err := m.plans.Create(t.Context(), r); err == nil {
			t.Error("a process that does not know the view makes a plan")
		}
		if _, err := m.plans.DryRun(t.Context(), r); err == nil {
			t.Error("a process that does not know the view counts")
		}
		knows := plan.New(m.store, plan.Options{Instance: "second", Views: func(view string) plan.Finder {
			if view != "narrow" {
				return nil
			}
			return &narrow{m.store, "seen"}
		}})
		if run, err := knows.DryRun(t.Context(), r); err != nil || run.Total != 3 {
			t.Errorf("%+v, %v", run, err)
		}
		p, err := knows.Create(t.Context(), r)
		if err != nil || p.Total != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		stop := m.run(m.plans)
		deadtest.Pass(time.Minute)
		stop()
		if p := m.plan(p.ID); p.State != plan.Running || p.Done != 0 || !strings.Contains(p.Problem, "view") {
			t.Errorf("without the view: %+v", p)
		}
		defer m.run(knows)()
		m.ends(p.ID, time.Minute, plan.Done, 3, 0)
		if dead, _ := m.Left("q"); dead != 10 {
			t.Errorf("%d are dead", dead)
		}
	})
}
