package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/daemon/attach"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/redistest"
)

// TestAttachToKafka: the dead-letter topic of Spring Kafka, with transactions' markers in it.
func TestAttachToKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	origins := make(map[string]map[string]*kgo.Record) // by name and key
	testAttach(t, &foreignBroker{
		address: "kafka://" + broker.Addr(), keys: true,
		dead: func(name string) string { return "kafka://" + broker.Addr() + "/" + name + "-dlt" },
		make: func(t *testing.T, name string) {
			t.Helper()
			if _, err := admin.CreateTopics(t.Context(), 4, 1, nil, name, name+"-dlt"); err != nil {
				t.Fatal(err)
			}
			origins[name] = make(map[string]*kgo.Record)
		},
		die: func(t *testing.T, name string, from, to int) {
			t.Helper()
			// In a transaction, as Spring does with exactly-once: its marker takes an offset.
			producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.TransactionalID(name+"-spring"))
			if err != nil {
				t.Fatal(err)
			}
			defer producer.Close()
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for i := from; i < to; i++ {
				r := springDead(name, i)
				origins[name][string(r.Key)] = r
				if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		},
		back: func(t *testing.T, name string) (all []foreign) {
			t.Helper()
			for _, r := range readTopic(t, broker, admin, name) {
				m := foreign{key: string(r.Key), body: string(r.Value), headers: make(map[string]string)}
				for _, h := range r.Headers {
					m.headers[h.Key] = string(h.Value)
				}
				if want := origins[name][m.key]; want == nil || int32(binary.BigEndian.Uint32(want.Headers[2].Value)) != r.Partition {
					t.Errorf("record of key %s came back into partition %d", m.key, r.Partition)
				}
				all = append(all, m)
			}
			return all
		},
		left: func(t *testing.T, name string) (n int) {
			t.Helper()
			var lag kadm.OffsetResponses
			until(t, "the group's coordinator is there", time.Minute, func() (ok bool) {
				var err error
				lag, err = admin.FetchOffsets(t.Context(), attach.DefaultGroup)
				return err == nil
			})
			for _, r := range readTopic(t, broker, admin, name+"-dlt") {
				if o, ok := lag.Lookup(name+"-dlt", r.Partition); !ok || r.Offset >= o.At {
					n++
				}
			}
			return n
		},
	})
}

// springDead is a record as Spring Kafka's recoverer writes it.
func springDead(name string, i int) *kgo.Record {
	partition := binary.BigEndian.AppendUint32(nil, uint32(i%4))
	offset := binary.BigEndian.AppendUint64(nil, uint64(1000+i))
	at := binary.BigEndian.AppendUint64(nil, uint64(time.Date(2026, 11, 21, 8, 0, i%60, 0, time.UTC).UnixMilli()))
	return &kgo.Record{
		Topic: name + "-dlt", Key: fmt.Appendf(nil, "customer-%d", i), Value: []byte(deadBody(i)),
		Headers: []kgo.RecordHeader{
			{Key: "tenant", Value: []byte("gold")},
			{Key: "kafka_dlt-original-topic", Value: []byte(name)},
			{Key: "kafka_dlt-original-partition", Value: partition},
			{Key: "kafka_dlt-original-offset", Value: offset},
			{Key: "kafka_dlt-original-timestamp", Value: at},
			{Key: "kafka_dlt-original-timestamp-type", Value: []byte("CreateTime")},
			{Key: "kafka_dlt-original-consumer-group", Value: []byte("billing")},
			{Key: "kafka_dlt-exception-fqcn", Value: []byte("org.springframework.kafka.listener.ListenerExecutionFailedException")},
			{Key: "kafka_dlt-exception-cause-fqcn", Value: []byte("java.lang.NumberFormatException")},
			{Key: "kafka_dlt-exception-message", Value: fmt.Appendf(nil, "Listener failed; amount of order %d cannot be read", i)},
			{Key: "kafka_dlt-exception-stacktrace", Value: []byte("org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n\tat org.example.Billing.charge(Billing.java:7)\n")},
		},
	}
}

// readTopic returns every committed record of a topic.
func readTopic(t *testing.T, broker *kafkatest.Broker, admin *kadm.Client, topic string) (all []*kgo.Record) {
	t.Helper()
	ends, err := admin.ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	missing := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			missing[o.Partition] = o.Offset
		}
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(missing) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= missing[r.Partition] {
				delete(missing, r.Partition)
			}
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
		})
	}
	return all
}

// TestAttachToARedisStream: a stream that a program writes its dead letters to.
func TestAttachToARedisStream(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	testAttach(t, &foreignBroker{
		address: "redis://" + s.Addr + "/0", options: []string{"--origin", "NAME"},
		dead: func(name string) string { return "redis://" + s.Addr + "/0?stream=" + name + ":dlq" },
		make: func(t *testing.T, name string) {
			t.Helper()
			for _, stream := range []string{name, name + ":dlq"} {
				if err := client.XGroupCreateMkStream(t.Context(), stream, "readers", "0").Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
		die: func(t *testing.T, name string, from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				fields := []string{"tenant", "gold", "payload", deadBody(i), "x-exception-message", fmt.Sprintf("order %d: amount cannot be read", i), "x-exception-fqcn", "ValueError"}
				if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: name + ":dlq", Values: fields}).Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
		back: func(t *testing.T, name string) (all []foreign) {
			t.Helper()
			entries, err := client.XRange(t.Context(), name, "-", "+").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				m := foreign{headers: make(map[string]string)}
				for name, value := range e.Values {
					if name == "payload" {
						m.body = fmt.Sprint(value)
						continue
					}
					m.headers[name] = fmt.Sprint(value)
				}
				all = append(all, m)
			}
			return all
		},
		left: func(t *testing.T, name string) int {
			t.Helper()
			n, err := client.XLen(t.Context(), name+":dlq").Result()
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		},
	})
}

// TestAttachToARedisList: a list that a program pushes what failed to, and nothing else.
func TestAttachToARedisList(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	testAttach(t, &foreignBroker{
		address: "redis://" + s.Addr + "/0", options: []string{"--origin", "NAME"}, bare: true,
		dead: func(name string) string { return "redis://" + s.Addr + "/0?list=" + name + ":dlq" },
		make: func(*testing.T, string) {},
		die: func(t *testing.T, name string, from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				if err := client.LPush(t.Context(), name+":dlq", deadBody(i)).Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
		back: func(t *testing.T, name string) (all []foreign) {
			t.Helper()
			elements, err := client.LRange(t.Context(), name, 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range elements {
				all = append(all, foreign{body: e})
			}
			return all
		},
		left: func(t *testing.T, name string) int {
			t.Helper()
			n, err := client.LLen(t.Context(), name+":dlq").Result()
			if err != nil {
				t.Fatal(err)
			}
			return int(n + client.HLen(t.Context(), "{"+name+":dlq}:redrive-attach").Val())
		},
	})
}
