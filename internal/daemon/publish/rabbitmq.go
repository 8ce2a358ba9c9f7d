package publish

import (
	"context"
	"fmt"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/native"
)

// rabbitSender has a channel for each message under way, so that a return, which names no
// message, belongs to the only one that can be meant.
type rabbitSender struct {
	address *broker.Address

	mu   sync.Mutex
	conn *amqp.Connection
	idle []*rabbitChannel
}

type rabbitChannel struct {
	*amqp.Channel
	returned chan amqp.Return
}

// maxIdle is how many channels are kept for later.
const maxIdle = 64

func newRabbitMQ(a *broker.Address) sender { return &rabbitSender{address: a} }

func (r *rabbitSender) send(ctx context.Context, m *message) error {
	c, err := r.channel(ctx)
	if err != nil {
		return err
	}
	p := broker.ToRabbitMQ(m.headers, m.form, m.delivery.Body)
	exchange, key := exchangeOf(m)
	confirm, err := c.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, p)
	if err != nil {
		_ = c.Close()
		return err
	}
	confirmed, err := confirm.WaitContext(ctx)
	if err != nil { // whatever comes later must not meet another message
		_ = c.Close()
		return err
	}
	select {
	case back := <-c.returned: // it comes before the confirmation
		r.keep(c)
		return unroutable("exchange %q leads routing key %q nowhere: %s", exchange, key, back.ReplyText)
	default:
	}
	if !confirmed {
		_ = c.Close()
		return errUnconfirmed
	}
	r.keep(c)
	return nil
}

// exchangeOf says where to publish: a message that failed in a queue goes into this queue
// only, and not to all that its exchange leads to.
func exchangeOf(m *message) (exchange, key string) {
	if o := &m.origin; native.PlaceName(o) != "" {
		if o.Queue != "" {
			return "", o.Queue
		}
		return o.Exchange, o.RoutingKey
	}
	if exchange, key, ok := strings.Cut(m.to, "/"); ok {
		return exchange, key
	}
	return "", m.to
}

// channel returns an idle channel that works, or a new one.
func (r *rabbitSender) channel(ctx context.Context) (*rabbitChannel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.idle) > 0 {
		c := r.idle[len(r.idle)-1]
		r.idle = r.idle[:len(r.idle)-1]
		if !c.IsClosed() {
			return c, nil
		}
	}
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := r.address.DialRabbitMQ(ctx)
		if err != nil {
			return nil, err
		}
		r.conn = conn
	}
	ch, err := r.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("publisher confirms: %w", err)
	}
	return &rabbitChannel{ch, ch.NotifyReturn(make(chan amqp.Return, 1))}, nil
}

func (r *rabbitSender) keep(c *rabbitChannel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.idle) < maxIdle {
		r.idle = append(r.idle, c)
		return
	}
	_ = c.Close()
}

func (r *rabbitSender) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close()
	}
}
