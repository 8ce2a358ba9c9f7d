package redrivetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/redrivetest"
)

// with returns options with a policy of the queue.
func with(p redrive.Policy) redrivetest.Options {
	return redrivetest.Options{Queue: engine.QueueOptions{Policies: engine.Policies{Default: p}}}
}

var errSick = errors.New("the provider is sick")

func TestDelivered(t *testing.T) {
	calls := 0
	r := redrivetest.Run(t, redrive.Message{Body: []byte("x"), ReplyTo: "answers"}, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		if calls++; calls < 3 {
			return errSick
		}
		return redrive.Emit(ctx, redrive.Message{Queue: "next", Body: d.Body})
	}), with(redrive.Policy{Backoff: redrive.Fixed{Interval: time.Hour}}))
	if r.Outcome != redrive.OutcomeDone || r.Dropped || len(r.Attempts) != 3 || r.Took < 2*time.Hour || r.Took > 2*time.Hour+time.Minute || len(r.Emitted) != 2 {
		t.Errorf("%+v", r)
	}
	if a := r.Attempts[1]; a.At < time.Hour || a.At > time.Hour+time.Second || !errors.Is(a.Err, errSick) {
		t.Errorf("%+v", a)
	}
}

func TestDead(t *testing.T) {
	for name, c := range map[string]struct {
		h        redrive.HandlerFunc
		p        redrive.Policy
		attempts int
		reason   redrive.Reason
	}{
		"exhausted": {func(context.Context, *redrive.Delivery) error { return errSick }, redrive.Policy{MaxAttempts: 4}, 4, redrive.ReasonExhausted},
		"permanent": {func(context.Context, *redrive.Delivery) error { return redrive.Permanent(errSick) }, redrive.Policy{}, 1, redrive.ReasonPermanent},
		"a panic":   {func(context.Context, *redrive.Delivery) error { panic("oh") }, redrive.Policy{MaxAttempts: 2}, 2, redrive.ReasonExhausted},
		"too late": {func(ctx context.Context, _ *redrive.Delivery) error { <-ctx.Done(); return ctx.Err() },
			redrive.Policy{Timeout: time.Minute, MaxAttempts: 3}, 3, redrive.ReasonExhausted},
		"too old": {func(context.Context, *redrive.Delivery) error { return errSick },
			redrive.Policy{MaxAge: 90 * time.Minute, Backoff: redrive.Fixed{Interval: time.Hour}}, 2, redrive.ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			r := redrivetest.Run(t, redrive.Message{Queue: "q"}, c.h, with(c.p))
			if r.Outcome != redrive.OutcomeDead || r.Reason != c.reason || len(r.Attempts) != c.attempts || r.Entry == nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestPolicyBesideTheHandler runs a mux as it is in production: what stands beside its
// handlers counts.
func TestPolicyBesideTheHandler(t *testing.T) {
	mux := redrive.NewMux()
	redrive.Handle(mux, func(context.Context, []byte) error { return errSick }, redrive.ForKind("sms"), redrive.WithPolicy(redrive.Policy{MaxAttempts: 2}))
	r := redrivetest.Run(t, redrive.Message{Kind: "sms"}, mux)
	if r.Outcome != redrive.OutcomeDead || r.Reason != redrive.ReasonExhausted || len(r.Attempts) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestDropped(t *testing.T) {
	r := redrivetest.Run(t, redrive.Message{}, redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return errSick }),
		with(redrive.Policy{MaxAge: time.Hour, DropExpired: true, Backoff: redrive.Fixed{Interval: 45 * time.Minute}}))
	if r.Outcome != redrive.OutcomeDone || !r.Dropped || len(r.Attempts) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestWithoutEnd(t *testing.T) {
	r := redrivetest.Run(t, redrive.Message{}, redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return redrive.Uncounted(errSick, time.Hour) }),
		redrivetest.Options{Limit: 5 * time.Hour})
	if r.Outcome != 0 || len(r.Attempts) < 5 || len(r.Attempts) > 7 {
		t.Errorf("%+v", r)
	}
}
