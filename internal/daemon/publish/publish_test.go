package publish

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/redistest"
)

func handler(t *testing.T, target Target) *Handler {
	t.Helper()
	h, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func carrying(o native.Original, headers ...string) *redrive.Delivery {
	d := &redrive.Delivery{}
	d.Queue, d.ID, d.Key, d.Body, d.Redrives = "orders", "id-1", "customer-7", []byte("body"), 2
	for i := 0; i+1 < len(headers); i += 2 {
		d.Headers.Add(headers[i], headers[i+1])
	}
	d.Headers = append(d.Headers, o.Headers()...)
	return d
}

func topic(name string, partition int32) native.Original {
	return native.Original{Topic: name, Partition: partition, Offset: 5}
}

// reasonOf is why an error ends a message.
func reasonOf(err error) redrive.Reason {
	return driver.Classify(nil, err).Reason
}

func TestKafkaGetsTheRecordAsItWas(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	address := "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
	h := handler(t, Target{Address: address, To: Origin, Allow: []string{"ord*"}})
	d := carrying(topic("orders", 3), "tenant", "gold", headername.ID, "own-id", headername.Redrives, "1", redrive.HeaderPossibleDuplicate, "true")
	if err := h.ServeDelivery(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	null := carrying(topic("orders", 99), headername.NativeKey, "\xff\x00", headername.OriginalNoBody, "true")
	null.Body, null.Redrives = nil, 0
	if err := h.ServeDelivery(t.Context(), null); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	records := make(map[string]*kgo.Record)
	for len(records) < 2 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { records[string(r.Key)] = r })
	}
	r := records["customer-7"]
	if r == nil || r.Partition != 3 || string(r.Value) != "body" {
		t.Fatalf("%+v", r)
	}
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	if got := strings.Join(headers, " "); got != "tenant=gold redrive-id="+againID(d)+" redrive-redrives=2" {
		t.Error(got)
	}
	if r := records["\xff\x00"]; r == nil || r.Value != nil || len(r.Headers) != 0 {
		t.Errorf("%+v", r)
	}
	if err := handler(t, Target{Address: address, To: "nowhere"}).ServeDelivery(t.Context(), d); reasonOf(err) != redrive.ReasonUnroutable {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// TestAMessageDoesNotChooseItsPlace: what headers name counts only where allow permits it.
func TestAMessageDoesNotChooseItsPlace(t *testing.T) {
	h := handler(t, Target{Address: "kafka://127.0.0.1:1", To: Origin, Allow: []string{"orders", "orders.*"}})
	for name, d := range map[string]*redrive.Delivery{
		"another topic":      carrying(topic("payments", 0)),
		"a name that begins": carrying(topic("orders-secret", 0)),
		"no place":           carrying(native.NewOriginal()),
		"another broker's":   carrying(native.Original{Partition: -1, Offset: -1, Queue: "orders"}),
		"the last one wins":  carrying(topic("payments", 0), headername.OriginalTopic, "orders"),
	} {
		if err := h.ServeDelivery(t.Context(), d); reasonOf(err) != redrive.ReasonUnroutable {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An allowed one fails for another cause: nobody listens there.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.ServeDelivery(ctx, carrying(topic("orders.eu", 0))); err == nil || reasonOf(err) == redrive.ReasonUnroutable {
		t.Error(err)
	}
}

func TestRedisGetsTheEntryAsItWas(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.XGroupCreateMkStream(t.Context(), "orders", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	h := handler(t, Target{Address: "redis://" + server.Addr + "/0", To: Origin, Allow: []string{"*"}})
	place := native.Original{Partition: -1, Offset: -1, Stream: "orders"}
	for _, d := range []*redrive.Delivery{
		carrying(place, "tenant", "gold", headername.OriginalForm, "=payload"),
		carrying(place, headername.OriginalForm, "*"),
	} {
		d.Plan = "p-1"
		if strings.HasSuffix(string(d.Headers[0].Value), "*") {
			d.Body, d.Redrives = []byte(`{"b":"2","a":"1"}`), 0
		}
		if err := h.ServeDelivery(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := client.XRange(t.Context(), "orders", "-", "+").Result()
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	if v := entries[0].Values; v["payload"] != "body" || v["tenant"] != "gold" || v[headername.Redrives] != "2" || v[headername.Plan] != "p-1" || len(v) != 4 {
		t.Error(v)
	}
	if v := entries[1].Values; v["a"] != "1" || v["b"] != "2" || v[headername.Plan] != "p-1" || len(v) != 3 {
		t.Error(v)
	}
	place.Stream = "nowhere"
	if err := h.ServeDelivery(t.Context(), carrying(place)); reasonOf(err) != redrive.ReasonUnroutable || client.Exists(t.Context(), "nowhere").Val() != 0 {
		t.Errorf("a stream that is not there: %v", err)
	}
}

func TestTargetsThatMakeNoSense(t *testing.T) {
	for name, target := range map[string]Target{
		"no scheme":          {Address: "host:1", To: "x"},
		"a place in address": {Address: "kafka://h/topic", To: "x"},
		"nowhere":            {Address: "kafka://h"},
		"anywhere":           {Address: "kafka://h", To: Origin},
		"allow without use":  {Address: "kafka://h", To: "x", Allow: []string{"x"}},
		"parameter":          {Address: "redis://u:secret@h?nonsense=1", To: "x"},
	} {
		_, err := New(target)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if e := (*redrive.Error)(nil); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: no hint: %v", name, err)
		}
	}
	h := handler(t, Target{Address: "rabbitmq://u:secret@h/v", To: Origin, Allow: []string{"*"}, Concurrency: 2, Rate: 5})
	if got := h.Target(); got != "rabbitmq://h/v/origin" || len(h.Gates()) != 2 {
		t.Error(got, len(h.Gates()))
	}
}
