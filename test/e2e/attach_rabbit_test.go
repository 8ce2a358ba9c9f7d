package e2e

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive/internal/rabbittest"
)

// TestAttachToRabbitMQ: a queue that a dead-letter exchange fills with what a consumer
// rejected; the broker tells of it in x-death.
func TestAttachToRabbitMQ(t *testing.T) {
	t.Parallel()
	node := rabbittest.Start(t, rabbittest.Options{})
	conn := node.Dial(t)
	open := func(t *testing.T) *amqp.Channel {
		t.Helper()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ch.Close() })
		return ch
	}
	consume := func(t *testing.T, name string, n int, each func(d *amqp.Delivery)) {
		t.Helper()
		ch := open(t)
		for range n {
			var d amqp.Delivery
			until(t, "a message is in "+name, time.Minute, func() bool { // it may still be on its way
				got, ok, err := ch.Get(name, false)
				if err != nil {
					t.Fatal(err)
				}
				d = got
				return ok
			})
			each(&d)
		}
	}
	size := func(t *testing.T, name string) int {
		t.Helper()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	vhost := node.URL("/")
	testAttach(t, &foreignBroker{
		address: vhost, keys: false,
		dead: func(name string) string { return vhost + "?queue=" + name + ".dlq" },
		make: func(t *testing.T, name string) {
			t.Helper()
			ch := open(t)
			for queue, args := range map[string]amqp.Table{
				name: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + ".dlq"}, name + ".dlq": nil,
			} {
				if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
					t.Fatal(err)
				}
			}
		},
		die: func(t *testing.T, name string, from, to int) {
			t.Helper()
			ch := open(t)
			if err := ch.Confirm(false); err != nil {
				t.Fatal(err)
			}
			for i := from; i < to; i++ {
				c, err := ch.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{
					MessageId: fmt.Sprintf("%s-%d", name, i), ContentType: "application/json", DeliveryMode: amqp.Persistent, Priority: 3, CorrelationId: "c-1",
					Headers: amqp.Table{"tenant": "gold", "attempt": int32(7)}, Body: []byte(deadBody(i)),
				})
				if err != nil {
					t.Fatal(err)
				}
				if ok, err := c.WaitContext(t.Context()); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			consume(t, name, to-from, func(d *amqp.Delivery) {
				if err := d.Reject(false); err != nil {
					t.Fatal(err)
				}
			})
			if from == 0 { // nobody takes them away yet
				until(t, "the broker has moved them", time.Minute, func() bool { return size(t, name+".dlq") == to })
			}
		},
		back: func(t *testing.T, name string) (all []foreign) {
			t.Helper()
			consume(t, name, size(t, name), func(d *amqp.Delivery) {
				if d.ContentType != "application/json" || d.Priority != 3 || d.CorrelationId != "c-1" || d.MessageId == "" || d.DeliveryMode != amqp.Persistent || d.Headers["attempt"] != int32(7) {
					t.Errorf("properties or types are lost: %+v", d)
				}
				m := foreign{body: string(d.Body), headers: make(map[string]string)}
				for name, value := range d.Headers {
					m.headers[name] = fmt.Sprint(value)
				}
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			})
			return all
		},
		left: func(t *testing.T, name string) int { return size(t, name+".dlq") },
	})
}
