package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive/internal/daemon/attach"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/wire"
)

// shareCluster is a broker whose share groups write dead letters (KIP-1191).
type shareCluster struct {
	broker *kafkatest.Broker
	client *kgo.Client
	admin  *kadm.Client
}

func reachShares(t *testing.T, broker *kafkatest.Broker) *shareCluster {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &shareCluster{broker: broker, client: client, admin: kadm.NewClient(client)}
}

// TestAttachToAShareGroup: the broker itself writes what a share group gave up.
func TestAttachToAShareGroup(t *testing.T) {
	t.Parallel()
	c := reachShares(t, kafkatest.Start(t))
	t.Run("pointers", func(t *testing.T) { c.comesBackWhole(t, "plain", false) })
	t.Run("copies", func(t *testing.T) { c.comesBackWhole(t, "copied", true) })
	t.Run("bodies that are gone", c.bodiesGone)
}

// die publishes records to a topic of two partitions, and has a share group reject half of
// them and give back the others until the broker gives up.
func (c *shareCluster) die(t *testing.T, name string, n int, copied bool) {
	t.Helper()
	enabled := "true"
	if _, err := c.admin.CreateTopic(t.Context(), 2, 1, nil, name); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CreateTopic(t.Context(), 2, 1, map[string]*string{"errors.deadletterqueue.group.enable": &enabled}, "dlq."+name); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2",
		"errors.deadletterqueue.topic.name": "dlq." + name, "errors.deadletterqueue.copy.record.enable": fmt.Sprint(copied),
	} {
		c.configure(t, name+"-group", key, value)
	}
	for i := range n {
		r := &kgo.Record{Topic: name, Partition: int32(i % 2), Key: fmt.Appendf(nil, "customer-%d", i), Value: []byte(deadBody(i)),
			Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("gold")}, {Key: "number", Value: fmt.Append(nil, i)}}}
		if err := c.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(c.broker.Addr()), kgo.ShareGroup(name+"-group"), kgo.ConsumeTopics(name))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	until(t, "the broker has written all dead letters", time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		member.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if r.Offset%2 == 0 {
				r.Ack(kgo.AckReject)
			} else {
				r.Ack(kgo.AckRelease)
			}
		})
		ends, err := c.admin.ListEndOffsets(t.Context(), "dlq."+name)
		total := int64(0)
		ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
		return err == nil && total == int64(n)
	})
}

// configure sets a share group's setting, and waits until the broker knows.
func (c *shareCluster) configure(t *testing.T, group, name, value string) {
	t.Helper()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = name, &value
	resource.Configs = append(resource.Configs, setting)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(t.Context(), c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", name, group, err)
	}
}

func (c *shareCluster) attach(t *testing.T, d *daemon, name string) attach.Summary {
	t.Helper()
	return decode[attach.Summary](t, d.redrive("attach", "kafka://"+c.broker.Addr()+"/dlq."+name, "--queue", "orders", "--json").ok(t))
}

func (c *shareCluster) daemon(t *testing.T) *daemon {
	t.Helper()
	return newDaemon(t, fmt.Sprintf("queues: {orders: {deliver: {publish: %q, to: origin, allow: [\"*\"]}}}\n", "kafka://"+c.broker.Addr()))
}

// deadByID returns the dead letters with their bodies.
func (d *daemon) deadByID() map[string]wire.Message {
	d.t.Helper()
	all := make(map[string]wire.Message)
	for _, m := range decode[wire.List[wire.Message]](d.t, d.redrive("dead", "list", "--queue", "orders", "--json").ok(d.t)).Items {
		all[m.ID] = decode[wire.Message](d.t, d.redrive("dead", "show", "orders/"+m.ID, "--json").ok(d.t))
	}
	return all
}

// comesBackWhole attaches, has the broker's dead letters written twice, and redrives.
func (c *shareCluster) comesBackWhole(t *testing.T, name string, copied bool) {
	const n = 8
	c.die(t, name, n, copied)
	letters := readTopic(t, c.broker, c.admin, "dlq."+name)
	for _, r := range letters {
		if copied != (r.Value != nil) {
			t.Fatalf("the broker wrote %q", r.Value)
		}
	}
	d := c.daemon(t)
	if sum := c.attach(t, d, name); sum.Imported != n || sum.Failed != 0 || sum.Places[name] != n || sum.Dialects["share-group"] != n {
		t.Fatalf("%+v", sum)
	}
	dead := d.deadByID()
	reasons := make(map[string]int)
	for id, m := range dead {
		reasons[m.Reason.String()]++
		var i int
		if _, err := fmt.Sscanf(m.Key, "customer-%d", &i); err != nil || string(m.Bytes()) != deadBody(i) {
			t.Errorf("%s has key %q and body %q", id, m.Key, m.Bytes())
		}
	}
	if fmt.Sprint(reasons) != fmt.Sprintf("map[exhausted:%d rejected:%d]", n/2, n/2) {
		t.Errorf("reasons %v", reasons)
	}
	for _, r := range letters { // once more, as a broker does that died before it remembered that it had
		again := &kgo.Record{Topic: r.Topic, Partition: 1 - r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
		if err := c.client.ProduceSync(t.Context(), again).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if sum := c.attach(t, d, name); sum.Imported != 0 || sum.Duplicates != 2*n {
		t.Errorf("written twice: %+v", sum)
	}
	if now := d.deadByID(); !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(dead))) {
		t.Errorf("%d dead letters, were %d", len(now), len(dead))
	}
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait").ok(t)
	until(t, "all are published", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n })
	c.checkWhole(t, name, n, n)
}

// checkWhole checks that a topic of n records has so many more, each as it was.
func (c *shareCluster) checkWhole(t *testing.T, name string, n, more int) {
	t.Helper()
	times := make(map[string]int)
	for _, r := range readTopic(t, c.broker, c.admin, name) {
		headers := slices.DeleteFunc(slices.Clone(r.Headers), func(h kgo.RecordHeader) bool { return h.Key == headername.Redrives || h.Key == headername.Plan })
		times[fmt.Sprintf("%d %s %s %s", r.Partition, r.Key, r.Value, headers)]++
	}
	total, whole := 0, 0
	for what, n := range times {
		if n > 2 {
			t.Errorf("%d times: %s", n, what)
		}
		total, whole = total+n, whole+n-1
	}
	if total-whole != n || whole != more {
		t.Errorf("%d records of topic %s are there twice, want %d; all: %v", whole, name, more, times)
	}
}

// bodiesGone attaches when some records were deleted, and when all are.
func (c *shareCluster) bodiesGone(t *testing.T) {
	const name, n = "short", 8
	c.die(t, name, n, false)
	offsets := make(kadm.Offsets)
	offsets.AddOffset(name, 0, 3, -1) // three of the eight
	if deleted, err := c.admin.DeleteRecords(t.Context(), offsets); err != nil || deleted.Error() != nil {
		t.Fatal(err, deleted.Error())
	}
	d := c.daemon(t)
	if sum := c.attach(t, d, name); sum.Imported != n || sum.Failed != 0 {
		t.Fatalf("%+v", sum)
	}
	var gone []string
	for id, m := range d.deadByID() {
		if strings.HasPrefix(m.Error, "body gone: ") {
			gone = append(gone, "orders/"+id)
		} else if len(m.Bytes()) == 0 {
			t.Errorf("%s has no body, and does not say so: %s", id, m.Error)
		}
	}
	if len(gone) != 3 {
		t.Fatalf("the bodies of %d are gone, want 3", len(gone))
	}
	d.redrive("dead", "list", "--queue", "orders").fails(t, 0, "body gone")
	d.redrive("dead", "show", gone[0]).fails(t, 0, "body gone: topic "+name)
	d.redrive("dead", "redrive", "--queue", "orders", "--dry-run").fails(t, 0, "3 would be refused: body-gone")
	made := decode[wire.Plan](t, d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--json").ok(t))
	until(t, "the plan has ended", time.Minute, func() bool {
		made = get[wire.Plan](t, d.url+"/v1/plans/"+made.ID)
		return made.State == wire.PlanDone
	})
	if made.Done != n-3 || made.Failed != 3 || made.Errors["body-gone"] != 3 {
		t.Errorf("plan: %+v", made)
	}
	until(t, "the others are published", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n-3 })
	if q := d.queue("orders"); q.Dead != 3 {
		t.Errorf("%d are dead", q.Dead)
	}
	if got := len(readTopic(t, c.broker, c.admin, name)); got != (n-3)+(n-3) {
		t.Errorf("the topic has %d records", got)
	}
	d.redrive("dead", "redrive", gone[0], "--yes", "--wait").fails(t, 1, "body-gone")
	d.redrive("dead", "edit", gone[0], "--body", "mended").ok(t)
	d.redrive("dead", "redrive", gone[0], "--yes", "--wait").ok(t)
	until(t, "the one that was edited is published", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n-2 })

	// Without the topic nothing is left, which is no fault of attach.
	if _, err := c.admin.DeleteTopics(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	other := c.daemon(t)
	until(t, "the topic is gone", time.Minute, func() bool {
		topics, err := c.admin.ListTopics(t.Context())
		return err == nil && !topics.Has(name)
	})
	if sum := c.attach(t, other, name); sum.Imported != n || sum.Failed != 0 {
		t.Fatalf("%+v", sum)
	}
	other.redrive("dead", "redrive", "--queue", "orders", "--dry-run").fails(t, 0, "8 would be refused: body-gone")
}

// TestAttachWithoutARight: who may not read the records is refused, and they are not gone.
func TestAttachWithoutARight(t *testing.T) {
	t.Parallel()
	broker, login := kafkatest.StartSecured(t)
	c := reachShares(t, broker)
	const name, n = "orders", 4
	c.die(t, name, n, false)
	allow := func(topic string) {
		rights := kadm.NewACLs().Allow("User:" + login.Reader).AllowHosts().Topics(topic).Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
		if made, err := c.admin.CreateACLs(t.Context(), rights); err != nil || made[0].Err != nil {
			t.Fatal(err, made)
		}
	}
	allow("dlq." + name)
	d := newDaemon(t, "queues: {orders: {}}\n")
	args := []string{"attach", fmt.Sprintf("kafka://%s:%s@%s/dlq.%s?sasl=plain", login.Reader, login.Password, login.Plain, name), "--queue", "orders", "--json"}
	until(t, "the dead letters may be read", time.Minute, func() bool {
		return strings.Contains(d.redrive(args...).out, `"read"`)
	})
	refused := d.redrive(args...).fails(t, 1, "no right to read topic "+name, "READ")
	if sum := decode[attach.Summary](t, refused); sum.Failed != n || sum.Imported != 0 {
		t.Errorf("%+v", sum)
	}
	if q := d.queue("orders"); q.Dead != 0 {
		t.Errorf("%d are dead", q.Dead)
	}
	allow(name)
	until(t, "the records may be read", time.Minute, func() bool { return d.redrive(args...).code == 0 })
	for id, m := range d.deadByID() {
		if !strings.HasPrefix(string(m.Bytes()), `{"order":`) {
			t.Errorf("%s has body %q: %s", id, m.Bytes(), m.Error)
		}
	}
}
