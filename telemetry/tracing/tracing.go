// Package tracing tells OpenTelemetry about messages: a span for each publish, and one
// for each attempt, in a trace of its own and linked to the publish, or as its child. It uses the API of
// OpenTelemetry only; the program brings the SDK.
package tracing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/errname"
	"github.com/redrive/redrive/middleware"
)

// Tracer makes spans. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	child  func(queue string) bool
	format propagation.TraceContext
	begun  sync.Map // *redrive.Delivery -> trace.Span, of the attempts of Handler
}

// New returns a Tracer of a provider.
func New(p trace.TracerProvider, options ...Option) *Tracer {
	t := &Tracer{tracer: p.Tracer("github.com/redrive/redrive"), child: func(string) bool { return false }}
	for _, set := range options {
		set(t)
	}
	return t
}

// Option sets how a Tracer works.
type Option func(*Tracer)

// WithChildren says for which queues an attempt is a child of the publish's span, in its trace,
// instead of a trace of its own that is linked to it. That reads well where messages are delivered
// within seconds; with retries over hours a trace becomes long, and sampling by its root decides
// for all attempts. child is called for each attempt, concurrently.
func WithChildren(child func(queue string) bool) Option { return func(t *Tracer) { t.child = child } }

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

// begin starts the span of an attempt, in a trace of its own and linked to what published
// the message, or as its child, also after a redrive.
func (t *Tracer) begin(ctx context.Context, d *redrive.Delivery, at time.Time) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(at),
		trace.WithAttributes(
			attribute.String("messaging.system", system), attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", d.Queue), attribute.String("messaging.message.id", d.ID),
			attribute.Int("redrive.attempt", d.Attempt), attribute.Int("redrive.count", d.Redrives), attribute.String("redrive.kind", d.Kind)),
	}
	origin := trace.SpanContextFromContext(t.format.Extract(context.Background(), headers{&d.Headers}))
	switch {
	case origin.IsValid() && t.child(d.Queue):
		ctx = trace.ContextWithRemoteSpanContext(ctx, origin)
	case origin.IsValid():
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: origin}))
	default:
		options = append(options, trace.WithNewRoot())
	}
	return t.tracer.Start(ctx, "process "+d.Queue, options...)
}

// Handler returns a handler whose attempts are spans from their beginning: h finds the
// span in its context, and its traceparent in the headers of the message in place of that
// of the publish, so that what it calls becomes a part of the attempt's trace. h gets a
// copy of the delivery; the message itself stays as it is. The engine that calls it must
// have the Tracer as its Observer, which ends the spans. What h knows of its kinds stays known.
func (t *Tracer) Handler(h redrive.Handler) redrive.Handler {
	return middleware.Chain(h, t.wrap)
}

func (t *Tracer) wrap(h redrive.Handler) redrive.Handler {
	return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		var span trace.Span
		if begun, ok := t.begun.Load(d); ok { // tried again at once, in the same attempt
			span = begun.(trace.Span)
			ctx = trace.ContextWithSpan(ctx, span)
		} else {
			ctx, span = t.begin(ctx, d, time.Now())
			t.begun.Store(d, span)
		}
		own := *d
		own.Headers = make(redrive.Headers, 0, len(d.Headers)+2)
		for _, header := range d.Headers {
			if !slices.ContainsFunc(t.format.Fields(), func(name string) bool { return strings.EqualFold(name, header.Name) }) {
				own.Headers = append(own.Headers, header)
			}
		}
		t.format.Inject(ctx, headers{&own.Headers})
		return h.ServeDelivery(ctx, &own)
	})
}

// Observe implements engine.Observer: an attempt that ended is a span.
func (t *Tracer) Observe(o *engine.Observation) {
	if o.Occasion != engine.OnEnd || o.Delivery == nil {
		return
	}
	d, now := o.Delivery, time.Now()
	var span trace.Span
	if begun, ok := t.begun.LoadAndDelete(d); ok {
		span = begun.(trace.Span)
	} else {
		_, span = t.begin(context.Background(), d, now.Add(-o.Duration))
	}
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
	if _, asked := driver.Asked(o.Err); o.Err != nil && !asked {
		fail(span, o.Err)
	}
	span.End(trace.WithTimestamp(now))
}

// fail ends a span as failed. The error's text may quote a message, so only its types are reported.
func fail(span trace.Span, err error) {
	kind := errname.Chain(err)[0]
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, kind)
}

var _ engine.Observer = (*Tracer)(nil)
