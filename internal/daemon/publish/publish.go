// Package publish delivers messages to a broker in the broker's own form: to one topic,
// queue, subject or stream, or each back to where it came from, which is how dead letters of
// others are redriven (see package attach).
//
// Guarantees. A delivery ends well only after the broker has confirmed it: Kafka with all
// replicas in sync, RabbitMQ with a publisher confirm of a message that could be routed,
// JetStream with the stream's acknowledgement, Redis with the reply to XADD. What is not
// confirmed is tried again, so that a message may be there twice; JetStream recognises it
// within the stream's window of duplicates, since the id of a message and its generation
// make its Nats-Msg-Id.
//
// What is published is the body, the broker's key and the message's own headers, with the
// properties and types that the broker's message had; of Redrive's headers only those that
// the message came with, and redrive-redrives, the number of redrives. It never carries the
// history of its failures.
//
// Where a message may go. The broker is the configured one, whatever a message says. With
// [Origin] its headers name the place within it, and headers are what somebody wrote: only
// places that [Target.Allow] names are published to, the others' messages become
// unroutable dead letters.
package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/text"
)

// Origin as [Target.To] publishes each message to the place that its headers name.
const Origin = "origin"

// DefaultTimeout bounds one attempt.
const DefaultTimeout = 30 * time.Second

// Target is a broker and a place in it. Address and To are needed, and Allow for [Origin].
type Target struct {
	// Address is the broker's: kafka://host:9092, rabbitmq://user:password@host/VHOST,
	// nats://host:4222, redis://host:6379/0. Its password is never shown.
	Address string
	// To is a topic, a queue or "EXCHANGE/ROUTING KEY", a subject, a stream, or [Origin].
	To string
	// Allow are the places that [Origin] may lead to; * stands for any characters.
	Allow []string
	// Timeout bounds one attempt. Defaults to 30 s. A shorter timeout of the policy wins.
	Timeout time.Duration
	// Concurrency is how many are published at once. 0: as many as the queue has slots.
	Concurrency int
	// Rate is how many begin a second, on average. 0: any.
	Rate float64
}

// sender publishes to one broker and waits for its confirmation. It is safe for concurrent
// use.
type sender interface {
	send(ctx context.Context, m *message) error
	close()
}

// message is what goes to a broker.
type message struct {
	delivery *redrive.Delivery
	to       string          // a place by its name
	origin   native.Original // where it came from; of use only if that is where it goes
	headers  redrive.Headers
	key      []byte
	noBody   bool
	form     string
}

// Handler publishes to one broker. It connects with the first message. It is safe for
// concurrent use.
type Handler struct {
	t       Target
	address *broker.Address
	gates   []driver.Gate

	mu     sync.Mutex
	sender sender
	busy   int // deliveries under way
	closed bool
}

var _ redrive.Handler = (*Handler)(nil)

// New returns a handler for a target. Its errors wrap [redrive.ErrInvalid] and show no
// password. Call [Handler.Close] when it is no longer used.
func New(t Target) (*Handler, error) {
	a, err := broker.Parse(t.Address)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Name != "":
		return nil, invalid(fmt.Sprintf("the address names %s", a.Name), "write the topic, queue, subject or stream as to: "+a.Name+", and only the broker as the address")
	case t.To == "":
		return nil, invalid("nothing says where to publish", "write to: origin, or the name of a topic, queue, subject or stream")
	case t.To == Origin && len(t.Allow) == 0:
		return nil, invalid("to: origin publishes to places that headers name, and nothing says which are allowed",
			`add allow: [orders, "orders.*"]; redrive attach prints the places`)
	case t.To != Origin && len(t.Allow) > 0:
		return nil, invalid("allow has a meaning only with to: origin", "remove it")
	}
	if a.Kind == broker.Redis {
		if _, err := a.RedisConfig(); err != nil {
			return nil, err
		}
	}
	h := &Handler{t: t, address: a}
	if h.t.Timeout == 0 {
		h.t.Timeout = DefaultTimeout
	}
	if t.Concurrency > 0 {
		h.gates = append(h.gates, delivery.NewConcurrencyGate(t.Concurrency))
	}
	if t.Rate > 0 {
		h.gates = append(h.gates, delivery.NewRateGate(t.Rate, 0))
	}
	return h, nil
}

func invalid(what, hint string) error {
	return &redrive.Error{Op: "publish", Err: fmt.Errorf("%w target: %s", redrive.ErrInvalid, what), Hint: hint}
}

// Target returns where it publishes, without user and password.
func (h *Handler) Target() string { return h.address.String() + "/" + h.t.To }

// Gates returns the gates that keep concurrency and rate.
func (h *Handler) Gates() []driver.Gate { return h.gates }

// Close disconnects, after the deliveries under way.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.releaseLocked()
}

func (h *Handler) releaseLocked() {
	if h.closed && h.busy == 0 && h.sender != nil {
		h.sender.close()
		h.sender = nil
	}
}

// ServeDelivery publishes the message once and waits until the broker has confirmed it.
func (h *Handler) ServeDelivery(parent context.Context, d *redrive.Delivery) error {
	m, err := h.message(d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(parent, h.t.Timeout)
	defer cancel()
	s, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer h.release()
	if err := s.send(ctx, m); err != nil {
		return fmt.Errorf("publish to %s/%s: %w", h.address, m.to, err)
	}
	return nil
}

// acquire returns the sender, connected.
func (h *Handler) acquire(ctx context.Context) (sender, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sender == nil {
		s, err := connect(ctx, h.address)
		if err != nil {
			return nil, err
		}
		h.sender = s
	}
	h.busy++
	return h.sender, nil
}

func (h *Handler) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy--
	h.releaseLocked()
}

func connect(ctx context.Context, a *broker.Address) (sender, error) {
	switch a.Kind {
	case broker.Kafka:
		return newKafka(a)
	case broker.RabbitMQ:
		return newRabbitMQ(a), nil
	case broker.JetStream:
		return newJetStream(ctx, a)
	case broker.Redis:
		return newRedis(ctx, a)
	}
	return nil, redrive.ErrUnsupported
}

// unroutable ends a message for which there is no way.
func unroutable(format string, args ...any) error {
	return redrive.PermanentAs(fmt.Errorf(format, args...), redrive.ReasonUnroutable)
}

// message says what goes where.
func (h *Handler) message(d *redrive.Delivery) (*message, error) {
	m := &message{delivery: d, to: h.t.To}
	o, known := native.ReadOriginal(d.Headers)
	if h.t.To == Origin {
		m.origin, m.to = o, h.address.Kind.Place(&o)
		if !known || m.to == "" {
			return nil, unroutable("no header names the place in %s that it came from: give redrive attach --origin NAME, or deliver to a fixed place", h.address.Kind)
		}
		if !slices.ContainsFunc(h.t.Allow, func(p string) bool { return text.Match(p, m.to) }) {
			return nil, unroutable("its headers name %q as its origin, which allow does not permit", m.to)
		}
	}
	m.key = []byte(d.Key)
	for i := range d.Headers {
		v := &d.Headers[i]
		switch v.Name {
		case headername.NativeKey:
			m.key = v.Value
		case headername.OriginalNoBody:
			m.noBody = len(d.Body) == 0
		case headername.OriginalForm:
			m.form = string(v.Value)
		case headername.ID:
			m.headers.Add(headername.ID, againID(d))
		case headername.Redrives, headername.Plan, redrive.HeaderPossibleDuplicate:
		default:
			if !native.IsOriginal(v.Name) {
				m.headers = append(m.headers, native.Outside(*v))
			}
		}
	}
	if d.Redrives > 0 {
		m.headers.Add(headername.Redrives, strconv.Itoa(d.Redrives))
	}
	if d.Plan != "" { // if it dies there, attach tells the plan
		m.headers.Add(headername.Plan, d.Plan)
	}
	return m, nil
}

// againID is the id of a message that is published again: the same for each try of this
// delivery, and another than before. Who remembers the old one, as a store does that had
// parked the message, would take it for a duplicate.
func againID(d *redrive.Delivery) string {
	return driver.DeriveID("publish", d.Queue, d.ID, strconv.Itoa(d.Generation))
}

// oversize ends a message that the broker never takes.
func oversize(err error) error { return redrive.PermanentAs(err, redrive.ReasonOversize) }

var errUnconfirmed = errors.New("the broker did not confirm it")
