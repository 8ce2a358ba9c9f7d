package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/middleware"
)

// A kind with a limit of its own takes only its slots, and nothing of it is claimed that
// would have to wait.
func TestConcurrencyOfAKind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const slots, limit, many = 10, 2, 20
		var running, most atomic.Int32
		finish := make(chan struct{})
		mux := redrive.NewMux()
		mux.Handle("slow", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), n))
			<-finish
			return nil
		}), redrive.ForKind("slow.v1"), redrive.WithConcurrency(limit))
		var fast atomic.Int32
		mux.Handle("fast", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { fast.Add(1); return nil }))
		r.handleWith("sms", middleware.Chain(mux), engine.QueueOptions{Concurrency: slots})
		for i := range many {
			kind := []string{"slow", "slow.v1"}[i%2]
			r.publishAll(redrive.Message{Queue: "sms", ID: fmt.Sprint("slow-", i), Kind: kind}, redrive.Message{Queue: "sms", ID: fmt.Sprint("fast-", i), Kind: "fast"})
		}
		r.start()
		r.within(10*time.Second, "the fast ones are done beside the slow ones", func() bool { return fast.Load() == many })
		if n := running.Load(); n != limit {
			t.Errorf("%d slow ones run, want %d", n, limit)
		}
		if n := r.counts("sms").Leased; n != limit {
			t.Errorf("%d are claimed, want %d", n, limit)
		}
		for range many {
			finish <- struct{}{}
		}
		r.ended(time.Minute, "sms")
		if most.Load() != limit {
			t.Errorf("%d slow ones ran at once, want %d", most.Load(), limit)
		}
	})
}

func TestPolicyAndTimeoutBesideTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var attempts tally
		fail := redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			at, _ := ctx.Deadline()
			attempts.add(fmt.Sprint(d.Kind, " ", time.Until(at)))
			return errSick
		})
		mux := redrive.NewMux()
		policy := redrive.Policy{MaxAttempts: 2, Backoff: redrive.Fixed{Interval: time.Second}}
		mux.Handle("own", fail, redrive.WithPolicy(policy), redrive.WithTimeout(7*time.Second))
		mux.Handle("short", fail, redrive.WithTimeout(time.Second))
		mux.Handle("plain", fail)
		mux.Handle("configured", fail)
		configured := policy
		configured.MaxAttempts, configured.Timeout = 4, time.Minute
		r.handleWith("sms", mux, engine.QueueOptions{Breaker: engine.BreakerOptions{Off: true}, Policies: engine.Policies{
			Default: redrive.Policy{MaxAttempts: 3, Backoff: redrive.Fixed{Interval: time.Second}},
			Kinds:   map[string]redrive.Policy{"configured": configured}}})
		for _, kind := range []string{"own", "short", "plain", "configured"} {
			r.publishAll(redrive.Message{Queue: "sms", ID: kind, Kind: kind})
		}
		r.start()
		r.ended(time.Minute, "sms")
		for what, want := range map[string]int{"own 7s": 2, "short 1s": 3, "plain 30s": 3, "configured 1m0s": 4} {
			if attempts.of(what) != want {
				t.Errorf("%s: %d attempts, want %d; all: %v", what, attempts.of(what), want, attempts.n)
			}
		}
	})
}

func TestMistakesAreErrorsAtStart(t *testing.T) {
	h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil })
	policies := engine.Policies{Kinds: map[string]redrive.Policy{"a": {}}}
	for _, c := range []struct {
		want string
		mux  func(m *redrive.Mux)
		o    engine.QueueOptions
	}{
		{"twice", func(m *redrive.Mux) { m.Handle("a", h); m.Handle("a", h) }, engine.QueueOptions{}},
		{"no handler", func(m *redrive.Mux) { m.Handle("b", h) }, engine.QueueOptions{Policies: policies}},
		{"beside its handler", func(m *redrive.Mux) { m.Handle("a", h, redrive.WithPolicy(redrive.Policy{})) }, engine.QueueOptions{Policies: policies}},
		{"counts", func(m *redrive.Mux) { m.Handle("a", h, redrive.WithPolicy(redrive.Policy{MaxAttempts: -1})) }, engine.QueueOptions{}},
		{"durations", func(m *redrive.Mux) { m.Handle("a", h) }, engine.QueueOptions{Policies: engine.Policies{Rules: []engine.Rule{{Policy: redrive.Policy{Timeout: -1}}}}}},
	} {
		mux := redrive.NewMux()
		c.mux(mux)
		err := engine.Run(t.Context(), nil, "sms", middleware.Chain(mux), c.o, engine.Options{})
		if !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	if err := engine.Run(t.Context(), nil, "sms", h, engine.Options{}, engine.Options{}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("two Options: %v", err)
	}
}

// A snoozed message comes again as if nothing had been.
func TestSnoozeIsNoFailure(t *testing.T) {
	var ends []any
	bubble(t, func(t *testing.T, r *rig) {
		var attempts, failures []int
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			attempts, failures = append(attempts, d.Attempt), append(failures, d.Failures)
			if len(attempts) < 4 {
				return fmt.Errorf("not yet: %w", redrive.Snooze(time.Hour))
			}
			return redrive.Permanent(nil)
		})
		r.publish("sms", 1)
		r.start()
		pass(30 * time.Minute)
		if e := r.entry("sms", "sms-0"); e.State != redrive.StateWaiting || e.History.Count != 0 || e.History.First != nil || e.Attempts != 0 {
			t.Errorf("a snoozed message is %+v", e)
		}
		r.ended(3*time.Hour, "sms")
		if fmt.Sprint(attempts, failures) != "[1 1 1 1] [0 0 0 0]" {
			t.Errorf("attempts %v, failures %v", attempts, failures)
		}
		if e := r.dead("sms", "sms-0"); e.Reason != redrive.ReasonPermanent || e.History.Latest().Message != "redrive.Permanent: no error given" {
			t.Errorf("a verb without an error: %+v", e)
		}
		if want := "[release <nil> release <nil> release <nil> dead redrive.Permanent: no error given]"; fmt.Sprint(ends) != want {
			t.Errorf("the observer sees %v, want %s", ends, want)
		}
	}, engine.Options{Observer: observerFunc(func(o *engine.Observation) {
		if o.Occasion == engine.OnEnd {
			ends = append(ends, o.Settlement.Outcome, o.Err)
		}
	})})
}

type observerFunc func(o *engine.Observation)

func (f observerFunc) Observe(o *engine.Observation) { f(o) }
