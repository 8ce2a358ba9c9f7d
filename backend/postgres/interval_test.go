package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// As a table of requests that several instances look through at a fixed interval: what
// has waited that long is taken by one of them only, and the store counts the tries, of
// those too that ended with their instance.
func TestFixedIntervalAmongInstances(t *testing.T) {
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
	s := open(t)
	msgs := make([]redrive.Message, messages)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", ID: fmt.Sprint(i)}
	}
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
	// An instance that takes one and dies: its try is counted.
	died, err := s.Claim(t.Context(), redrive.ClaimRequest{Queue: "sms", Max: 1, Lease: interval, Instance: "died"})
	noErr(t, err)

	var mu sync.Mutex
	seen := map[string][]try{}
	ctx, stop := context.WithCancel(t.Context())
	var instances sync.WaitGroup
	policy := redrive.Policy{MaxAttempts: tries, Backoff: redrive.Fixed{Interval: interval}}
	for i := range 3 {
		store := connect(t, s)
		instances.Go(func() {
			err := redrive.Consume(ctx, store, "sms", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				seen[d.ID] = append(seen[d.ID], try{at: d.LeasedAt, attempt: d.Attempt, failures: d.Failures, instance: i})
				return errors.New("the provider is away")
			}), redrive.QueueOptions{Policy: func(*redrive.Message) *redrive.Policy { return &policy }})
			if err != nil {
				t.Errorf("instance %d: %v", i, err)
			}
		})
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		c, err := s.Counts(t.Context(), "sms")
		noErr(t, err)
		if c[0].Dead[redrive.ReasonExhausted] == messages {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v", c)
		}
		sleep(t.Context(), 20*time.Millisecond)
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
	audited(t, s)
}
