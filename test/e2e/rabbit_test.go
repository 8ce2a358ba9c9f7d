package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/wire"
)

// TestQueueOnRabbit has a daemon consume a quorum queue: what it publishes and what others
// write there is delivered and retried, what fails is found in the store and redriven, or
// in a queue of dead letters, and a daemon that is killed loses nothing.
func TestQueueOnRabbit(t *testing.T) {
	t.Parallel()
	node := rabbittest.Start(t, rabbittest.Options{})
	ch, err := node.Dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	target, flaky := newReceiver(t), newReceiver(t, "--fail", "20%")
	broken := newReceiver(t, "--fail", "100%", "--status", "422")
	yaml := func(target, more string) string {
		return fmt.Sprintf("queues: {orders: {source: \"rabbitmq://guest:guest@%s/?queue=orders&declare=true\", %sdeliver: {url: %q, allow_private: true}}}\n", node.Addr(), more, target)
	}
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			c, err := ch.PublishWithDeferredConfirm("", "orders", true, false, amqp.Publishing{
				MessageId: fmt.Sprintf("order-%d", i), DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, `{"order":%d}`, i),
			})
			if err != nil {
				t.Fatal(err)
			}
			if i == to-1 || i%500 == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				ok, err := c.WaitContext(ctx)
				cancel()
				if !ok || err != nil {
					t.Fatal("not confirmed:", err)
				}
			}
		}
	}
	const retry = "policy: {max_attempts: 50, backoff: {type: fixed, interval: 20ms}}, "
	d := newDaemon(t, yaml(broken, ""))
	const n = 10 // fewer than a breaker needs to open
	publish(0, n)
	until(t, "all are dead", time.Minute, func() bool { return d.queue("orders").Dead == n })
	d.restartWith(yaml(flaky, retry))
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait").ok(t)
	until(t, "all are delivered", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n })

	// What is published here goes to the queue, unless it asks for what RabbitMQ cannot do.
	for i := range 6 {
		d.redrive("publish", "orders", fmt.Sprintf(`{"n":%d}`, i)).ok(t)
	}
	d.redrive("publish", "orders", "later", "--delay", "100ms").ok(t)
	d.redrive("publish", "orders", "named", "--id", "mine-1").ok(t)
	until(t, "all are received", time.Minute, func() bool { return len(effects(t, flaky)) == n+8 })

	// A daemon that is killed in the middle loses nothing.
	d.restartWith(yaml(target, retry))
	const bulk = 2000
	publish(100, 100+bulk)
	until(t, "some are received", time.Minute, func() bool { return len(effects(t, target)) > 50 })
	d.kill()
	d.start()
	until(t, "all are received", 2*time.Minute, func() bool {
		got := 0 // beside them comes what failed at the target before, and was retried here
		for id := range effects(t, target) {
			if strings.HasPrefix(id, "order-") {
				got++
			}
		}
		return got == bulk
	})
	if v := decode[wire.Verified](t, d.redrive("verify", "--scan", "--json").ok(t)); !v.Balanced {
		t.Errorf("the ledger does not balance: %+v", v)
	}

	// Native: retries wait at the broker, dead letters go to a queue of their own, also
	// those of messages that were in the store.
	d.restartWith(yaml(flaky, "dead_letters: native, "+retry))
	publish(5000, 5010)
	until(t, "all are received", 2*time.Minute, func() bool { return len(effects(t, flaky)) == n+8+10 })
	d.restartWith(yaml(broken, "dead_letters: native, "))
	publish(6000, 6005)
	d.redrive("publish", "orders", "named", "--id", "mine-2").ok(t)
	buried := make(map[string]bool)
	until(t, "the dead letters are in their queue", 2*time.Minute, func() bool {
		letter, ok, err := ch.Get("orders.dead", true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			buried[letter.MessageId] = true
		}
		for i := 6000; i < 6005; i++ {
			if !buried[fmt.Sprintf("order-%d", i)] {
				return false
			}
		}
		return buried["mine-2"] // what the daemon before had in flight when it ended may be there, too
	})
	if q := d.queue("orders"); q.Dead != 0 {
		t.Errorf("%d dead letters are in the store", q.Dead)
	}
}
