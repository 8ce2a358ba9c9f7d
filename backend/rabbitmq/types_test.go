package rabbitmq

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

// What a foreign publisher wrote comes to the queue of dead letters with its types, also by way of
// a retry, and with nothing of ours that only Redrive has a use for.
func TestNativeDeadLettersKeepTheTypesOfHeaders(t *testing.T) {
	s := &Source{a: address{queue: "orders", deadQueue: "orders.dead"}, o: Options{Queue: "orders"}}
	came := amqp.Table{
		"count": int32(7), "big": int64(1) << 40, "yes": true, "ratio": 1.5, "when": time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), "none": nil,
		"list": []any{"a", int32(1)}, "table": amqp.Table{"k": "v"}, "text": "x",
	}
	retry := driver.Settlement{Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Message: "first"}, After: time.Minute}
	first := s.moved(&item{d: amqp.Delivery{MessageId: "m", Headers: came}}, &retry)
	dead := driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "last"}}
	last := s.moved(&item{d: amqp.Delivery{MessageId: "m", Headers: first.msg.Headers}}, &dead)
	for name, want := range came {
		for _, o := range []outgoing{first, last} {
			if d := cmp.Diff(want, o.msg.Headers[name]); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
	for _, name := range []string{headername.Order, headername.Origin} {
		if v, there := last.msg.Headers[name]; there {
			t.Errorf("%s: %v", name, v)
		}
	}
}
