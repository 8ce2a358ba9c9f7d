package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrNoHandler says that nobody handles the message's kind. The engine warns, and
// retries such a message by its policy, as a deploy may catch up; at its end it is dead
// as unroutable.
var ErrNoHandler = errors.New("no handler for kind")

// DecodeError says that a body is not what its kind says. The message becomes a
// dead letter (undecodable) with its raw bytes.
type DecodeError struct {
	Kind string
	Err  error
}

// Error implements error.
func (e *DecodeError) Error() string { return fmt.Sprintf("body of kind %q: %v", e.Kind, e.Err) }

// ErrorName implements NamedError.
func (*DecodeError) ErrorName() string { return "redrive.DecodeError" }

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// Mux chooses a handler by the message's kind. It is safe for concurrent use.
type Mux struct {
	mu       sync.RWMutex
	handlers map[string]Handler
	kinds    []string // sorted; replaced, never changed
	fallback Handler
}

// NewMux returns an empty Mux.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Register ties a kind to a handler. It replaces an earlier one of the same kind.
func (m *Mux) Register(kind string, h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handlers[kind] = h
	m.kinds = slices.Sorted(maps.Keys(m.handlers))
}

// Fallback handles every kind that has no handler of its own.
func (m *Mux) Fallback(h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fallback = h
}

// Handle implements Handler.
func (m *Mux) Handle(ctx context.Context, d *Delivery) error {
	m.mu.RLock()
	h, ok := m.handlers[d.Kind]
	if !ok {
		h = m.fallback
	}
	m.mu.RUnlock()
	if h == nil {
		return fmt.Errorf("%w %q", ErrNoHandler, d.Kind)
	}
	return h.Handle(ctx, d)
}

// Kinds returns the kinds that are handled, sorted, and whether there is a fallback
// for all others. The engine claims these first, and once a minute what no instance
// handles. The slice must not be changed.
func (m *Mux) Kinds() (kinds []string, all bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.kinds, m.fallback != nil
}

// Handle registers a function for one kind of message, whose body is JSON of T.
// Unknown fields are ignored, as senders are often ahead of receivers; a body that
// does not decode is a dead letter. With T []byte, string or json.RawMessage the body
// is passed as it is. The [Delivery] itself is at hand by [DeliveryFrom].
func Handle[T any](m *Mux, kind string, f func(ctx context.Context, body T) error) {
	m.Register(kind, HandlerFunc(func(ctx context.Context, d *Delivery) error {
		var v T
		if err := decode(d, &v); err != nil {
			return err
		}
		return f(ctx, v)
	}))
}

func decode(d *Delivery, v any) error {
	switch p := v.(type) {
	case *[]byte:
		*p = d.Body
		return nil
	case *json.RawMessage:
		*p = d.Body
		return nil
	case *string:
		*p = string(d.Body)
		return nil
	}
	if err := json.Unmarshal(d.Body, v); err != nil {
		return &DecodeError{Kind: d.Kind, Err: err}
	}
	return nil
}
