package transfer

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/backend/kafka"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/kafkatest"
)

// kafkaSession is after which a member that was killed is replaced.
const kafkaSession = time.Second

func init() { openers["kafka"] = openKafka }

// openKafka opens a topic whose brokers' own addresses are not gone to: a proxy stands
// before the only one.
func openKafka(ctx context.Context, w *work) (driver.Source, error) {
	client := []kgo.Opt{kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(kafkaSession / 4)}
	if w.Proxy != "" {
		client = append(client, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.Proxy)
		}))
	}
	return kafka.Open(ctx, w.Source, kafka.Options{Queue: queue, Native: w.Native, Client: client})
}

// topic is the world of a topic of Kafka. dead is the native way; empty: parked.
func topic(dead string) func(*testing.T, server) *world {
	return func(t *testing.T, beside server) *world { return kafkaWorld(t, beside, dead) }
}

func kafkaWorld(t *testing.T, beside server, dead string) *world {
	b := kafkatest.Start(t)
	const topic, group = "orders", "shop"
	url := "kafka://ADDR/" + topic + "?group=" + group
	if dead != "" {
		url += "&create=true&dead=" + dead
	}
	s := server{addr: b.Addr(), url: at(url), kill: killed(b.Kill), resume: b.Resume}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RecordDeliveryTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopics(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	w, store := sourced(t, "kafka", s, beside, dead != "")
	w.publish = func(t *testing.T, body string) {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(body)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	w.left = func(t *testing.T) int {
		lag, err := kafkaLag(t.Context(), admin, topic, group)
		if err != nil {
			return 1
		}
		return lag + waiting(t, store)
	}
	if dead != "" {
		opened, err := openKafka(t.Context(), &w.direct) // it makes the topics
		if err == nil {
			err = opened.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := newFound()
		followTopic(t, b.Addr(), topic+".dlq", seen)
		w.alsoDead(func(*testing.T) map[string]int { return seen.counts() })
	}
	return w
}

// followTopic reads what is committed in a topic.
func followTopic(t *testing.T, addr, topic string, seen *found) {
	reader, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			got := reader.PollFetches(context.Background())
			if got.IsClientClosed() {
				return
			}
			got.EachRecord(func(r *kgo.Record) { seen.add(string(r.Value)) })
		}
	}()
	t.Cleanup(func() { reader.Close(); <-ended })
}

// kafkaLag is how far a group's committed offset is behind the end of a topic.
func kafkaLag(ctx context.Context, admin *kadm.Client, topic, group string) (int, error) {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, err
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	lag := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if m, ok := offsets.Lookup(topic, end.Partition); ok {
			at = max(m.At, 0)
		}
		lag += end.Offset - at
	})
	if lag < 0 {
		return 0, fmt.Errorf("the group is %d ahead of the topic", -lag)
	}
	return int(lag), nil
}
