package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

func TestHandleIsReplacedAtRunTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var old, replaced, added tally
		count := func(c *tally) redrive.HandlerFunc {
			return func(_ context.Context, d *redrive.Delivery) error {
				<-time.After(time.Second)
				c.add(d.ID)
				return nil
			}
		}
		r.handle("sms", count(&old), engine.QueueOptions{Concurrency: 10})
		r.publish("sms", 100)
		r.start()
		pass(1500 * time.Millisecond)
		r.handle("sms", count(&replaced), engine.QueueOptions{Concurrency: 90})
		r.handle("mail", count(&added))
		r.publish("mail", 3)
		pass(3 * time.Second)
		if old.sum() != 20 || replaced.sum() != 80 || added.sum() != 3 {
			t.Errorf("%d by the old handler, %d by the new one, %d by the added one; want 20, 80, 3", old.sum(), replaced.sum(), added.sum())
		}
	})
}

// A handler with another target starts afresh: the pause and the breaker of the old
// target say nothing about it; a pause of the whole queue stays. Options of the breaker
// apply from then on.
func TestTargetIsReplacedAtRunTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		down := func(context.Context, *redrive.Delivery) error { return errors.New("down") }
		var up tally
		quick := engine.BreakerOptions{MinAttempts: 3, MinMessages: 2, LastFailed: 3}
		r.handle("sms", down, engine.QueueOptions{Target: "old", Breaker: quick})
		r.publish("sms", 20)
		r.start()
		r.within(10*time.Second, "the breaker opens", func() bool {
			b := r.engine.Status()[0].Breakers
			return len(b) == 1 && b[0].State == engine.BreakerOpen
		})
		r.engine.Pause("sms", "old", "disabled", 0)
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error { up.add(d.ID); return nil }, engine.QueueOptions{Target: "new"})
		if s := r.engine.Status()[0]; len(s.Breakers) != 0 || len(s.Paused) != 0 {
			t.Errorf("%+v", s)
		}
		r.within(time.Minute, "the new target gets all", func() bool { return up.sum() == 20 })
		r.engine.Pause("sms", "", "a person's", 0)
		r.handle("sms", down, engine.QueueOptions{Target: "third"})
		if s := r.engine.Status()[0]; len(s.Paused) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestHandleRefusesNonsense(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil })
		for name, err := range map[string]error{
			"queue":       r.engine.Handle("No Queue", h, engine.QueueOptions{}),
			"handler":     r.engine.Handle("sms", nil, engine.QueueOptions{}),
			"concurrency": r.engine.Handle("sms", h, engine.QueueOptions{Concurrency: -1}),
			"lease":       r.engine.Handle("sms", h, engine.QueueOptions{Lease: -1}),
		} {
			if !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := r.engine.Ready(); err == nil {
			t.Error("ready before Run")
		}
		r.start()
		if err := r.engine.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
		if err := r.engine.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestRemoveStopsClaimingAndLetsWorkEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			<-time.After(time.Minute)
			handled.add(d.ID)
			return nil
		}, engine.QueueOptions{Concurrency: 4, Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour})})
		r.publish("sms", 10)
		r.start()
		pass(time.Second)
		r.engine.Remove("sms")
		r.engine.Remove("never-was")
		pass(10 * time.Minute)
		if c := r.counts("sms"); c.Ledger.Done != 4 || c.Leased != 0 {
			t.Errorf("after the removal: %+v", c)
		}
		if len(r.engine.Status()) != 0 {
			t.Errorf("status of what was removed: %+v", r.engine.Status())
		}
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil })
		r.ended(time.Second, "sms")
	})
}

func TestRemovedWorkIsAwaitedByRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			<-time.After(5 * time.Second)
			return nil
		})
		r.publish("sms", 3)
		r.start()
		r.engine.Remove("sms")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if n := r.counts("sms").Ledger.Done; n != 3 {
			t.Errorf("%d done when Run returned, want 3", n)
		}
	})
}

func TestPauseOfAWholeQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error { handled.add(d.ID); return nil })
		r.start()
		r.engine.Pause("sms", "", "maintenance", 0)
		r.publish("sms", 5)
		pass(time.Hour)
		if handled.sum() != 0 {
			t.Errorf("%d handled in a paused queue", handled.sum())
		}
		if s := r.status("sms"); s.Refused != "paused: maintenance" || len(s.Paused) != 1 {
			t.Errorf("status: %+v", s)
		}
		r.engine.Resume("sms", "")
		r.ended(10*time.Millisecond, "sms")
		r.engine.Pause("sms", "", "a while", time.Minute)
		r.publishAll(redrive.Message{Queue: "sms", ID: "late"})
		pass(59 * time.Second)
		if r.entry("sms", "late") == nil {
			t.Error("handled before the pause was over")
		}
		r.ended(2*time.Second, "sms")
	})
}

func TestClosedStoreLetsRunEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil })
		r.start()
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.engine, r.store = engine.New(newRig(t, engine.Options{}).store, engine.Options{}), newRig(t, engine.Options{}).store
		r.engine.IsolateProcess()
	})
}
