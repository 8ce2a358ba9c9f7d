package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// What another plan changed is counted, also when it is more than a filter looks at.
func TestTheTotalOfAnotherPlansMessages(t *testing.T) {
	store, err := sqlite.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	const n, others = redrive.Examined + 1500, 700
	var put []redrive.Entry
	for i := range n + others {
		e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: fmt.Sprint(i)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent}
		if i%30 != 0 || i/30 >= others {
			e.Plan = "repair"
		}
		put = append(put, e)
	}
	for part := range slices.Chunk(put, 1000) {
		if errs, err := store.Apply(t.Context(), driver.Batch{Put: part}); err != nil || driver.FirstError(errs) != nil {
			t.Fatal(err, errs)
		}
	}
	run, err := plan.New(store, plan.Options{}).DryRun(t.Context(), plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Plan: "repair"}})
	if err != nil || run.Total != n || run.More {
		t.Errorf("%d, more %t, %v; want %d", run.Total, run.More, err, n)
	}
}

// Why they are dead is counted of all, also when they have more causes than a page.
func TestTheReasonsOfManyCauses(t *testing.T) {
	store := memory.New()
	want := make(map[redrive.Reason]int64)
	for i := range 3 * redrive.MaxPage / 2 {
		f := &redrive.Failure{Signature: fmt.Sprintf("2-%016x", i), Message: "no"}
		var put []redrive.Entry
		for j := range 1 + i%3 {
			e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: fmt.Sprint(i, "-", j)}, State: redrive.StateDead, Reason: []redrive.Reason{redrive.ReasonPermanent, redrive.ReasonUncertain}[i%2]}
			e.History.Record(f, true)
			put = append(put, e)
			want[e.Reason]++
		}
		if errs, err := store.Apply(t.Context(), driver.Batch{Put: put}); err != nil || driver.FirstError(errs) != nil {
			t.Fatal(err, errs)
		}
	}
	run, err := plan.New(store, plan.Options{}).DryRun(t.Context(), plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "sms"}})
	if err != nil || !maps.Equal(run.ByReason, want) || run.RefusedMore {
		t.Errorf("%v, refused more %t, %v; want %v", run.ByReason, run.RefusedMore, err, want)
	}
	uncertain := want[redrive.ReasonUncertain]
	if n := run.Refused["uncertain"]; n != uncertain {
		t.Errorf("%v refused, want %d", run.Refused, uncertain)
	}
}
