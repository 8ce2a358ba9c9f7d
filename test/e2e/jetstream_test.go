package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/wire"
)

// TestQueueOnJetStream has a daemon consume a stream: what it publishes and what others
// write there is delivered, what fails is found in the store and redriven, or in a stream
// of dead letters, and a daemon that is killed loses nothing.
func TestQueueOnJetStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	js := natstest.Client(t, server.Addr())
	stream := natstest.Stream(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	target := newReceiver(t)
	broken := newReceiver(t, "--fail", "100%", "--status", "422")
	yaml := func(target, more string) string {
		return fmt.Sprintf("queues: {orders: {source: \"nats://%s/ORDERS?consumer=shop&ack_wait=3s\", %sdeliver: {url: %q, allow_private: true}}}\n", server.Addr(), more, target)
	}
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := js.PublishAsync("orders", fmt.Appendf(nil, `{"order":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(time.Minute):
			t.Fatal("the stream does not acknowledge")
		}
	}
	messages := func(of string) uint64 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := js.Stream(ctx, of)
		if err != nil {
			return 0
		}
		return s.CachedInfo().State.Msgs
	}
	d := newDaemon(t, yaml(broken, ""))
	const n = 10 // fewer than a breaker needs to open
	publish(0, n)
	until(t, "all are dead", time.Minute, func() bool { return d.queue("orders").Dead == n })
	d.restartWith(yaml(target, ""))
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait").ok(t)
	until(t, "all are delivered", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n })

	// What is published here goes to the stream, unless it asks for what JetStream cannot do.
	for i := range 6 {
		d.redrive("publish", "orders", fmt.Sprintf(`{"n":%d}`, i)).ok(t)
	}
	d.redrive("publish", "orders", "later", "--delay", "100ms").ok(t)
	d.redrive("publish", "orders", "named", "--id", "order-1").ok(t)
	if got := messages(stream.CachedInfo().Config.Name); got != n+6 {
		t.Errorf("%d messages are in the stream, want %d: it knows neither delays nor ids", got, n+6)
	}
	until(t, "all are received", time.Minute, func() bool { return len(effects(t, target)) == n+8 })

	// A daemon that is killed in the middle loses nothing.
	const bulk = 2000
	publish(100, 100+bulk)
	until(t, "some are received", time.Minute, func() bool { return len(effects(t, target)) > n+8+50 })
	d.kill()
	d.start()
	until(t, "all are received", 2*time.Minute, func() bool { return len(effects(t, target)) == n+8+bulk })
	if v := decode[wire.Verified](t, d.redrive("verify", "--scan", "--json").ok(t)); !v.Balanced {
		t.Errorf("the ledger does not balance: %+v", v)
	}

	// Native dead letters go to a stream of their own.
	d.restartWith(yaml(broken, "dead_letters: native, "))
	publish(5000, 5005)
	until(t, "the dead letters are in their stream", time.Minute, func() bool { return messages("ORDERS_DLQ") == 5 })
	if q := d.queue("orders"); q.Dead != 0 {
		t.Errorf("%d dead letters are in the store", q.Dead)
	}
}
