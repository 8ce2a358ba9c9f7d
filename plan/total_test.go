package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redrive/redrive"
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
