package transfer

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/kafka"
	"github.com/redrive/redrive/internal/kafkatest"
)

// kafkaSession is after which a member that was killed is replaced.
const kafkaSession = time.Second

func init() { openers["kafka"] = openKafka }

// openKafka opens a topic whose brokers' own addresses are not gone to: a proxy stands
// before the only one.
func openKafka(ctx context.Context, w *work) (redrive.Source, error) {
	client := []kgo.Opt{kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(kafkaSession / 4)}
	if w.Proxy != "" {
		client = append(client, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.Proxy)
		}))
	}
	return kafka.Open(ctx, w.Source, kafka.Options{Queue: queue, Client: client})
}

// kafkaTopic is the world of a topic, whose messages are parked.
func kafkaTopic(t *testing.T, beside server) *world {
	b := kafkatest.Start(t)
	const topic, group = "orders", "shop"
	s := server{addr: b.Addr(), url: at("kafka://ADDR/" + topic + "?group=" + group), kill: b.Kill, resume: b.Resume}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RecordDeliveryTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopics(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	w, store := sourced(t, "kafka", s, beside, false)
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
	return w
}

// kafkaLag is how far a group's mark is behind the end of a topic.
func kafkaLag(ctx context.Context, admin *kadm.Client, topic, group string) (int, error) {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, err
	}
	marks, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	lag := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		mark := int64(0)
		if m, ok := marks.Lookup(topic, end.Partition); ok {
			mark = max(m.At, 0)
		}
		lag += end.Offset - mark
	})
	if lag < 0 {
		return 0, fmt.Errorf("the group is %d ahead of the topic", -lag)
	}
	return int(lag), nil
}
