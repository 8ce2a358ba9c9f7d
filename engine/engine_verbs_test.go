package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/middleware"
)

func TestEmit_OnlyOnSuccessUnderDerivedIDs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			for _, body := range []string{"one", "two"} {
				if err := redrive.Emit(ctx, redrive.Message{Queue: "out", Body: []byte(body)}); err != nil {
					return err
				}
			}
			if d.Attempt == 1 {
				return errSick
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		r.publish("sms", 1)
		r.start()
		pass(500 * time.Millisecond)
		if c := r.counts("out"); c.AllWaiting() != 0 {
			t.Errorf("a failed attempt emitted %d messages", c.AllWaiting())
		}
		r.ended(time.Minute, "sms")
		for i, body := range []string{"one", "two"} {
			id := driver.DeriveID("emit", "sms", "sms-0", "0", fmt.Sprint(i))
			if e := r.entry("out", id); e == nil || string(e.Body) != body {
				t.Errorf("emit %d: %+v", i, e)
			}
		}
		if c := r.counts("out"); c.AllWaiting() != 2 {
			t.Errorf("%d emitted, want 2", c.AllWaiting())
		}
	})
}

func TestEmit_DuplicateIsSuccess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publishAll(redrive.Message{Queue: "out", ID: "x", Body: []byte("same")})
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			return redrive.Emit(ctx, redrive.Message{Queue: "out", ID: "x", Body: []byte("same")})
		})
		r.publish("sms", 1)
		r.start()
		r.ended(time.Second, "sms")
		if n := r.counts("sms").Ledger.Done; n != 1 {
			t.Errorf("%d done, want 1", n)
		}
	})
}

func TestEmit_RefusesWhatCannotBe(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		late := make(chan context.Context, 1)
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			if err := redrive.Emit(ctx, redrive.Message{Queue: "Not A Queue"}); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("an invalid emit: %v", err)
			}
			if got, ok := redrive.DeliveryFrom(ctx); !ok || got != d {
				t.Errorf("the delivery is not at hand: %v, %v", got, ok)
			}
			late <- ctx
			return nil
		})
		r.publish("sms", 1)
		r.start()
		r.ended(time.Second, "sms")
		ctx := <-late
		if err := redrive.Emit(ctx, redrive.Message{Queue: "out"}); err == nil {
			t.Error("an emit after the handler returned was accepted")
		}
		if err := redrive.Emit(t.Context(), redrive.Message{Queue: "out"}); err == nil {
			t.Error("an emit outside a handler was accepted")
		}
		if ctx.Err() == nil {
			t.Error("the handler's context lives on")
		}
		if _, ok := redrive.DeliveryFrom(t.Context()); ok {
			t.Error("a delivery outside a handler")
		}
	})
}

func TestReply_OneResultForEachEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			redrive.Reply(ctx, []byte("answer to "+d.ID), redrive.Headers{{Name: "x", Value: []byte("y")}})
			switch d.ID {
			case "dead":
				return redrive.Permanent(errSick)
			case "retried":
				if d.Attempt == 1 {
					return errSick
				}
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		dropping := fixed(time.Second, redrive.Policy{DropExpired: true})
		r.handle("dropping", func(context.Context, *redrive.Delivery) error { return nil }, engine.QueueOptions{Policies: dropping})
		soon := time.Now().Add(time.Millisecond)
		for _, id := range []string{"done", "dead", "retried"} {
			r.publishAll(redrive.Message{Queue: "sms", ID: id, ReplyTo: "results"})
		}
		r.publishAll(
			redrive.Message{Queue: "sms", ID: "expired", ReplyTo: "session:alice", ExpiresAt: soon},
			redrive.Message{Queue: "dropping", ID: "dropped", ReplyTo: "results", ExpiresAt: soon})
		pass(time.Second)
		r.start()
		r.ended(time.Minute, "sms")
		r.ended(time.Minute, "dropping")
		for ref, want := range map[redrive.Ref]string{
			{Queue: "sms", ID: "done"}:         "results: done  answer to done y",
			{Queue: "sms", ID: "dead"}:         "results: dead permanent ",
			{Queue: "sms", ID: "retried"}:      "results: done  answer to retried y",
			{Queue: "sms", ID: "expired"}:      "_results: dead expired ",
			{Queue: "dropping", ID: "dropped"}: "results: drop expired ",
		} {
			queue, _, _ := strings.Cut(want, ":")
			e := r.entry(queue, driver.DeriveID("result", ref.Queue, ref.ID, "0"))
			if e == nil {
				t.Errorf("%s: no result", ref)
				continue
			}
			header := func(name string) string { v, _ := e.Headers.Get(name); return v }
			got := queue + ": " + header(redrive.HeaderOutcome) + " " + header(redrive.HeaderReason) + " " + string(e.Body)
			if x := header("x"); x != "" {
				got += " " + x
			}
			if got != want || header(redrive.HeaderReplyFor) != ref.String() {
				t.Errorf("%s: result %q for %s, want %q", ref, got, header(redrive.HeaderReplyFor), want)
			}
		}
		if c := r.counts("dropping"); c.Ledger.Dropped != 1 {
			t.Errorf("dropped: %+v", c.Ledger)
		}
	})
}

func TestInlineTriesWithinOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var tries, permanent atomic.Int32
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			if d.ID == "sms-1" {
				permanent.Add(1)
				return redrive.Permanent(errSick)
			}
			_ = redrive.Emit(ctx, redrive.Message{Queue: "out"})
			if tries.Add(1) < 3 {
				return errSick
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Inline: 2})})
		r.publish("sms", 2)
		r.start()
		r.ended(time.Millisecond, "sms")
		if tries.Load() != 3 || permanent.Load() != 1 {
			t.Errorf("%d tries and %d of the permanent failure, want 3 and 1", tries.Load(), permanent.Load())
		}
		if c := r.counts("out"); c.AllWaiting() != 1 {
			t.Errorf("%d emitted: those of failed tries count", c.AllWaiting())
		}
	})
}

func TestRepeatIsDueAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var at []time.Duration
		from := time.Now()
		r.handle("cron", func(_ context.Context, d *redrive.Delivery) error {
			at = append(at, time.Since(from))
			if d.Attempt != 1 || d.Generation != len(at)-1 {
				t.Errorf("run %d: attempt %d of generation %d", len(at), d.Attempt, d.Generation)
			}
			if len(at) < 5 {
				return redrive.RepeatAfter(time.Minute)
			}
			return nil
		})
		r.publish("cron", 1)
		r.start()
		r.ended(time.Hour, "cron")
		for i, d := range at {
			if late := d - time.Duration(i)*time.Minute; late < 0 || late > 100*time.Millisecond {
				t.Errorf("run %d was at %s", i, d)
			}
		}
		if b := r.counts("cron").Ledger; b.Repeated != 4 || b.Done != 5 {
			t.Errorf("ledger: %+v", b)
		}
	})
}

func TestErrSettledIsNotSettledAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var calls atomic.Int32
		r.fail.settle = func(ctx context.Context, s []driver.Settlement) []error {
			calls.Add(1)
			return r.store.Settle(ctx, s)
		}
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			r.store.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})
			return fmt.Errorf("in the handler's own transaction: %w", redrive.ErrSettled)
		})
		r.publish("sms", 3)
		r.start()
		r.ended(time.Second, "sms")
		if calls.Load() != 0 || r.counts("sms").Ledger.Done != 3 {
			t.Errorf("the engine settled %d times; %d done", calls.Load(), r.counts("sms").Ledger.Done)
		}
	})
}

func TestRetryAfterIsAFloor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var at []time.Time
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			at = append(at, time.Now())
			if len(at) == 1 {
				return redrive.RetryAfter(errSick, 42*time.Second)
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		r.publish("sms", 1)
		r.start()
		r.ended(time.Minute, "sms")
		if d := at[1].Sub(at[0]); d < 42*time.Second || d > 43*time.Second {
			t.Errorf("retried after %s, want 42 s", d)
		}
	})
}

func TestPoliciesByKindRuleAndClassifier(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var attempts tally
		p := engine.Policies{
			Default: redrive.Policy{MaxAttempts: 3, Backoff: redrive.Fixed{Interval: time.Second}},
			Kinds:   map[string]redrive.Policy{"otp": {MaxAttempts: 2, Backoff: redrive.Fixed{Interval: time.Second}}},
			Rules: []engine.Rule{{Header: "tenant", Value: "gold", Policy: redrive.Policy{Name: "gold", MaxAttempts: 5,
				Backoff: redrive.Fixed{Interval: time.Second}, Classifier: &redrive.Table{Release: []string{"type:*errorString"}}}}},
		}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if n := attempts.add(d.ID); d.ID == "gold" && n > 10 {
				return redrive.Permanent(errSick)
			}
			return errors.New("plain")
		}, engine.QueueOptions{Policies: p, Breaker: engine.BreakerOptions{Off: true}})
		gold := redrive.Message{Queue: "sms", ID: "gold", Kind: "otp"}
		gold.Headers.Add("tenant", "gold")
		r.publishAll(redrive.Message{Queue: "sms", ID: "default"}, redrive.Message{Queue: "sms", ID: "otp", Kind: "otp"}, gold)
		r.start()
		r.ended(time.Hour, "sms")
		for id, want := range map[string]int{"default": 3, "otp": 2, "gold": 11} {
			if attempts.of(id) != want {
				t.Errorf("%s: %d attempts, want %d", id, attempts.of(id), want)
			}
		}
		if f := r.dead("sms", "gold").History.Latest(); f.Config.Policy != "gold" || f.Config.MaxAttempts != 5 {
			t.Errorf("the policy in force: %+v", f.Config)
		}
	})
}

func TestMaxAgeAndExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		handled := make(map[string]int)
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			handled[d.ID]++
			return errSick
		}, engine.QueueOptions{Concurrency: 1, Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(20*time.Second, redrive.Policy{MaxAge: time.Minute})})
		r.handle("drop", func(context.Context, *redrive.Delivery) error { return errSick },
			engine.QueueOptions{Policies: fixed(time.Hour, redrive.Policy{DropExpired: true})})
		r.handle("old", func(context.Context, *redrive.Delivery) error {
			t.Error("a message beyond the queue's age was handled")
			return nil
		}, engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{MaxAge: time.Second}}})
		r.publishAll(
			redrive.Message{Queue: "sms", ID: "aged"},
			redrive.Message{Queue: "sms", ID: "expires", ExpiresAt: time.Now().Add(30 * time.Second)},
			redrive.Message{Queue: "drop", ID: "drop", ExpiresAt: time.Now().Add(30 * time.Second)},
			redrive.Message{Queue: "old", ID: "old"})
		pass(2 * time.Second)
		r.start()
		r.ended(65*time.Second, "sms") // no later than they expire
		r.ended(time.Second, "drop")
		r.ended(time.Second, "old")
		for _, ref := range []redrive.Ref{{Queue: "sms", ID: "aged"}, {Queue: "sms", ID: "expires"}, {Queue: "old", ID: "old"}} {
			if e := r.dead(ref.Queue, ref.ID); e.Reason != redrive.ReasonExpired {
				t.Errorf("%s: dead as %s", ref, e.Reason)
			}
		}
		if handled["aged"] != 3 || handled["expires"] != 2 {
			t.Errorf("attempts: %v, want 3 of aged and 2 of expires", handled)
		}
		if b := r.counts("drop").Ledger; b.Dropped != 1 {
			t.Errorf("ledger of drop: %+v", b)
		}
	})
}

func TestDisableKillsOneAndPausesTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("hooks", func(context.Context, *redrive.Delivery) error { return redrive.TargetGone(errors.New("410 Gone")) },
			engine.QueueOptions{Target: "https://example.com", Concurrency: 1})
		r.publish("hooks", 10)
		r.start()
		pass(time.Minute)
		if c := r.counts("hooks"); c.Dead[redrive.ReasonDisabled] != 1 || c.AllWaiting() != 9 {
			t.Errorf("counts: %+v", c)
		}
	})
}

type asideFunc func(ctx context.Context, e *redrive.Entry) error

func (f asideFunc) DeadLetter(ctx context.Context, e *redrive.Entry) error { return f(ctx, e) }

type extractorFunc func(ctx context.Context, d *redrive.Delivery, err error, f *redrive.Failure)

func (x extractorFunc) Extract(ctx context.Context, d *redrive.Delivery, err error, f *redrive.Failure) {
	x(ctx, d, err, f)
}

func TestDeadLetterSinkAndExtractor(t *testing.T) {
	extractor := extractorFunc(func(_ context.Context, _ *redrive.Delivery, _ error, f *redrive.Failure) {
		f.Details = map[string]string{"customer": "42"}
	})
	var aside []string
	dead := make(map[string]redrive.Reason) // as an observer sees it
	watch := observerFunc(func(o *engine.Observation) {
		if o.Occasion == engine.OnSettled && o.Settlement.Outcome == redrive.OutcomeDead {
			dead[o.Delivery.ID] = o.Settlement.Reason
		}
	})
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return redrive.Permanent(errSick) },
			engine.QueueOptions{Extractor: extractor, DeadLetters: asideFunc(func(_ context.Context, e *redrive.Entry) error {
				if e.ID == "sms-1" {
					return errors.New("the sink is full")
				}
				aside = append(aside, fmt.Sprint(e.ID, " ", e.Reason, " ", e.History.Count, " ", e.History.Latest().Details["customer"]))
				return nil
			})})
		r.publish("sms", 2)
		r.start()
		r.ended(time.Second, "sms")
		if want := []string{"sms-0 permanent 1 42"}; !slices.Equal(aside, want) {
			t.Errorf("dead-lettered: %q, want %q", aside, want)
		}
		if want := map[string]redrive.Reason{"sms-0": redrive.ReasonPermanent, "sms-1": redrive.ReasonPermanent}; !maps.Equal(dead, want) {
			t.Errorf("the observer saw as dead %v, want %v", dead, want)
		}
		if f := r.dead("sms", "sms-1").History.Latest(); f.Details["customer"] != "42" {
			t.Errorf("details: %v", f.Details)
		}
		if f := r.dead("sms", "sms-1").History.Latest(); f.Host == "" || f.IP == "" || f.PID == 0 || f.Service != "test" || f.Version == "" ||
			f.Env == "" || f.TraceID == "" || f.Signature == "" || f.Stack == "" || len(f.Types) == 0 || f.At.IsZero() {
			t.Errorf("the failure history lacks something: %+v", f)
		}
	}, engine.Options{Service: "test", Observer: watch})
}

func TestMiddlewareKeepsKinds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var order []string
		note := func(name string) middleware.Middleware {
			return func(h redrive.Handler) redrive.Handler {
				return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
					order = append(order, name)
					return h.ServeDelivery(ctx, d)
				})
			}
		}
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, []byte) error { order = append(order, "handler"); return nil }, redrive.ForKind("known"))
		r.handleWith("sms", middleware.Chain(mux, note("outer"), note("inner")))
		r.publishAll(redrive.Message{Queue: "sms", Kind: "unknown", ID: "waits"}, redrive.Message{Queue: "sms", Kind: "known"})
		r.start()
		pass(time.Second)
		if want := []string{"outer", "inner", "handler"}; !slices.Equal(order, want) {
			t.Errorf("called %v, want %v", order, want)
		}
		if e := r.entry("sms", "waits"); e == nil || e.Attempts != 0 {
			t.Errorf("the kind that nobody handles: %+v", e)
		}
	})
}
