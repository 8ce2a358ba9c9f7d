package tracing_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/telemetry/tracing"
)

func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	all := make(map[attribute.Key]string)
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

func TestAttemptsAreLinkedToTheirPublish(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSyncer(kept)))
	msgs := []redrive.Message{{ID: "a", Queue: "sms"}, {ID: "b", Queue: "sms"}}
	const foreign = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	msgs[1].Headers.Add("traceparent", foreign)
	tracer.Send(t.Context(), msgs)([]error{nil, redrive.ErrBacklogged})
	spans := kept.GetSpans()
	if len(spans) != 2 || spans[0].Name != "send sms" || spans[0].SpanKind != trace.SpanKindProducer {
		t.Fatalf("%+v", spans)
	}
	parent, _ := msgs[0].Headers.Get("traceparent")
	if !strings.Contains(parent, spans[0].SpanContext.TraceID().String()+"-"+spans[0].SpanContext.SpanID().String()) {
		t.Errorf("traceparent %q of %v", parent, spans[0].SpanContext)
	}
	if own, _ := msgs[1].Headers.Get("traceparent"); own != foreign || spans[1].Parent.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("%q %v", own, spans[1].Parent)
	}
	kept.Reset()

	d := &redrive.Delivery{Message: msgs[0], Attempt: 2}
	d.Redrives, d.Plan = 1, "p"
	tracer.Observe(&engine.Observation{Occasion: engine.OnEnd, Queue: "sms", Delivery: d, Duration: time.Second, Err: errors.New("the customer's secret"),
		Settlement: &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonExhausted}})
	tracer.Observe(&engine.Observation{Occasion: engine.OnClaim, Queue: "sms"})
	got := kept.GetSpans()
	if len(got) != 1 || got[0].Name != "process sms" || got[0].SpanKind != trace.SpanKindConsumer || got[0].EndTime.Sub(got[0].StartTime) != time.Second {
		t.Fatalf("%+v", got)
	}
	if got[0].SpanContext.TraceID() == spans[0].SpanContext.TraceID() || len(got[0].Links) != 1 || got[0].Links[0].SpanContext.SpanID() != spans[0].SpanContext.SpanID() {
		t.Errorf("links %+v", got[0].Links)
	}
	a := attributes(got[0])
	if a["redrive.outcome"] != "dead" || a["redrive.reason"] != "exhausted" || a["redrive.plan"] != "p" || a["redrive.count"] != "1" || a["redrive.attempt"] != "2" || a["messaging.message.id"] != "a" {
		t.Errorf("%v", a)
	}
	if strings.Contains(got[0].Status.Description, "secret") || a["error.type"] == "" {
		t.Errorf("%+v", got[0].Status)
	}
}

// An attempt of a queue that asks for it is a part of the publish's trace.
func TestAttemptsAreChildrenOfTheirPublish(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSyncer(kept)), tracing.WithChildren(func(queue string) bool { return queue == "sms" }))
	for _, queue := range []string{"sms", "mail"} {
		kept.Reset()
		msgs := []redrive.Message{{ID: "a", Queue: queue}}
		tracer.Send(t.Context(), msgs)(nil)
		tracer.Observe(&engine.Observation{Occasion: engine.OnEnd, Queue: queue, Delivery: &redrive.Delivery{Message: msgs[0]}})
		spans := kept.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("%+v", spans)
		}
		sent, attempt := spans[0], spans[1]
		if child := attempt.Parent.SpanID() == sent.SpanContext.SpanID() && len(attempt.Links) == 0; child != (queue == "sms") {
			t.Errorf("%s: parent %v, links %v", queue, attempt.Parent, attempt.Links)
		}
	}
}

func TestAHandlerSeesTheSpanOfItsAttempt(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSyncer(kept)))
	const published = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	d := &redrive.Delivery{Message: redrive.Message{ID: "a", Queue: "sms", Headers: redrive.Headers{
		{Name: "Traceparent", Value: []byte(published)}, {Name: "traceparent", Value: []byte(published)}, {Name: "tracestate", Value: []byte("vendor=1")}, {Name: "own", Value: []byte("stays")},
	}}, Attempt: 1}
	before := d.Headers.Clone()
	var parents []string
	h := tracer.Handler(redrive.HandlerFunc(func(ctx context.Context, own *redrive.Delivery) error {
		parent, _ := own.Headers.Get("traceparent")
		parents = append(parents, parent)
		if span := trace.SpanContextFromContext(ctx); !strings.Contains(parent, span.TraceID().String()+"-"+span.SpanID().String()) {
			t.Errorf("traceparent %q, in the context %v", parent, span)
		}
		if len(own.Headers) != 2 || own.ID != "a" || own.Attempt != 1 {
			t.Errorf("%+v", own)
		}
		return errors.New("not yet")
	}))
	for range 2 { // tried again at once, which is the same attempt
		if err := h.ServeDelivery(t.Context(), d); err == nil {
			t.Error("the error is lost")
		}
	}
	if len(kept.GetSpans()) != 0 {
		t.Error("a span ended before its attempt")
	}
	tracer.Observe(&engine.Observation{Occasion: engine.OnEnd, Queue: "sms", Delivery: d, Settlement: &driver.Settlement{Outcome: redrive.OutcomeRetry}})
	spans := kept.GetSpans()
	if len(spans) != 1 || parents[0] != parents[1] || !strings.Contains(parents[0], spans[0].SpanContext.SpanID().String()) {
		t.Fatalf("%v, spans %+v", parents, spans)
	}
	if l := spans[0].Links; len(l) != 1 || l[0].SpanContext.SpanID().String() != "00f067aa0ba902b7" || spans[0].Parent.IsValid() {
		t.Errorf("links %+v, parent %v", l, spans[0].Parent)
	}
	if attributes(spans[0])["redrive.outcome"] != "retry" {
		t.Errorf("%v", spans[0].Attributes)
	}
	if !reflect.DeepEqual(d.Headers, before) {
		t.Errorf("the message changed: %v", d.Headers)
	}
	_ = h.ServeDelivery(t.Context(), d) // the next attempt
	if parents[2] == parents[0] {
		t.Error("the next attempt has the same span")
	}
}

// A mux whose attempts are spans still says which kinds it handles.
func TestKindsOfAMuxAreShown(t *testing.T) {
	mux := redrive.NewMux()
	mux.Handle("otp", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil }))
	r, ok := tracing.New(sdk.NewTracerProvider()).Handler(mux).(driver.Registry)
	if !ok || r.Lookup("otp") == nil {
		t.Error("the kinds are hidden")
	}
}
