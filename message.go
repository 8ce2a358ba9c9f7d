package redrive

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Limits that every backend can hold. The gateway may be configured lower.
const (
	MaxBodySize   = 16 << 20          // bytes of a message's body
	MaxHeaderSize = 64 << 10          // bytes of all header names and values together
	MaxHeaders    = 256               // number of headers
	MaxIDLength   = text.MaxIDLength  // bytes of an id
	MaxKindLength = 128               // bytes of a kind
	MaxKeyLength  = 256               // bytes of a key
	MaxQueueName  = text.MaxQueueName // bytes of a queue's name

	maxOrigin = 1 << 10 // bytes of a native position
)

// Message is what is published and delivered. The zero value of every field but
// Queue is usable.
type Message struct {
	// ID names the message within its queue: 1-128 characters of [A-Za-z0-9_:-].
	// An id that the caller chose makes publishing idempotent: the store remembers
	// it beyond the message's life (see [driver.QueueSettings.Remember]). When it is
	// empty, the Sink fills in a new UUIDv7, which is not remembered.
	ID string
	// Queue is where the message waits: 1-64 characters of [a-z0-9._-].
	Queue string
	// Kind is the message's type, by which a [Mux] chooses the handler. Optional.
	Kind string
	// Key groups messages: in a queue with order by key, messages of one key are
	// handled one after the other. Optional.
	Key string
	// Headers travel with the message unchanged and in order. Names that begin
	// with "redrive-" are reserved.
	Headers Headers
	// Body is opaque: it is delivered byte for byte as it came.
	Body []byte

	// Delay postpones the first delivery, by the store's clock. When both are set,
	// the later of Delay and DeliverAt decides.
	Delay time.Duration
	// DeliverAt is the earliest time of the first delivery.
	DeliverAt time.Time
	// ExpiresAt is when the message is no longer worth delivering; zero: never.
	ExpiresAt time.Time
	// ReplyTo asks for one result message when the message ends. It is the name of
	// a queue, or "session:NAME" for a session of the gateway.
	ReplyTo string

	// PublishedAt is when the store accepted the message, by the store's clock.
	// Publish ignores what the caller put there; [driver.Store.Apply] keeps it for an
	// Entry if it is set.
	PublishedAt time.Time

	Lineage
}

// Lineage tells where a message came from. The store and the engine keep it.
type Lineage struct {
	Generation int    // 0 at first; a redrive or a repeat raises it by one
	Redrives   int    // how often the message was redriven
	Plan       string // the plan that redrove or repaired it last
	Origin     string // "queue/id" or the native position it came from, if it moved
	EditedFrom string // "queue/id" of the message this was edited from under a new id
}

// Ref names a message.
type Ref struct{ Queue, ID string }

// String returns "queue/id".
func (r Ref) String() string { return r.Queue + "/" + r.ID }

// Ref returns the name of the message.
func (m *Message) Ref() Ref { return Ref{Queue: m.Queue, ID: m.ID} }

// Size is the number of bytes that count towards limits: body, headers, key, kind
// and id.
func (m *Message) Size() int {
	return len(m.Body) + m.Headers.Size() + len(m.Key) + len(m.Kind) + len(m.ID)
}

// Validate reports what keeps the message from being accepted, as an [Error] that
// wraps [ErrInvalid]. An empty ID is valid: the Sink fills it in.
func (m *Message) Validate() error {
	invalid := func(what, hint string) error {
		id := m.ID
		if text.CheckID(ErrInvalid, id) != nil {
			id = ""
		}
		return &Error{Op: "publish", Queue: m.Queue, ID: id, Err: fmt.Errorf("%w message: %s", ErrInvalid, what), Hint: hint}
	}
	if err := text.CheckQueue(ErrInvalid, m.Queue); err != nil {
		return &Error{Op: "publish", Err: err, Hint: "choose another queue name"}
	}
	if m.ID != "" {
		if err := text.CheckID(ErrInvalid, m.ID); err != nil {
			return &Error{Op: "publish", Queue: m.Queue, Err: err, Hint: "use 1-128 characters of A-Z a-z 0-9 _ : -"}
		}
	}
	switch {
	case len(m.Kind) > MaxKindLength || !text.Printable(m.Kind):
		return invalid(fmt.Sprintf("kind of %d bytes", len(m.Kind)), "a kind is at most 128 bytes of printable UTF-8")
	case len(m.Key) > MaxKeyLength || !text.Printable(m.Key):
		return invalid(fmt.Sprintf("key of %d bytes", len(m.Key)), "a key is at most 256 bytes of printable UTF-8")
	case len(m.ReplyTo) > MaxKeyLength || !text.Printable(m.ReplyTo):
		return invalid("reply-to", "name a queue, or session:NAME")
	case len(m.Body) > MaxBodySize:
		return invalid(fmt.Sprintf("body of %d bytes", len(m.Body)), fmt.Sprintf("a body is at most %d bytes; keep large data elsewhere and send a reference", MaxBodySize))
	case len(m.Headers) > MaxHeaders:
		return invalid(fmt.Sprintf("%d headers", len(m.Headers)), fmt.Sprintf("at most %d headers", MaxHeaders))
	case m.Headers.Size() > MaxHeaderSize:
		return invalid(fmt.Sprintf("%d bytes of headers", m.Headers.Size()), fmt.Sprintf("at most %d bytes of headers", MaxHeaderSize))
	case m.Delay < 0:
		return invalid(fmt.Sprintf("delay of %s", m.Delay), "a delay is zero or more")
	case !text.Dated(m.DeliverAt) || !text.Dated(m.ExpiresAt):
		return invalid("moment beyond the year 9999", "a moment lies within the years 1 to 9999, in UTC")
	case m.Lineage != (Lineage{}) && !m.Lineage.valid():
		return invalid("lineage", "numbers are within 0 and 2147483647; a plan is at most 128 bytes of printable UTF-8, what it was edited from 256, its origin 1024")
	}
	for _, h := range m.Headers {
		if h.Name == "" || len(h.Name) > MaxKindLength || !text.Printable(h.Name) {
			return invalid(fmt.Sprintf("header name %q", h.Name), "a header name is 1-128 bytes of printable UTF-8")
		}
	}
	return nil
}

// valid reports whether the columns of every store hold the lineage.
func (l *Lineage) valid() bool {
	short := func(s string, most int) bool { return len(s) <= most && text.Printable(s) }
	number := func(n int) bool { return n >= 0 && n <= math.MaxInt32 }
	return number(l.Generation) && number(l.Redrives) && short(l.Plan, MaxIDLength) && short(l.EditedFrom, MaxKeyLength) && short(l.Origin, maxOrigin)
}

// Clone returns a deep copy.
func (m *Message) Clone() Message {
	c := *m
	c.Body = bytes.Clone(m.Body)
	c.Headers = m.Headers.Clone()
	return c
}
