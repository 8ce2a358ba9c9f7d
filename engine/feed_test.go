package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// An answer about what is due next that was looked up before a retry was written, and arrives after the
// event of that retry, does not make the consumer forget when the retry is due.
func TestALateAnswerForgetsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		late := 0
		r.fail.wait = func(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
			events, err := r.store.Wait(ctx, w)
			if len(w) == 1 { // a consumer's question: the watch over both queues has two
				late++
				<-time.After(10 * time.Millisecond)
			}
			return events, err
		}
		attempts := 0
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			<-time.After(time.Millisecond)
			if attempts++; attempts == 1 {
				return errors.New("down")
			}
			return nil
		}, engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{Backoff: redrive.Fixed{Interval: 20 * time.Millisecond}}}})
		r.handle("mail", func(context.Context, *redrive.Delivery) error { return nil })
		r.publish("sms", 1)
		r.start()
		r.ended(time.Second, "sms")
		if late == 0 || attempts != 2 {
			t.Errorf("%d late answers, %d attempts; want some and 2", late, attempts)
		}
	})
}
