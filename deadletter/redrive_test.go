package deadletter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/internal/deadtest"
)

func TestRedrive(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 450, nil) // more than one step
		m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
		page, err := m.Store.Find(context.Background(), redrive.Query{Queue: "q", Limit: redrive.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		refs := []redrive.Ref{{Queue: "q", ID: "nobody"}}
		for _, e := range page.Entries {
			refs = append(refs, e.Ref())
		}
		refs = append(refs, refs[1])
		results, err := deadletter.Redrive(context.Background(), m.Store, refs...)
		if err != nil || len(results) != len(refs) {
			t.Fatalf("%d results, %v", len(results), err)
		}
		uncertain := 0
		for i, r := range results {
			switch {
			case r.Ref != refs[i]:
				t.Fatalf("result %d is that of %s, want %s", i, r.Ref, refs[i])
			case i == 0:
				if !errors.Is(r.Err, redrive.ErrNotFound) {
					t.Errorf("of nobody: %v", r.Err)
				}
			case i == len(refs)-1:
				if !errors.Is(r.Err, redrive.ErrState) {
					t.Errorf("of one that waits again: %v", r.Err)
				}
			case errors.Is(r.Err, redrive.ErrUncertain):
				uncertain++
			case r.Err != nil:
				t.Errorf("%s: %v", r.Ref, r.Err)
			}
		}
		if dead, redrives := m.Left("q"); dead != 1 || redrives[1] != 450 || uncertain != 1 {
			t.Errorf("%d are dead, %d refused as uncertain; redriven: %v", dead, uncertain, redrives)
		}
	})
}

func TestRedriveReturnsTheStoresFault(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 1, nil)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if results, err := deadletter.Redrive(ctx, m.Store, redrive.Ref{Queue: "q", ID: "m00001"}); !errors.Is(err, context.Canceled) || len(results) != 0 {
			t.Errorf("%v, %v", results, err)
		}
		if results, err := deadletter.Redrive(ctx, m.Store); err != nil || len(results) != 0 {
			t.Errorf("of nothing: %v, %v", results, err)
		}
	})
}
