package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/internal/servertest"
)

// topics numbers the topics of the tests.
var topics atomic.Int64

// cluster is where a test's topics are.
type cluster struct {
	brokers string
	client  *kgo.Client
	admin   *kadm.Client
}

// fake starts a cluster in this process.
func fake(t testing.TB, o ...kfake.Opt) *cluster {
	t.Helper()
	k, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return reach(t, strings.Join(k.ListenAddrs(), ","))
}

// reach makes topics on the brokers at an address.
func reach(t testing.TB, brokers string) *cluster {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &cluster{brokers: brokers, client: client, admin: kadm.NewClient(client)}
}

// topic makes a topic and returns its address.
func (c *cluster) topic(t testing.TB, partitions int32) string {
	t.Helper()
	name := fmt.Sprintf("topic-%d", topics.Add(1))
	if _, err := c.admin.CreateTopic(context.Background(), partitions, 1, map[string]*string{"max.message.bytes": new("20000000")}, name); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "the topic is there", func() bool {
		details, err := c.admin.ListTopics(context.Background(), name)
		return err == nil && details[name].Err == nil && len(details[name].Partitions) == int(partitions)
	})
	return "kafka://" + c.brokers + "/" + name + "?group=" + name
}

// connect opens a source that closes with the test.
func connect(t testing.TB, address string, o Options) *Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// conformance runs the suite against the topics of a cluster.
func conformance(t *testing.T, c *cluster) {
	addresses := map[backendtest.SourceSink]string{}
	opened := func(t testing.TB, address string) backendtest.SourceSink {
		s := connect(t, address, Options{Queue: "sms"})
		addresses[s] = address
		return s
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open:    func(t testing.TB) backendtest.SourceSink { return opened(t, c.topic(t, 1)) },
		Connect: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink { return opened(t, addresses[s]) },
		Contents: func(t testing.TB, s backendtest.SourceSink) map[string]string {
			return c.contents(t, s.(*Source).topic)
		},
		Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return opened(t, addresses[s])
		},
		Queues: []string{"sms"},
	})
}

// contents tells of the topics whose names begin like one, of which another is made: settings,
// records and what groups have committed.
func (c *cluster) contents(t testing.TB, topic string) map[string]string {
	t.Helper()
	ctx := t.Context()
	theirs := topic + "-theirs"
	if _, err := c.admin.CreateTopic(ctx, 1, 1, nil, theirs); err == nil {
		if err := c.client.ProduceSync(ctx, &kgo.Record{Topic: theirs, Value: []byte("theirs")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		offsets := make(kadm.Offsets)
		offsets.AddOffset(theirs, 0, 1, -1)
		if err := c.admin.CommitAllOffsets(ctx, theirs, offsets); err != nil {
			t.Fatal(err)
		}
	} else if !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Fatal(err)
	}
	all := make(map[string]string)
	details, err := c.admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name := range details {
		if name != topic && !strings.HasPrefix(name, topic+"-") {
			continue
		}
		values, err := configs(ctx, c.admin, name)
		if err != nil {
			t.Fatal(err)
		}
		ends, err := c.admin.ListEndOffsets(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		ends.Each(func(o kadm.ListedOffset) {
			all[fmt.Sprintf("%s/%d", name, o.Partition)] = fmt.Sprint(o.Offset, " ", values)
		})
		for group, committed := range c.admin.FetchManyOffsets(ctx, topic, theirs) {
			committed.Fetched.Each(func(o kadm.OffsetResponse) {
				all[fmt.Sprintf("%s/%d of group %s", o.Topic, o.Partition, group)] = fmt.Sprint(o.At, " ", o.Metadata)
			})
		}
	}
	return all
}
