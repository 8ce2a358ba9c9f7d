package plan_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// became checks what a plan says became of its messages, in all and of each.
func (m *morgue) became(id string, want plan.Progress) {
	m.T.Helper()
	p := m.plan(id)
	got, err := m.plans.Progress(context.Background(), &p)
	want.Complete, got.NewCauses = true, 0
	if err != nil || got != want {
		m.T.Errorf("%+v, %v, want %+v", got, err, want)
	}
	counts := make(map[plan.Outcome]int64)
	results, next, err := m.plans.Results(context.Background(), id, "", redrive.MaxPage)
	if err != nil || next != "" {
		m.T.Fatal(next, err)
	}
	for _, r := range results {
		counts[r.Outcome]++
	}
	each := plan.Progress{Delivered: counts[plan.Delivered], DiedAgain: counts[plan.DiedAgain], Waiting: counts[plan.Waiting], Taken: counts[plan.Taken], Complete: true}
	if each != want {
		m.T.Errorf("one by one: %v, want %+v", counts, want)
	}
}

// What others changed of what a plan redrove is not what the plan made deliver.
func TestPlanCountsWhatItMadeDeliver(t *testing.T) {
	drop := func(m *morgue) {
		m.ends(m.create(plan.Request{Action: driver.ActDrop, Query: redrive.Query{Queue: "q"}}), time.Minute, plan.Done, 4, 0)
	}
	retention := func(m *morgue, rule plan.RetentionRule) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		r := plan.NewRetention(m.store, plan.RetentionOptions{Archive: &m.archive, Rule: func(string) plan.RetentionRule { return rule }})
		go func() { done <- r.Run(ctx) }()
		deadtest.Pass(3 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			m.T.Error(err)
		}
	}
	for _, c := range []struct {
		name  string
		other func(m *morgue) // of the 4 that died again
		want  plan.Progress
	}{
		{"nobody", func(*morgue) {}, plan.Progress{Delivered: 6, DiedAgain: 4}},
		{"another plan, by a filter", func(m *morgue) {
			id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}})
			m.ends(id, time.Minute, plan.Done, 4, 0)
			m.became(id, plan.Progress{Waiting: 4})
			m.settleSome(m.T, "q", 3, redrive.OutcomeDone)
			m.settleSome(m.T, "q", 1, redrive.OutcomeDead)
			m.became(id, plan.Progress{Delivered: 3, DiedAgain: 1})
		}, plan.Progress{Delivered: 6, Taken: 4}},
		{"another plan, by names, to another queue", func(m *morgue) {
			refs := []redrive.Ref{}
			page, err := m.store.Find(context.Background(), redrive.Query{Queue: "q", State: redrive.StateDead})
			for i := range page.Entries {
				refs = append(refs, page.Entries[i].Ref())
			}
			if err != nil || len(refs) != 4 {
				m.T.Fatal(refs, err)
			}
			m.ends(m.create(plan.Request{Action: driver.ActRedrive, Refs: refs[:3], To: "other", NewID: true}), time.Minute, plan.Done, 3, 0)
			m.settleSome(m.T, "other", 3, redrive.OutcomeDone)
		}, plan.Progress{Delivered: 6, DiedAgain: 1, Taken: 3}},
		{"a repair, which is redriven", func(m *morgue) {
			repair := m.create(plan.Request{Action: driver.ActEdit, Query: redrive.Query{Queue: "q"}, Repair: []plan.Operation{{Op: "kind", Value: json.RawMessage(`"mended"`)}}})
			m.ends(repair, time.Minute, plan.Done, 4, 0)
			m.ends(m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Plan: repair}}), time.Minute, plan.Done, 4, 0)
			m.settleSome(m.T, "q", 4, redrive.OutcomeDone)
		}, plan.Progress{Delivered: 6, Taken: 4}},
		{"a drop", drop, plan.Progress{Delivered: 6, Taken: 4}},
		{"an archive", func(m *morgue) {
			m.ends(m.create(plan.Request{Action: driver.ActArchive, Query: redrive.Query{Queue: "q"}}), time.Minute, plan.Done, 4, 0)
		}, plan.Progress{Delivered: 6, Taken: 4}},
		{"retention that archives", func(m *morgue) { retention(m, plan.RetentionRule{Keep: 1}) }, plan.Progress{Delivered: 6, DiedAgain: 1, Taken: 3}},
		{"retention that discards", func(m *morgue) { retention(m, plan.RetentionRule{Keep: 1, Discard: true}) }, plan.Progress{Delivered: 6, DiedAgain: 1, Taken: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 10, nil)
				id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}})
				m.ends(id, time.Minute, plan.Done, 10, 0)
				m.settleSome(t, "q", 6, redrive.OutcomeDone)
				m.settleSome(t, "q", 4, redrive.OutcomeDead)
				m.became(id, plan.Progress{Delivered: 6, DiedAgain: 4})
				c.other(m)
				m.became(id, c.want)
			})
		})
	}
	t.Run("a drop of what still waits", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			m.Kill("q", 10, nil)
			id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}})
			m.ends(id, time.Minute, plan.Done, 10, 0)
			m.settleSome(t, "q", 7, redrive.OutcomeDone)
			m.ends(m.create(plan.Request{Action: driver.ActDrop, Query: redrive.Query{Queue: "q", State: redrive.StateWaiting}}), time.Minute, plan.Done, 3, 0)
			m.became(id, plan.Progress{Delivered: 7, Taken: 3})
		})
	})
}

// A runner dies after it redrove what another plan had redriven, and before it noted that.
func TestPlanNotesOnceWhatItTook(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 10, nil)
		defer m.run(m.plans)()
		first := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}})
		m.ends(first, time.Minute, plan.Done, 10, 0)
		m.FailAgain("q")
		second := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 1})
		m.store.passes.Store(1)
		m.store.writes.Store(2)
		m.ends(second, time.Minute, plan.Done, 10, 0)
		m.settleSome(t, "q", 10, redrive.OutcomeDone)
		m.became(first, plan.Progress{Taken: 10})
		m.became(second, plan.Progress{Delivered: 10})
	})
}

// A canary of which somebody dropped a message was not delivered.
func TestPlanStopsWhenItsCanaryIsTaken(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 20, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 5})
		deadtest.Pass(2 * time.Second)
		m.settleSome(t, "q", 4, redrive.OutcomeDone)
		m.ends(m.create(plan.Request{Action: driver.ActDrop, Query: redrive.Query{Queue: "q", State: redrive.StateWaiting}}), time.Minute, plan.Done, 1, 0)
		deadtest.Pass(5 * time.Second)
		if p := m.plan(id); p.State != plan.Stopped || !strings.Contains(p.Problem, "1 of the canary's 5 were changed by another") || p.Canary.Delivered != 4 {
			t.Errorf("%s: %q, %+v", p.State, p.Problem, p.Canary)
		}
	})
}
