package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/middleware"
)

// deliver calls a handler as the engine does.
func deliver(h redrive.Handler, id, kind string) error {
	m := redrive.Message{Queue: "sms", ID: id, Kind: kind}
	m.Headers.Add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	return h.ServeDelivery(context.Background(), &redrive.Delivery{Message: m, Attempt: 1})
}

var sent = redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
	fmt.Println("sent", d.ID)
	return nil
})

// Middlewares wrap a handler; the first is the outermost.
func ExampleChain() {
	hello := func(h redrive.Handler) redrive.Handler {
		return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			fmt.Println("before", d.ID)
			defer fmt.Println("after", d.ID)
			return h.ServeDelivery(ctx, d)
		})
	}
	h := middleware.Chain(redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		fmt.Println("handling", d.ID)
		return nil
	}), hello, middleware.Timeout(time.Second))
	_ = h.ServeDelivery(context.Background(), &redrive.Delivery{Message: redrive.Message{ID: "m1"}})
	// Output:
	// before m1
	// handling m1
	// after m1
}

func ExampleLogging() {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}}))
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return errors.New("no line") }), middleware.Logging(log))
	_ = deliver(h, "m1", "otp")
	fmt.Print(out.String())
	// Output: level=INFO msg="attempt failed" queue=sms id=m1 kind=otp attempt=1 error="no line"
}

func ExampleRecover() {
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { panic("index out of range") }), middleware.Recover())
	fmt.Println(deliver(h, "m1", "otp"))
	// Output: panic: index out of range
}

func ExampleMetrics() {
	attempts := map[string]int{} // a counter of your metrics library
	h := middleware.Chain(sent, middleware.Metrics(func(d *redrive.Delivery, _ time.Duration, how middleware.Ending, _ error) {
		attempts[fmt.Sprintf("kind=%s ending=%s", d.Kind, how)]++
	}))
	_ = deliver(h, "m1", "otp")
	fmt.Println(attempts)
	// Output:
	// sent m1
	// map[kind=otp ending=done:1]
}

// With OpenTelemetry, start extracts the context from the headers and calls
// tracer.Start; end records the error and ends the span.
func ExampleTracing() {
	type span struct{}
	h := middleware.Chain(redrive.HandlerFunc(func(ctx context.Context, _ *redrive.Delivery) error {
		fmt.Println("handled in", ctx.Value(span{}))
		return nil
	}), middleware.Tracing(func(ctx context.Context, d *redrive.Delivery) (context.Context, func(error)) {
		parent, _ := d.Headers.Get("traceparent")
		ctx = context.WithValue(ctx, span{}, "a span below "+parent)
		return ctx, func(err error) { fmt.Println("ended with", err) }
	}))
	_ = deliver(h, "m1", "otp")
	// Output:
	// handled in a span below 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
	// ended with <nil>
}

func ExampleTimeout() {
	h := middleware.Chain(redrive.HandlerFunc(func(ctx context.Context, _ *redrive.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	}), middleware.Timeout(time.Millisecond))
	fmt.Println(deliver(h, "m1", "otp"))
	// Output: context deadline exceeded
}

func ExampleDedupe() {
	store := memory.New()
	defer store.Close()
	h := middleware.Chain(sent, middleware.Dedupe(store, middleware.DedupeOptions{}))
	_ = deliver(h, "m1", "otp")
	_ = deliver(h, "m1", "otp") // its lease was lost, and it is delivered again
	_ = deliver(h, "m2", "otp")
	// Output:
	// sent m1
	// sent m2
}
