package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// TestARateHoldsItsQueue: the hold goes on between two tokens, since it began, and ends when all
// was let through for a while.
func TestARateHoldsItsQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil },
			engine.QueueOptions{Gates: []driver.Gate{delivery.NewRateGate(2, 1)}})
		r.publish("sms", 40)
		began := time.Now()
		r.start()
		for range 19 {
			pass(time.Second)
			h := r.engine.Status()[0].Holds
			if len(h) != 1 || h[0].What != "rate" || h[0].Reason == "" || h[0].Since.Sub(began) > time.Second || time.Until(h[0].Until) > time.Second {
				t.Fatalf("after %s: %+v", time.Since(began), h)
			}
		}
		r.ended(time.Minute, "sms")
		pass(time.Minute)
		r.publishAll(redrive.Message{Queue: "sms"})
		pass(6 * time.Second)
		if h := r.engine.Status()[0].Holds; len(h) != 0 {
			t.Errorf("afterwards: %+v", h)
		}
	})
}

// TestTakenSlotsHoldTheirQueue says by which kind the slots are taken, and by handlers that are stuck.
func TestTakenSlotsHoldTheirQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		letGo := make(chan struct{})
		r.handle("sms", func(context.Context, *redrive.Delivery) error { <-letGo; return nil }, engine.QueueOptions{Concurrency: 3})
		r.publishAll(redrive.Message{Queue: "sms", Kind: "slow"}, redrive.Message{Queue: "sms", Kind: "slow"}, redrive.Message{Queue: "sms", Kind: "other"}, redrive.Message{Queue: "sms"})
		r.start()
		began := time.Now()
		pass(10 * time.Second)
		h := r.engine.Status()[0].Holds
		if len(h) != 1 || h[0].What != engine.HoldSlots || !h[0].Since.Equal(began) || !strings.Contains(h[0].Reason, `3 of 3 slots are taken, 2 by kind "slow"`) {
			t.Errorf("%+v", h)
		}
		pass(10 * time.Minute) // the policy's timeout, and patience with handlers
		if h := r.engine.Status()[0].Holds; len(h) != 1 || !strings.Contains(h[0].Reason, "ignore their context") {
			t.Errorf("once they are stuck: %+v", h)
		}
		close(letGo)
		synctest.Wait()
		pass(time.Minute)
		if h := r.engine.Status()[0].Holds; len(h) != 0 {
			t.Errorf("afterwards: %+v", h)
		}
	})
}
