package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/text"
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

// Mux chooses a handler by the message's kind. It is safe for concurrent use. What is
// wrong with a registration is reported when an engine is given the Mux; what is
// registered after that is handled, without its options.
type Mux struct {
	mu       sync.RWMutex
	handlers map[string]*Registration
	kinds    []string // sorted; replaced, never changed
	fallback *Registration
	errs     []error
}

// Registration is a handler with the kinds that it handles and what holds for them.
type Registration struct {
	Handler     Handler
	Kinds       []string
	Policy      *Policy       // nil: that of the queue
	Timeout     time.Duration // 0: that of the policy
	Concurrency int           // 0: no limit of its own
}

// HandleOption sets what holds for the messages of one handler.
type HandleOption func(*Registration)

// ForKind names kinds that the handler handles, too: those of a body whose type does
// not name one, and the former names of a renamed kind. The kind "" is that of messages
// without one, as brokers have them.
func ForKind(kinds ...string) HandleOption {
	return func(r *Registration) { r.Kinds = append(r.Kinds, kinds...) }
}

// WithPolicy sets the policy of the handler's messages, in place of the queue's.
func WithPolicy(p Policy) HandleOption { return func(r *Registration) { r.Policy = &p } }

// WithTimeout bounds an attempt, in place of [Policy.Timeout].
func WithTimeout(d time.Duration) HandleOption { return func(r *Registration) { r.Timeout = d } }

// WithConcurrency bounds how many of the handler's messages one process handles at
// once. More of them are not claimed meanwhile. A kind with such a bound keeps it when it is
// slow; any other that holds its slots for longer than a second each gets those that other
// kinds leave.
func WithConcurrency(n int) HandleOption { return func(r *Registration) { r.Concurrency = n } }

// NewMux returns an empty Mux.
func NewMux() *Mux { return &Mux{handlers: make(map[string]*Registration)} }

// Handle registers a handler for messages of a kind. [Handle] registers a function of a
// decoded body.
func (m *Mux) Handle(kind string, h Handler, o ...HandleOption) {
	m.register(&Registration{Handler: h, Kinds: []string{kind}}, o)
}

func (m *Mux) register(r *Registration, o []HandleOption) {
	for _, set := range o {
		set(r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := r.check(); err != nil {
		m.errs = append(m.errs, err)
		return
	}
	for _, kind := range r.Kinds {
		if _, twice := m.handlers[kind]; twice {
			m.errs = append(m.errs, invalidHandler("kind %q is registered twice", kind))
			continue
		}
		m.handlers[kind] = r
	}
	m.kinds = slices.Sorted(maps.Keys(m.handlers))
}

// check reports a registration that makes no sense.
func (r *Registration) check() error {
	switch {
	case len(r.Kinds) == 0:
		return invalidHandler("it has no kind: give the body's type a method Kind() string, or use ForKind")
	case r.Handler == nil:
		return invalidHandler("nil, for kind %q", r.Kinds[0])
	case r.Timeout < 0, r.Concurrency < 0:
		return invalidHandler("of kind %q: timeout and concurrency are zero (default) or more", r.Kinds[0])
	}
	for _, kind := range r.Kinds {
		if len(kind) > MaxKindLength || !text.Printable(kind) {
			return invalidHandler("kind of %d bytes: a kind is at most %d bytes of printable UTF-8", len(kind), MaxKindLength)
		}
	}
	return nil
}

func invalidHandler(format string, args ...any) error {
	return fmt.Errorf("%w handler: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Err returns what was wrong with the registrations so far, joined; nil if nothing was.
// The engine asks before it starts.
func (m *Mux) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return errors.Join(m.errs...)
}

// Fallback handles every kind that has no handler of its own. There is at most one.
func (m *Mux) Fallback(h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case h == nil:
		m.errs = append(m.errs, invalidHandler("nil, as the fallback"))
	case m.fallback != nil:
		m.errs = append(m.errs, invalidHandler("the fallback is registered twice"))
	default:
		m.fallback = &Registration{Handler: h}
	}
}

// Lookup returns what is registered for a kind, or else the fallback, or nil. It must
// not be changed.
func (m *Mux) Lookup(kind string) *Registration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r, ok := m.handlers[kind]; ok {
		return r
	}
	return m.fallback
}

// ServeDelivery implements Handler.
func (m *Mux) ServeDelivery(ctx context.Context, d *Delivery) error {
	r := m.Lookup(d.Kind)
	if r == nil {
		return fmt.Errorf("%w %q", ErrNoHandler, d.Kind)
	}
	return r.Handler.ServeDelivery(ctx, d)
}

// Kinds returns the kinds that are handled, sorted, and whether there is a fallback
// for all others. The engine claims these first, and once a minute what no instance
// handles. The slice must not be changed.
func (m *Mux) Kinds() (kinds []string, all bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.kinds, m.fallback != nil
}

// Handle registers a function for messages whose body is JSON of T. The kind is what
// the type's method Kind() string says, of T or *T; [ForKind] names others. Unknown
// fields are ignored, as senders are often ahead of receivers; a body that does not
// decode is a dead letter. With T []byte, string or json.RawMessage the body is passed as
// it is. The [Delivery] itself is at hand by [DeliveryFrom].
func Handle[T any](m *Mux, f func(ctx context.Context, body T) error, o ...HandleOption) {
	t := reflect.TypeFor[T]()
	pointer := t.Kind() == reflect.Pointer
	r := &Registration{}
	if f != nil {
		r.Handler = HandlerFunc(func(ctx context.Context, d *Delivery) error {
			var v T
			into := any(&v)
			if pointer { // so that a body of null is no nil pointer
				v, _ = reflect.New(t.Elem()).Interface().(T)
				into = v
			}
			if err := decode(d, into); err != nil {
				return err
			}
			return f(ctx, v)
		})
	}
	if kind, ok := kindOf(t); ok {
		r.Kinds = []string{kind}
	}
	m.register(r, o)
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
