// Package tracing tells OpenTelemetry about messages: a span for each publish, and one
// for each attempt, in a trace of its own and linked to the publish. It uses the API of
// OpenTelemetry only; the program brings the SDK.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/redrive/redrive"
)

// Tracer makes spans. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	format propagation.TraceContext
}

// New returns a Tracer of a provider.
func New(p trace.TracerProvider) *Tracer {
	return &Tracer{tracer: p.Tracer("github.com/redrive/redrive")}
}

const system = "redrive"

// headers carries a trace's context in the headers of a message.
type headers struct{ h *redrive.Headers }

func (c headers) Get(name string) string { v, _ := c.h.Get(name); return v }
func (c headers) Set(name, value string) { c.h.Set(name, value) }
func (c headers) Keys() (all []string) {
	for i := range *c.h {
		all = append(all, (*c.h)[i].Name)
	}
	return all
}

// Send begins a span for each message that is about to be published, and puts its
// context into the headers of those that carry none. What it returns ends them, with the
// result of the publish.
func (t *Tracer) Send(ctx context.Context, msgs []redrive.Message) (end func(errs []error)) {
	spans := make([]trace.Span, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		parent := t.format.Extract(ctx, headers{&m.Headers})
		with, span := t.tracer.Start(parent, "send "+m.Queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			attribute.String("messaging.system", system), attribute.String("messaging.operation.name", "send"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", m.Queue), attribute.Int("messaging.message.body.size", len(m.Body))))
		spans[i] = span
		if _, there := m.Headers.Get("traceparent"); !there && len(m.Headers) < redrive.MaxHeaders-1 {
			t.format.Inject(with, headers{&m.Headers})
		}
	}
	return func(errs []error) {
		for i, span := range spans {
			span.SetAttributes(attribute.String("messaging.message.id", msgs[i].ID))
			if errs != nil && errs[i] != nil {
				fail(span, errs[i])
			}
			span.End()
		}
	}
}

// Observe implements redrive.Observer: an attempt that ended becomes a span, linked to
// what published the message, also after a redrive.
func (t *Tracer) Observe(o *redrive.Observation) {
	if o.Occasion != redrive.OnEnd || o.Delivery == nil {
		return
	}
	d, now := o.Delivery, time.Now()
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(now.Add(-o.Duration)),
		trace.WithAttributes(
			attribute.String("messaging.system", system), attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", o.Queue), attribute.String("messaging.message.id", d.ID),
			attribute.Int("redrive.attempt", d.Attempt), attribute.Int("redrive.count", d.Redrives), attribute.String("redrive.kind", d.Kind)),
	}
	if origin := trace.SpanContextFromContext(t.format.Extract(context.Background(), headers{&d.Headers})); origin.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: origin}))
	}
	_, span := t.tracer.Start(context.Background(), "process "+o.Queue, options...)
	if s := o.Settlement; s != nil {
		span.SetAttributes(attribute.String("redrive.outcome", s.Outcome.String()))
		if s.Reason != 0 {
			span.SetAttributes(attribute.String("redrive.reason", s.Reason.String()))
		}
		if s.Failure != nil && s.Failure.Signature != "" {
			span.SetAttributes(attribute.String("redrive.signature", s.Failure.Signature))
		}
	}
	if d.Plan != "" {
		span.SetAttributes(attribute.String("redrive.plan", d.Plan))
	}
	if o.Err != nil {
		fail(span, o.Err)
	}
	span.End(trace.WithTimestamp(now))
}

// fail marks a span. The error's text may quote a message, so only its types are told.
func fail(span trace.Span, err error) {
	kind := redrive.ErrorTypes(err)[0]
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, kind)
}

var _ redrive.Observer = (*Tracer)(nil)
