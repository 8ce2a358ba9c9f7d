package redrive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// PublishOption sets a part of the message that [Publish] makes.
type PublishOption func(*Message)

// WithID names the message. An id that the caller chose makes publishing idempotent;
// see [Message.ID].
func WithID(id string) PublishOption { return func(m *Message) { m.ID = id } }

// WithKind sets the message's type, by which a [Mux] chooses the handler.
func WithKind(kind string) PublishOption { return func(m *Message) { m.Kind = kind } }

// WithKey groups the message with others; see [Message.Key].
func WithKey(key string) PublishOption { return func(m *Message) { m.Key = key } }

// WithDelay postpones the first delivery, by the store's clock.
func WithDelay(d time.Duration) PublishOption { return func(m *Message) { m.Delay = d } }

// WithDeliverAt postpones the first delivery to a time.
func WithDeliverAt(t time.Time) PublishOption { return func(m *Message) { m.DeliverAt = t } }

// WithExpiry sets when the message is no longer worth delivering.
func WithExpiry(t time.Time) PublishOption { return func(m *Message) { m.ExpiresAt = t } }

// WithReplyTo asks for a result message when the message ends; see [Message.ReplyTo].
func WithReplyTo(queue string) PublishOption { return func(m *Message) { m.ReplyTo = queue } }

// WithHeader adds a header.
func WithHeader(name, value string) PublishOption {
	return func(m *Message) { m.Headers.Add(name, value) }
}

// A Sink makes messages durable before it returns. An item's result is nil,
// [ErrDuplicate] (it was there), [ErrConflict] (same id, other body),
// [ErrBacklogged], an error that wraps [ErrInvalid], or a fault. Messages with an
// empty ID get one, written into msgs. It is safe for concurrent use.
type Sink interface {
	Publish(ctx context.Context, msgs []Message) []error
}

// Publish makes one message durable: when it returns nil, the message will be
// delivered or will stand among the dead letters. A body of type []byte, string or
// json.RawMessage is taken as it is, any other is encoded as JSON. The kind is that of
// [WithKind], or else what the body's method Kind() string says.
//
// It returns an error that wraps [ErrInvalid] for what no store would take,
// [ErrDuplicate] for a message that was accepted before under the same chosen id
// (which most callers take for success), [ErrConflict], [ErrBacklogged] or a fault of
// the store. After [ErrUnknown] it may be repeated, safely so under a chosen id. It is
// safe for concurrent use.
func Publish(ctx context.Context, sink Sink, queue string, body any, o ...PublishOption) error {
	m, err := NewMessage(queue, body, o...)
	if err != nil {
		return err
	}
	if errs := sink.Publish(ctx, []Message{m}); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// NewMessage makes a message as [Publish] does, without publishing it: for batches,
// for [Emit], and for those who need its id.
func NewMessage(queue string, body any, o ...PublishOption) (Message, error) {
	m := Message{Queue: queue, Kind: kindOfBody(body)}
	for _, set := range o {
		set(&m)
	}
	switch b := body.(type) {
	case []byte:
		m.Body = b
	case json.RawMessage:
		m.Body = b
	case string:
		m.Body = []byte(b)
	default:
		var err error
		if m.Body, err = json.Marshal(body); err != nil {
			return Message{}, &Error{Op: "publish", Queue: queue, Err: fmt.Errorf("%w body: %w", ErrInvalid, err),
				Hint: "the body is neither bytes, a string nor something that encodes as JSON"}
		}
	}
	if err := m.Validate(); err != nil {
		return Message{}, err
	}
	return m, nil
}
