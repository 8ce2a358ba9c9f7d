package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/engine"
)

func TestEngineHandlesEverythingOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			handled.add(d.ID)
			return nil
		})
		r.publish("sms", 500)
		r.start()
		r.publishAll(redrive.Message{Queue: "sms", Body: []byte("later"), Delay: 3 * time.Second})
		for i := range 499 {
			r.publishAll(redrive.Message{Queue: "sms", Body: []byte{byte(i)}})
		}
		r.ended(10*time.Second, "sms")
		if got := r.counts("sms").Ledger.Done; got != 1000 {
			t.Errorf("%d done, want 1000", got)
		}
		if handled.sum() != 1000 || len(handled.n) != 1000 {
			t.Errorf("%d attempts of %d messages, want 1000 of 1000", handled.sum(), len(handled.n))
		}
	})
}

func TestConsumeReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		seen := make(chan string)
		go func() {
			done <- engine.Run(ctx, store, "sms", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
				seen <- string(d.Body)
				return nil
			}))
		}()
		if err := redrive.Publish(t.Context(), store, "sms", "hello"); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != "hello" {
			t.Errorf("handled %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
