package transfer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// quiet is for how long a worker has written nothing to RabbitMQ, which does not tell what
// is claimed and not acknowledged, when all of it is.
const quiet = 500 * time.Millisecond

// rabbit is the world of a quorum queue of RabbitMQ. dead is the native way; empty: parked.
func rabbit(dead string) func(*testing.T, server) *world {
	return func(t *testing.T, beside server) *world {
		n := rabbittest.Start(t, rabbittest.Options{})
		name := "orders"
		url := "rabbitmq://guest:guest@ADDR/?queue=" + name + "&declare=true"
		quorum := []string{name}
		if dead != "" {
			url += "&dead=" + dead
			quorum = append(quorum, name+".dead", "redrive.delay-00", "redrive.delay-24")
		}
		kill := func() error {
			err := n.Registered(quorum...) // at once, but for a queue that was made just now
			n.Kill()
			return err
		}
		s := server{addr: n.Addr(), url: at(url), kill: kill, resume: n.Resume}
		w, store := sourced(t, "rabbitmq", s, beside, dead != "")
		opened, err := openSource(t.Context(), &w.direct) // it makes the queues
		if err == nil {
			err = opened.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		b := &rabbitNode{url: n.URL("/"), queue: name, found: newFound()}
		w.publish = b.publish
		w.left = func(t *testing.T) int {
			if time.Since(w.wrote()) < quiet {
				return 1
			}
			ready, err := b.ready()
			if err != nil {
				return 1
			}
			return ready + waiting(t, store)
		}
		if dead != "" {
			b.follow(t, name+".dead")
			w.alsoDead(func(*testing.T) map[string]int { return b.found.counts() })
		}
		return w
	}
}

// rabbitNode looks into a node past the proxies. It connects anew after the node was away.
type rabbitNode struct {
	url, queue string
	found      *found
	conn       atomic.Pointer[amqp.Connection]
}

func (b *rabbitNode) channel() (*amqp.Channel, error) {
	conn := b.conn.Load()
	if conn == nil || conn.IsClosed() {
		var err error
		if conn, err = amqp.Dial(b.url); err != nil {
			return nil, err
		}
		b.conn.Store(conn)
	}
	return conn.Channel()
}

func (b *rabbitNode) publish(t *testing.T, body string) {
	t.Helper()
	servertest.Until(t, "a message is published", func() bool {
		c, err := b.channel()
		if err != nil {
			return false
		}
		defer func() { _ = c.Close() }()
		if c.Confirm(false) != nil {
			return false
		}
		sent, err := c.PublishWithDeferredConfirmWithContext(t.Context(), "", b.queue, true, false,
			amqp.Publishing{MessageId: body, Body: []byte(body), DeliveryMode: amqp.Persistent})
		if err != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a channel that published to a queue without a leader may wait for ever
		defer cancel()
		ok, err := sent.WaitContext(ctx)
		return ok && err == nil
	})
}

// ready counts the messages that wait in the queue.
func (b *rabbitNode) ready() (int, error) {
	c, err := b.channel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	q, err := c.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	return q.Messages, err
}

// follow takes what comes into the queue of dead letters.
func (b *rabbitNode) follow(t *testing.T, name string) {
	go func() {
		for t.Context().Err() == nil {
			b.take(name)
			pause(t.Context(), 100*time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		if conn := b.conn.Load(); conn != nil {
			_ = conn.Close()
		}
	})
}

func (b *rabbitNode) take(name string) {
	conn, err := amqp.Dial(b.url)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	c, err := conn.Channel()
	if err != nil {
		return
	}
	deliveries, err := c.Consume(name, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for d := range deliveries {
		if !d.Redelivered { // one that we took, and whose acknowledgement the node lost
			b.found.add(strings.Clone(string(d.Body)))
		}
		_ = d.Ack(false)
	}
}
