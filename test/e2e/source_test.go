package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// TestQueueOnKafka has two daemons consume a topic: what they publish and what others
// write there is delivered, what fails is found in the store and redriven, and a daemon
// that is killed loses nothing.
func TestQueueOnKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 4, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	target := newReceiver(t)
	broken := newReceiver(t, "--fail", "100%", "--status", "422")
	yaml := func(target string) string {
		return fmt.Sprintf("queues: {orders: {source: \"kafka://%s/orders?group=shop\", deliver: {url: %q, allow_private: true}}}\n", broker.Addr(), target)
	}
	d := newDaemon(t, yaml(broken))
	const n = 10 // fewer than a breaker needs to open
	for i := range n {
		record := &kgo.Record{Key: fmt.Appendf(nil, "customer-%d", i), Value: fmt.Appendf(nil, `{"order":%d}`, i)}
		if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are dead", time.Minute, func() bool { return d.queue("orders").Dead == n })
	q := d.queue("orders")
	if q.Ledger.Parked != n {
		t.Errorf("%d parked, want %d", q.Ledger.Parked, n)
	}
	d.restartWith(yaml(target))
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait").ok(t)
	until(t, "all are delivered", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n })

	// What is published here goes to the topic, unless it asks for what Kafka cannot do.
	before := end(t, client)
	for i := range 300 {
		d.redrive("publish", "orders", fmt.Sprintf(`{"n":%d}`, i)).ok(t)
		if i == 5 {
			break
		}
	}
	if got := end(t, client) - before; got != 6 {
		t.Errorf("%d of 6 messages went to the topic", got)
	}
	d.redrive("publish", "orders", "later", "--delay", "100ms").ok(t)
	d.redrive("publish", "orders", "named", "--id", "order-1").ok(t)
	if got := end(t, client) - before; got != 6 {
		t.Errorf("%d messages went to the topic; it knows neither delays nor ids", got)
	}
	until(t, "all are received", time.Minute, func() bool { return len(effects(t, target)) == n+8 })

	// A daemon that is killed in the middle loses nothing.
	records := make([]*kgo.Record, 2000)
	for i := range records {
		records[i] = &kgo.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "bulk %d", i)}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	until(t, "some are received", time.Minute, func() bool { return len(effects(t, target)) > n+8+50 })
	d.kill()
	d.start()
	until(t, "all are received", 2*time.Minute, func() bool { return len(effects(t, target)) == n+8+len(records) })
	if v := decode[wire.Verified](t, d.redrive("verify", "--scan", "--json").ok(t)); !v.Balanced {
		t.Errorf("the ledger does not balance: %+v", v)
	}
}

// end counts the records of the topic.
func end(t *testing.T, client *kgo.Client) (n int64) {
	t.Helper()
	offsets, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	offsets.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// TestQueueOnARedisList delivers from a list.
func TestQueueOnARedisList(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	target := newReceiver(t)
	d := newDaemon(t, fmt.Sprintf("queues: {sms: {source: \"redislist://%s/0\", deliver: {url: %q, allow_private: true}}}\n", s.Addr, target))
	for i := range 5 {
		d.redrive("publish", "sms", fmt.Sprintf("text %d", i)).ok(t)
	}
	until(t, "all are received", time.Minute, func() bool { return len(effects(t, target)) == 5 })
	until(t, "all are counted", time.Minute, func() bool { q := d.queue("sms"); return q.Done() == 5 && q.Source.Done == 5 })
	if q := d.queue("sms"); q.Ledger.Entered != 0 {
		t.Errorf("%d messages went to the store", q.Ledger.Entered)
	}
	d.redrive("queues", "sms").ok(t)
}

// TestQueueOnAListOfOthers: what a publisher of ours sends to such a queue waits in the store.
func TestQueueOnAListOfOthers(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	client := s.Client(t)
	target := newReceiver(t)
	d := newDaemon(t, fmt.Sprintf("queues: {sms: {source: \"redislist://%s/0?list=jobs&from=left\", deliver: {url: %q, allow_private: true}}}\n", s.Addr, target))
	for i := range 5 {
		if err := client.RPush(t.Context(), "jobs", fmt.Sprintf("text %d", i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d.redrive("publish", "sms", "ours").ok(t)
	until(t, "all are received", time.Minute, func() bool { return len(effects(t, target)) == 6 })
	until(t, "all are counted", time.Minute, func() bool {
		q := d.queue("sms")
		return q.Done() == 6 && q.Source.Done == 5 && q.Ledger.Entered == 1
	})
}
