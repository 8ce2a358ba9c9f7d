package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// FixedInterval plays a table of requests that several instances look through at a fixed interval: what
// has waited that long is taken by one of them only, and the store counts the tries, of
// those too that ended with their instance.
func FixedInterval(t *testing.T, s driver.Store, connect func() driver.Store) {
	t.Helper()
	const (
		interval = 300 * time.Millisecond
		tries    = 3
		messages = 4
	)
	type try struct {
		at       time.Time // by the store's clock
		attempt  int
		failures int
		instance int
	}
	msgs := make([]redrive.Message, messages)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", ID: fmt.Sprint(i)}
	}
	must(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	// An instance that takes one and dies: its try is counted.
	died, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 1, Lease: interval, Instance: "died"})
	must(t, err)

	var mu sync.Mutex
	seen := map[string][]try{}
	ctx, stop := context.WithCancel(t.Context())
	var instances sync.WaitGroup
	policy := redrive.Policy{MaxAttempts: tries, Backoff: redrive.Fixed{Interval: interval}}
	for i := range 3 {
		store := connect()
		instances.Go(func() {
			err := engine.Run(ctx, store, "sms", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				seen[d.ID] = append(seen[d.ID], try{at: d.LeasedAt, attempt: d.Attempt, failures: d.Failures, instance: i})
				return errors.New("the provider is away")
			}), engine.QueueOptions{Policies: engine.Policies{Default: policy}})
			if err != nil {
				t.Errorf("instance %d: %v", i, err)
			}
		})
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		c, err := s.Counts(t.Context(), "sms")
		must(t, err)
		if c[0].Dead[redrive.ReasonExhausted] == messages {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v", c)
		}
		<-time.After(20 * time.Millisecond)
	}
	stop()
	instances.Wait()
	for id, list := range seen {
		counted := 0
		if id == died[0].ID {
			counted = 1
		}
		if len(list) != tries {
			t.Errorf("%s was tried %d times, want %d: %+v", id, len(list), tries, list)
		}
		for i, now := range list {
			if now.attempt != i+1+counted || now.failures != i {
				t.Errorf("%s, try %d: attempt %d after %d failures", id, i+1, now.attempt, now.failures)
			}
			if i > 0 && now.at.Sub(list[i-1].at) < interval {
				t.Errorf("%s was tried again after %s", id, now.at.Sub(list[i-1].at))
			}
		}
	}
}

// Clocks works with a store whose server's clock is about an hour off this process's: only
// the server's decides.
func Clocks(t *testing.T, s driver.Store) {
	t.Helper()
	const delay, lease = 100 * time.Millisecond, 100 * time.Millisecond
	began, err := s.Now(t.Context())
	must(t, err)
	if d := time.Since(began).Abs(); d < 50*time.Minute {
		t.Fatalf("the clocks are %s apart", d)
	}
	must(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m", Delay: delay}})))
	take := func(isolated bool) redrive.Delivery {
		for {
			got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 1, Lease: lease, Instance: "x", Isolated: isolated})
			must(t, err)
			if len(got) == 1 {
				return got[0]
			}
		}
	}
	first := take(false)
	if early := delay - first.LeasedAt.Sub(began); early > 0 {
		t.Errorf("claimed %s too early", early)
	}
	second := take(true)
	if early := lease - second.LeasedAt.Sub(first.LeasedAt); early > 0 {
		t.Errorf("claimed again %s before the lease ran out", early)
	}
	late := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: first.Receipt, Outcome: redrive.OutcomeDone}}))
	if !errors.Is(late, redrive.ErrLeaseLost) {
		t.Errorf("the first holder's settlement: %v", late)
	}
	must(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: second.Receipt, Outcome: redrive.OutcomeDone}})))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
