package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// readTopic reads all that is in a topic now.
func readTopic(t testing.TB, address string) (records []Record, topic *Topic) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topic, err := OpenTopic(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = topic.Close() })
	for {
		more, err := topic.Read(ctx)
		if errors.Is(err, io.EOF) {
			return records, topic
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, more...)
	}
}

// topicIsRead publishes records as they are and reads them, past what a transaction
// aborted, up to the end of a transaction.
func topicIsRead(t *testing.T, c *cluster) {
	address := c.topic(t, 3)
	s, err := parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := readTopic(t, address); len(got) != 0 {
		t.Fatalf("%d records in an empty topic", len(got))
	}
	_, topic := readTopic(t, address)
	const n = 700
	at := time.UnixMilli(1_700_000_000_123)
	want := make([]Record, n)
	for i := range want {
		want[i] = Record{Topic: s.topic, Partition: 1, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Append(nil, i), At: at,
			Headers: redrive.Headers{{Name: "h", Value: []byte("1")}, {Name: "h", Value: []byte{0xff}}}}
	}
	want[0].Partition, want[1].Partition, want[2].Key = AnyPartition, 99, nil
	if err := driver.FirstError(topic.Publish(t.Context(), want)); err != nil {
		t.Fatal(err)
	}
	inTransaction(t, s.brokers, kgo.TryAbort, &kgo.Record{Topic: s.topic, Value: []byte("aborted")})
	inTransaction(t, s.brokers, kgo.TryCommit, &kgo.Record{Topic: s.topic, Value: []byte("committed")})
	got, topic := readTopic(t, address)
	if len(got) != n+1 {
		t.Fatalf("%d records, want %d", len(got), n+1)
	}
	byValue := make(map[string]*Record)
	for i := range got {
		byValue[string(got[i].Value)] = &got[i]
	}
	for i := range want {
		w, g := &want[i], byValue[fmt.Sprint(i)]
		if g == nil || g.Partition != w.Partition || g.Offset != w.Offset || string(g.Key) != string(w.Key) || (g.Key == nil) != (w.Key == nil) ||
			!g.At.Equal(at) || !slices.EqualFunc(g.Headers, w.Headers, func(a, b redrive.Header) bool { return a.Name == b.Name && string(a.Value) == string(b.Value) }) {
			t.Fatalf("record %d is %+v, want %+v", i, g, w)
		}
	}
	m := topic.Message(byValue["7"], "sms")
	if m.Queue != "sms" || m.Key != "k7" || m.ID != deriveID(topic.cluster, s.topic, 1, want[7].Offset) || m.Origin != origin(s.topic, 1, want[7].Offset) || m.Validate() != nil {
		t.Errorf("%+v", m)
	}
}

// inTransaction publishes a record in a transaction and ends it.
func inTransaction(t testing.TB, brokers []string, how kgo.TransactionEndTry, r *kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("test-"+redrive.NewID()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(ctx, how); err != nil {
		t.Fatal(err)
	}
}
