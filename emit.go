package redrive

import (
	"context"
	"errors"
	"strconv"
)

// errNotHandling is returned by what works only inside a handler.
var errNotHandling = errors.New("the context is not that of a handler")

// attemptKey is the context key under which a handler's context knows its attempt.
type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// DeliveryFrom returns the delivery that a handler's context belongs to.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	if a := attemptOf(ctx); a != nil {
		return a.d, true
	}
	return nil, false
}

// Emit adds a message to what the handler's success publishes: it becomes durable
// in the same atomic step as the settlement where source and store are one, else
// just before it. If the attempt fails, nothing is emitted. Without an ID it gets
// one derived from the handled message, its generation and the order of the calls,
// so that a repeated attempt does not emit twice. It returns an error that wraps
// [ErrInvalid] for a message that no store would take, and [ErrBacklogged] when its
// queue is above the watermark. It is safe for concurrent use within the handler.
func Emit(ctx context.Context, m Message) error {
	a := attemptOf(ctx)
	if a == nil {
		return &Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: errNotHandling, Hint: "pass the context that the handler got"}
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if w := a.c.e.opts.Watermarks; w != nil {
		if level, after := w.Level(m.Queue); level == LevelRefused {
			return RetryAfter(&Error{Op: "emit", Queue: m.Queue, Err: ErrBacklogged}, after)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return &Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: errNotHandling, Hint: "the handler has returned, or was given up"}
	}
	if m.ID == "" {
		m.ID = DeriveID("emit", a.d.Queue, a.d.ID, strconv.Itoa(a.d.Generation), strconv.Itoa(len(a.emits)))
	}
	a.emits = append(a.emits, m)
	return nil
}

// Reply sets body and headers of the result that the message emits when it is done,
// if it has a ReplyTo. Outside a handler it does nothing.
func Reply(ctx context.Context, body []byte, headers Headers) {
	a := attemptOf(ctx)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = &reply{body: body, headers: headers}
}

type reply struct {
	body    []byte
	headers Headers
}
