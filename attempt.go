package redrive

import (
	"context"
	"errors"
)

// Attempt is one run of a handler, as its context knows it. The engine implements it;
// a test may do so, too. It is safe for concurrent use within the handler.
type Attempt interface {
	// Delivery is what the handler was given.
	Delivery() *Delivery
	// Emit adds a message to what success publishes; see [Emit].
	Emit(m Message) error
	// Reply sets body and headers of the result; see [Reply].
	Reply(body []byte, headers Headers)
}

// AttemptKey is the key under which the context of a handler knows its [Attempt].
type AttemptKey struct{}

func attemptOf(ctx context.Context) Attempt {
	a, _ := ctx.Value(AttemptKey{}).(Attempt)
	return a
}

// ErrNotHandling is returned by what works only inside a handler, with its context.
var ErrNotHandling = errors.New("the context is not that of a handler that runs")

// DeliveryFrom returns the delivery that a handler's context belongs to.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	if a := attemptOf(ctx); a != nil {
		return a.Delivery(), true
	}
	return nil, false
}

// Emit adds a message to what the handler's success publishes: it becomes durable
// in the same atomic step as the settlement where source and store are one, else
// just before it. If the attempt fails, nothing is emitted. Without an ID it gets
// one derived from the handled message, its generation and the order of the calls,
// so that a repeated attempt does not emit twice. It returns an error that wraps
// [ErrInvalid] for a message that no store would take, [ErrBacklogged] when its
// queue is above its limit, and [ErrNotHandling] outside a handler. It is safe for
// concurrent use within the handler.
func Emit(ctx context.Context, m Message) error {
	a := attemptOf(ctx)
	if a == nil {
		return &Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: ErrNotHandling, Hint: "pass the context that the handler got"}
	}
	return a.Emit(m)
}

// Reply sets body and headers of the result that the message emits when it is done,
// if it has a ReplyTo. Outside a handler it does nothing.
func Reply(ctx context.Context, body []byte, headers Headers) {
	if a := attemptOf(ctx); a != nil {
		a.Reply(body, headers)
	}
}
