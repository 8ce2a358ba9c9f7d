package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// outage puts n messages into a queue that have failed and wait an hour for their retry.
func (m *morgue) outage(queue string, n int, signature string) {
	m.T.Helper()
	ctx := context.Background()
	for range n {
		if err := driver.FirstError(m.store.Publish(ctx, []redrive.Message{{Queue: queue, Body: []byte("x")}})); err != nil {
			m.T.Fatal(err)
		}
	}
	ds, err := m.store.Claim(ctx, driver.ClaimRequest{Queue: queue, Max: n, Lease: time.Minute, Instance: "i"})
	if err != nil || len(ds) != n {
		m.T.Fatal(len(ds), err)
	}
	for _, d := range ds {
		s := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRetry, After: time.Hour, Failure: &redrive.Failure{Message: "down", Signature: signature}}
		if err := driver.FirstError(m.store.Settle(ctx, []driver.Settlement{s})); err != nil {
			m.T.Fatal(err)
		}
	}
}

// tried claims what is due in the lane of retries, and settles all, or all but the first few as failed.
func (m *morgue) tried(queue string, failing int, signature string) (n int) {
	m.T.Helper()
	ds, err := m.store.Claim(context.Background(), driver.ClaimRequest{Queue: queue, Lane: redrive.LaneRetry, Max: 1000, Lease: time.Minute, Instance: "i"})
	if err != nil {
		m.T.Fatal(err)
	}
	for i, d := range ds {
		s := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
		if i < failing {
			s = driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRetry, After: time.Hour, Failure: &redrive.Failure{Message: "down", Signature: signature}}
		}
		if err := driver.FirstError(m.store.Settle(context.Background(), []driver.Settlement{s})); err != nil {
			m.T.Fatal(err)
		}
	}
	return len(ds)
}

// After an outage what waits is tried at once, a canary first, and each message once.
func TestPlanRetriesWhatWaits(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.outage("q", 200, cause)
		m.outage("q", 30, "another")
		m.outage("other", 10, cause)
		if err := driver.FirstError(m.store.Publish(context.Background(), []redrive.Message{{Queue: "q", Delay: time.Hour, Body: []byte("for later")}})); err != nil {
			t.Fatal(err)
		}
		id := m.create(plan.Request{Action: driver.ActDueNow, Query: redrive.Query{Queue: "q", Signature: cause}, Canary: 10, Rate: 100})
		if p := m.plan(id); p.Total != 200 || p.TotalMore || len(p.Causes) != 1 {
			t.Errorf("%+v", p)
		}
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.Done != 10 || p.Canary.Waiting != 10 {
			t.Fatalf("before any was tried: %d done, %+v, %s", p.Done, p.Canary, p.Problem)
		}
		if n := m.tried("q", 3, cause); n != 10 {
			t.Fatalf("the canary is %d", n)
		}
		deadtest.Pass(3 * time.Second)
		if p := m.plan(id); p.Canary.Stage == plan.StageCanary || p.Canary.Delivered != 7 {
			t.Fatalf("seven were delivered: %+v, %s", p.Canary, p.Problem)
		}
		m.ends(id, time.Minute, plan.Done, 200, 0)
		if n := m.tried("q", 0, ""); n != 190 {
			t.Errorf("%d were due; what failed again, waits for another cause or was delayed is not", n)
		}
		p := m.plan(id)
		if g, err := m.plans.Progress(context.Background(), &p); err != nil || g.Delivered != 197 || g.Waiting != 3 {
			t.Errorf("%+v, %v", g, err)
		}
		all := m.create(plan.Request{Action: driver.ActDueNow, Query: redrive.Query{Queue: "q"}, Rate: 1000})
		if p := m.plan(all); p.Total != 33 || len(p.Causes) != 2 {
			t.Errorf("%+v", p)
		}
		m.ends(all, time.Minute, plan.Done, 33, 0)
		if n := m.tried("q", 0, ""); n != 33 {
			t.Errorf("%d were due of a whole queue", n)
		}
	})
}

// The canary stops the plan when half of it fails again, and does not take the failure before for that.
func TestPlanRetryStops(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.outage("q", 100, cause)
		id := m.create(plan.Request{Action: driver.ActDueNow, Query: redrive.Query{Queue: "q"}, Canary: 4, Rate: 100})
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.State != plan.Running {
			t.Fatalf("before any was tried: %s", p.Problem)
		}
		m.tried("q", 2, cause)
		deadtest.Pass(3 * time.Second)
		if p := m.plan(id); p.State != plan.Stopped || p.Done != 4 || !strings.Contains(p.Problem, "2 of the canary's 4 failed again of the same cause") {
			t.Errorf("%s after %d: %s", p.State, p.Done, p.Problem)
		}
	})
}

func TestPlanRetriesNames(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.outage("q", 3, cause)
		m.Kill("q", 1, nil)
		page, err := m.store.Find(context.Background(), redrive.Query{Queue: "q", State: redrive.StateWaiting})
		if err != nil {
			t.Fatal(err)
		}
		refs := []redrive.Ref{page.Entries[0].Ref(), {Queue: "q", ID: "m00001"}}
		m.ends(m.create(plan.Request{Action: driver.ActDueNow, Refs: refs}), time.Minute, plan.Done, 1, 1)
		if n := m.tried("q", 0, ""); n != 1 {
			t.Errorf("%d were due", n)
		}
		for _, r := range []plan.Request{
			{Action: driver.ActDueNow, Query: redrive.Query{State: redrive.StateDead}}, {Action: driver.ActDueNow, Query: redrive.Query{Reason: redrive.ReasonExhausted}},
			{Action: driver.ActDueNow, NewID: true}, {Action: driver.ActRedrive, Query: redrive.Query{State: redrive.StateWaiting}},
		} {
			if _, err := m.plans.DryRun(context.Background(), r); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}
