package plan

import (
	"context"
	"fmt"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
)

// Beyond the results that a plan keeps, what it repaired is known by its id and its rule.
func TestRestoreBeyondTheResults(t *testing.T) {
	deadtest.Run(t, func(s *deadtest.Store) {
		ctx := context.Background()
		s.Kill("q", 50, func(e *redrive.Entry) { e.Body = []byte(`{"a":1}`) })
		p := New(s.Store, Options{})
		now, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		of := newPlan("repair", &Request{Action: driver.ActEdit, Query: redrive.Query{Queue: "q"}, Repair: []Operation{{Op: "set", Path: "$.a", Value: []byte("2")}}}, now)
		of.State, of.Done = Done, maxPlanResults
		if err := p.save(ctx, &of); err != nil {
			t.Fatal(err)
		}
		for i, body := range []string{`{"a":2}`, `{"a":2}`, `{"a":3}`} {
			edit := driver.Change{Action: driver.ActEdit, Plan: "repair", Edit: &redrive.Edit{Body: []byte(body)}}
			ref := redrive.Ref{Queue: "q", ID: fmt.Sprintf("m%05d", 10+20*i)}
			if _, err := s.Update(ctx, driver.Selection{Refs: []redrive.Ref{ref}}, edit, 1); err != nil {
				t.Fatal(err)
			}
		}
		back, err := p.Create(ctx, Request{Action: driver.ActEdit, Restore: "repair"})
		if err != nil {
			t.Fatal(err)
		}
		if back, err = p.Get(ctx, back.ID); err != nil { // with the version of its record
			t.Fatal(err)
		}
		for range 5 {
			if back, _, err = p.work(ctx, back); err != nil {
				t.Fatal(err)
			}
		}
		if back.State != Done || back.Done != 2 || back.Failed != 0 {
			t.Errorf("%+v", back)
		}
		for id, want := range map[string]string{"m00010": `{"a":1}`, "m00030": `{"a":1}`, "m00050": `{"a":3}`} {
			if got := string(s.Entry("q", id).Body); got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
		}
	})
}

// A canary is looked at also beyond the results that a plan keeps.
func TestCanaryBeyondTheResults(t *testing.T) {
	deadtest.Run(t, func(s *deadtest.Store) {
		ctx := context.Background()
		s.Kill("q", 5, nil)
		p := New(s.Store, Options{})
		now, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		big := newPlan("big", &Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q", State: redrive.StateDead}, Rate: 100, Canary: 2}, now)
		big.Done = maxPlanResults
		if err := p.save(ctx, &big); err != nil {
			t.Fatal(err)
		}
		if big, err = p.Get(ctx, "big"); err != nil {
			t.Fatal(err)
		}
		if big, _, err = p.work(ctx, big); err != nil {
			t.Fatal(err)
		}
		if err := p.lookAtCanary(ctx, &big, now); err != nil || big.Canary.Waiting != 2 {
			t.Errorf("%+v, %v", big.Canary, err)
		}
	})
}
