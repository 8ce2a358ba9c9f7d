package rabbitmq

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

var typedTable = amqp.Table{
	"count": int32(7), "big": int64(1) << 40, "yes": true, "ratio": 1.5, "when": time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), "none": nil,
	"list": []any{"a", int32(1)}, "table": amqp.Table{"k": "v", "raw": []byte{0xff}}, "text": "x", "price": amqp.Decimal{Value: 314, Scale: 2}, "small": uint8(200),
}

func keepsTypes(t *testing.T, got amqp.Table) {
	t.Helper()
	for name, want := range typedTable {
		if d := cmp.Diff(want, got[name]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, name := range []string{headername.Order, headername.Origin, headername.OriginalForm} {
		if v, there := got[name]; there {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// What a foreign publisher wrote comes to the queue of dead letters with its types, also by way of
// a retry, and with nothing of ours that only Redrive has a use for.
func TestNativeDeadLettersKeepTheTypesOfHeaders(t *testing.T) {
	s := &Source{a: address{queue: "orders", deadQueue: "orders.dead"}, o: Options{Queue: "orders"}}
	retry := driver.Settlement{Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Message: "first"}, After: time.Minute}
	first := s.moved(&item{d: amqp.Delivery{MessageId: "m", Headers: typedTable}}, &retry)
	dead := driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "last"}}
	last := s.moved(&item{d: amqp.Delivery{MessageId: "m", Headers: first.msg.Headers}}, &dead)
	for _, o := range []outgoing{first, last} {
		delete(o.msg.Headers, headername.Order) // a retry comes back to us
		keepsTypes(t, o.msg.Headers)
	}
}

// The same by way of the store: parked without an id, edited, and attached from a queue of others.
func TestDeadLettersOfTheStoreKeepTheTypesOfHeaders(t *testing.T) {
	s := &Source{a: address{queue: "orders", deadQueue: "orders.dead"}, o: Options{Queue: "orders"}}
	var parked redrive.Delivery
	s.read(&item{d: amqp.Delivery{ContentType: "text/plain", CorrelationId: "c", Headers: typedTable}}, &parked)
	parked.Headers.Set(redrive.HeaderPossibleDuplicate, "true")
	parked.Headers.Set("count", "8")
	parked.Headers.Add("a new one", "x")
	p := s.letter(&parked.Message, &native.History{Queue: "orders", Reason: redrive.ReasonPermanent})
	if p.Headers["count"] != int32(8) || p.Headers["a new one"] != "x" || p.CorrelationId != "c" {
		t.Errorf("%+v", p)
	}
	p.Headers["count"] = typedTable["count"]
	keepsTypes(t, p.Headers)

	h, shape := broker.FromRabbitMQ(&amqp.Delivery{MessageId: "m", Type: "order placed", CorrelationId: "c", ReplyTo: "r", AppId: "shop", Priority: 4, Headers: typedTable})
	h.Add(headername.OriginalQueue, "old")
	h.Add(headername.OriginalForm, shape)
	p = s.letter(&redrive.Message{ID: "derived", Headers: h, Lineage: redrive.Lineage{Origin: "old.dead/m"}}, &native.History{Queue: "orders", Reason: redrive.ReasonPermanent})
	keepsTypes(t, p.Headers)
	if p.MessageId != "derived" || p.Type != "order placed" || p.CorrelationId != "c" || p.ReplyTo != "r" || p.AppId != "shop" || p.Priority != 4 || p.Headers[headername.OriginalQueue] != "old" {
		t.Errorf("%+v", p)
	}
	// What was emitted by another queue says so still, and a name that repeats can be read.
	m := redrive.Message{ID: "m", Headers: redrive.Headers{{Name: "b", Value: []byte("1")}, {Name: "a"}, {Name: "b", Value: []byte("2")}}, Lineage: redrive.Lineage{Origin: "other/1"}}
	if p = s.letter(&m, &native.History{Queue: "orders"}); p.Headers[headername.Origin] != "other/1" || p.Headers[headername.Order] != "b\na\nb" {
		t.Errorf("%+v", p)
	}
}
