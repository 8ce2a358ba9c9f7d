package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
)

// Record is a record of a topic as it is.
type Record struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte // nil and empty differ
	Headers    redrive.Headers
	At         time.Time // its timestamp; zero, to publish: now
}

// Topic reads what a topic holds, as it stood when it was opened, outside of any group.
type Topic struct {
	topic   string
	cluster string
	client  *kgo.Client
	left    map[int32]int64 // the ends of partitions that were not read to the end
}

// OpenTopic opens the topic at an address of a source. What transactions aborted is not
// read. It fails if no broker answers before ctx ends, or if there is no such topic.
func OpenTopic(ctx context.Context, address string, client ...kgo.Opt) (*Topic, error) {
	of, err := parse(address)
	if err != nil {
		return nil, openError(err, addressHint)
	}
	t := &Topic{topic: of.topic, left: make(map[int32]int64)}
	t.client, err = kgo.NewClient(append(append(of.connect,
		kgo.ConsumeTopics(t.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.KeepControlRecords(), // the ends of transactions may be the end of the topic
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.UnknownTopicRetries(2),
	), client...)...)
	if err != nil {
		return nil, openError(err, "")
	}
	if err := t.measure(ctx); err != nil {
		t.client.Close()
		return nil, err
	}
	return t, nil
}

// measure asks how far the topic goes.
func (t *Topic) measure(ctx context.Context) error {
	admin := kadm.NewClient(t.client)
	cluster, err := lookUp(ctx, admin, t.topic)
	if err != nil {
		return err
	}
	t.cluster = cluster.Cluster
	starts, err := admin.ListStartOffsets(ctx, t.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return openError(err, "")
	}
	ends, err := admin.ListCommittedOffsets(ctx, t.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return openError(err, "")
	}
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(t.topic, end.Partition); ok && start.Offset < end.Offset {
			t.left[end.Partition] = end.Offset
		}
	})
	return nil
}

// Read returns some of the records that were not read yet, or io.EOF when there are none.
// Records of a partition come in their order.
func (t *Topic) Read(ctx context.Context) ([]Record, error) {
	for len(t.left) > 0 {
		fetches := t.client.PollRecords(ctx, pollRecords)
		if err := fetches.Err0(); err != nil {
			return nil, &redrive.Error{Op: "read", Err: fmt.Errorf("topic %s: %w", t.topic, err)}
		}
		for _, e := range fetches.Errors() {
			return nil, &redrive.Error{Op: "read", Err: fmt.Errorf("topic %s, partition %d: %w", t.topic, e.Partition, e.Err)}
		}
		var records []Record
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := t.left[r.Partition]
			if !ok {
				return
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, raw(r))
			}
			if r.Offset+1 >= end {
				delete(t.left, r.Partition)
			}
		})
		if len(records) > 0 {
			return records, nil
		}
	}
	return nil, io.EOF
}

func raw(r *kgo.Record) Record {
	record := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, At: r.Timestamp}
	for i := range r.Headers {
		record.Headers = append(record.Headers, redrive.Header{Name: r.Headers[i].Key, Value: r.Headers[i].Value})
	}
	return record
}

// raw is the record as the client has it. To publish it, the broker sets its offset.
func (r *Record) raw() *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.At, Headers: rawHeaders(r.Headers)}
}

// Message returns a record as a message of a queue, with its identity: the id that a
// publisher of ours gave it, or one that is derived from cluster, topic, partition and
// offset.
func (t *Topic) Message(r *Record, queue string) redrive.Message {
	m := message(r.raw(), queue)
	if m.ID == "" {
		m.ID = deriveID(t.cluster, r.Topic, r.Partition, r.Offset)
	}
	return m
}

// Publish appends records to their partitions, as they are.
func (t *Topic) Publish(ctx context.Context, records []Record) []error {
	errs := make([]error, len(records))
	all := make([]*kgo.Record, len(records))
	of := make(map[*kgo.Record]int, len(records))
	for i := range records {
		all[i] = records[i].raw()
		of[all[i]] = i
	}
	// The client's own limit counts from the timestamp of a record, which may be old.
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	for _, result := range t.client.ProduceSync(ctx, all...) {
		i := of[result.Record]
		if result.Err != nil {
			errs[i] = produceError(result.Err)
			continue
		}
		records[i].Partition, records[i].Offset = result.Record.Partition, result.Record.Offset
	}
	return errs
}

// Close releases the connections.
func (t *Topic) Close() error {
	t.client.Close()
	return nil
}

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
