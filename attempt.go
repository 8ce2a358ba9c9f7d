package redrive

import (
	"context"
	"fmt"

	"github.com/redrive/redrive/internal/handling"
)

// attempt is one run of a handler, as its context knows it. The engine implements it.
type attempt interface {
	Delivery() *Delivery
	Emit(m Message) error
	Reply(body []byte, headers Headers)
}

func attemptOf(ctx context.Context) attempt {
	a, _ := ctx.Value(handling.Key{}).(attempt)
	return a
}

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
// [ErrInvalid] for a message that no store would take and outside a handler, and
// [ErrBacklogged] when the message's queue is above its limit. An ID of another message,
// with another body, is found when the handler has returned: the handled message is then a
// dead letter ([ReasonPermanent]), as another attempt cannot help. Emit is safe for
// concurrent use within the handler.
func Emit(ctx context.Context, m Message) error {
	a := attemptOf(ctx)
	if a == nil {
		return &Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: fmt.Errorf("%w context: it is not that of a running handler", ErrInvalid),
			Hint: "pass the context that the handler got"}
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
