package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/redrive/redrive/internal/problem"
)

// hold ties a request to the life of what allows it, such as its token.
type hold struct {
	request context.Context //nolint:containedctx // the request's own, under which is committed
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	bodies []*pacedBody     // that are being read
	why    *problem.Problem // life is over
	over   bool             // the request is answered
}

type holdKey struct{}

// Within returns the request with a context that ends with life, too, and with its cause.
// If that is a [problem.Problem], a body that is being read then fails with it, and a
// stream of NDJSON ends with it as its last line. What is being committed is let
// through, and answered. The caller calls release when the request is answered.
func Within(life context.Context, r *http.Request) (_ *http.Request, release func()) {
	h := &hold{request: r.Context()}
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), holdKey{}, h))
	h.cancel = cancel
	stop := context.AfterFunc(life, func() { h.end(context.Cause(life)) })
	return r.WithContext(ctx), func() {
		stop()
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
		cancel(nil)
	}
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// end ends the request, unless it is answered: then its connection may be another's.
func (h *hold) end(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	h.cancel(cause)
	if !errors.As(cause, &h.why) {
		return
	}
	for _, b := range h.bodies {
		b.stop(h.why)
	}
}

// reads notes a body that is to end with the request.
func (h *hold) reads(b *pacedBody) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bodies = append(h.bodies, b); h.why != nil {
		b.stop(h.why)
	}
}

// Ended returns why the life within which a request was made is over; nil: it is not, or
// the request ended for another reason.
func Ended(ctx context.Context) *problem.Problem {
	var p *problem.Problem
	if ctx.Err() == nil || !errors.As(context.Cause(ctx), &p) {
		return nil
	}
	return p
}

// Lasting returns the context for what is not to be cut off when the life of a request
// is over: its outcome would not be known.
func Lasting(ctx context.Context) context.Context {
	if h := holdOf(ctx); h != nil {
		return h.request
	}
	return ctx
}

type waitingKey struct{}

// committing returns the context under which a stream commits. That its body is not read
// to the end, for whatever reason, ends the context of its request.
func committing(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), waitingKey{}, ctx)
}

// Waiting returns the context for waits of a [redrive.Sink] that the gateway publishes to:
// they end with the request, while what is being committed does not.
func Waiting(ctx context.Context) context.Context {
	if w, ok := ctx.Value(waitingKey{}).(context.Context); ok {
		return w
	}
	return ctx
}
