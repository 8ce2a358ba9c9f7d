package native

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
)

var day = time.Date(2026, 11, 21, 8, 0, 0, 5, time.UTC)

func TestAHistoryComesBackAsItWas(t *testing.T) {
	want := History{
		Queue: "sms", Attempts: 3, Crashes: 1, Reason: redrive.ReasonExhausted, DiedAt: day,
		History: redrive.History{
			Count: 2,
			First: &redrive.Failure{At: day.Add(-time.Hour), Attempt: 1, Message: "refused", Types: []string{"*url.Error"}, Signature: "a1"},
			Last:  &redrive.Failure{At: day, Attempt: 3, Message: "timeout", Types: []string{"*url.Error", "timeout"}, Details: map[string]string{"http.status": "504"}},
		},
	}
	own := redrive.Headers{{Name: "tenant", Value: []byte("gold")}, {Name: headername.OriginalTopic, Value: []byte("orders")}}
	m := redrive.Message{Headers: append(want.Headers(), own...)}
	if got, _ := m.Headers.Get(headername.ErrorType); got != "timeout" {
		t.Errorf("the error's type is %q", got)
	}
	got, ok := TakeHistory(&m)
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Error(ok, d)
	}
	if d := cmp.Diff(own, m.Headers); d != "" {
		t.Error(d)
	}
}

func TestAHistoryFitsIntoHeaders(t *testing.T) {
	long := strings.Repeat("ä", 100_000)
	f := &redrive.Failure{Message: long, Stack: long, Details: make(map[string]string)}
	for i := range 32 {
		f.Details[strings.Repeat("x", i+1)] = long
	}
	s := History{Queue: "sms", History: redrive.History{Count: 2, First: f, Last: f}}
	if size := s.Headers().Size(); size > 32<<10 {
		t.Errorf("%d bytes of headers", size)
	}
	if len(f.Details) != 32 || f.Message != long {
		t.Error("the failure itself was cut")
	}
}

func TestWithoutAHistoryHeadersStay(t *testing.T) {
	m := redrive.Message{Headers: redrive.Headers{{Name: redrive.HeaderReplyFor, Value: []byte("id")}, {Name: redrive.HeaderReason, Value: []byte("exhausted")}}}
	if s, ok := TakeHistory(&m); ok || len(m.Headers) != 2 {
		t.Error(s, m.Headers)
	}
}

func TestWhatMakesNoSenseInAHistoryStays(t *testing.T) {
	m := redrive.Message{Headers: redrive.Headers{
		{Name: headername.Queue, Value: []byte("sms")}, {Name: headername.Attempts, Value: []byte("many")}, {Name: redrive.HeaderReason, Value: []byte("bored")},
		{Name: headername.FirstFailure, Value: []byte("{")},
	}}
	s, ok := TakeHistory(&m)
	if !ok || s.Attempts != 0 || len(m.Headers) != 2 || s.History.First == nil {
		t.Errorf("%+v %+v", s, m.Headers)
	}
}

func TestAnOriginalComesBackAsItWas(t *testing.T) {
	for _, want := range []Original{
		{Topic: "orders", Partition: 0, Offset: 7, Group: "shop", At: day},
		{Partition: -1, Offset: -1, Exchange: "shop", RoutingKey: "orders.new", Queue: "orders"},
		{Partition: -1, Offset: 9, Stream: "ORDERS", Subject: "orders.new"},
	} {
		h := want.Headers()
		got, ok := ReadOriginal(h)
		if d := cmp.Diff(want, got); d != "" || !ok {
			t.Error(ok, d)
		}
		for _, one := range h {
			if !IsOriginal(one.Name) {
				t.Errorf("%s is none", one.Name)
			}
		}
	}
	if o, ok := ReadOriginal(redrive.Headers{{Name: headername.OriginalPartition, Value: []byte("x")}}); ok || o.Partition != -1 {
		t.Errorf("%+v", o)
	}
}
