package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// PublishOption sets a part of the message that [Publish] makes.
type PublishOption func(*publishing)

// publishing is what the options of a call say.
type publishing struct {
	Message
	duplicate *bool
}

// WithID names the message. An id that the caller chose makes publishing idempotent;
// see [Message.ID].
func WithID(id string) PublishOption { return func(m *publishing) { m.ID = id } }

// WithKind sets the message's type, by which a [Mux] chooses the handler.
func WithKind(kind string) PublishOption { return func(m *publishing) { m.Kind = kind } }

// WithKey groups the message with others; see [Message.Key].
func WithKey(key string) PublishOption { return func(m *publishing) { m.Key = key } }

// WithDelay postpones the first delivery, by the store's clock.
func WithDelay(d time.Duration) PublishOption { return func(m *publishing) { m.Delay = d } }

// WithDeliverAt postpones the first delivery to a time.
func WithDeliverAt(t time.Time) PublishOption { return func(m *publishing) { m.DeliverAt = t } }

// WithExpiry sets when the message is no longer worth delivering.
func WithExpiry(t time.Time) PublishOption { return func(m *publishing) { m.ExpiresAt = t } }

// WithReplyTo asks for a result message when the message ends; see [Message.ReplyTo].
func WithReplyTo(queue string) PublishOption { return func(m *publishing) { m.ReplyTo = queue } }

// WithHeader adds a header.
func WithHeader(name, value string) PublishOption {
	return func(m *publishing) { m.Headers.Add(name, value) }
}

// WithDuplicate sets *was to whether the message was there already when [Publish]
// returns nil: same queue, id, kind, key and body. It was then not stored again.
func WithDuplicate(was *bool) PublishOption { return func(m *publishing) { m.duplicate = was } }

// A Sink makes messages durable before it returns. An item's result is nil,
// [ErrDuplicate] (it was there), [ErrConflict] (same id, but another body, kind or
// key), [ErrBacklogged], an error that wraps [ErrInvalid], or a fault. Messages with an
// empty ID get one, written into msgs. It is safe for concurrent use.
type Sink interface {
	Publish(ctx context.Context, msgs []Message) []error
}

// Publish makes one message durable: when it returns nil, the message will be
// delivered or will stand among the dead letters. A body of type []byte, string or
// json.RawMessage is taken as it is, any other is encoded as JSON. The kind is that of
// [WithKind], or else what the body's method Kind() string says.
//
// Publishing the same again under the id that the caller chose succeeds, and stores
// nothing; [WithDuplicate] tells. So Publish may be repeated until it succeeds, also
// after [ErrUnknown]. An error is an [*Error] with queue and id: it wraps [ErrConflict]
// if another body, kind or key was accepted under the id, [ErrInvalid] for what no
// store would take, [ErrBacklogged], or a fault of the store. It is safe for concurrent
// use.
func Publish(ctx context.Context, sink Sink, queue string, body any, o ...PublishOption) error {
	p, err := prepare(queue, body, o)
	if err != nil {
		return err
	}
	msgs := []Message{p.Message}
	errs := sink.Publish(ctx, msgs)
	if len(errs) > 0 {
		err = errs[0]
	}
	duplicate := errors.Is(err, ErrDuplicate)
	if p.duplicate != nil {
		*p.duplicate = duplicate
	}
	if err == nil || duplicate {
		return nil
	}
	if placed := (*Error)(nil); errors.As(err, &placed) && placed.Queue != "" {
		return err
	}
	return &Error{Op: "publish", Queue: queue, ID: msgs[0].ID, Err: err}
}

// NewMessage makes a message as [Publish] does, without publishing it: for batches,
// for [Emit], and for those who need its id.
func NewMessage(queue string, body any, o ...PublishOption) (Message, error) {
	p, err := prepare(queue, body, o)
	return p.Message, err
}

func prepare(queue string, body any, o []PublishOption) (publishing, error) {
	m := publishing{Message: Message{Queue: queue}}
	if k, ok := body.(interface{ Kind() string }); ok {
		m.Kind = k.Kind()
	}
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
			return publishing{}, &Error{Op: "publish", Queue: queue, Err: fmt.Errorf("%w body: %w", ErrInvalid, err),
				Hint: "the body is neither bytes, a string nor something that encodes as JSON"}
		}
	}
	if err := m.Validate(); err != nil {
		return publishing{}, err
	}
	return m, nil
}
