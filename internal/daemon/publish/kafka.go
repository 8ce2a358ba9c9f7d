package publish

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/broker"
)

type kafkaSender struct{ client *kgo.Client }

func newKafka(a *broker.Address) (sender, error) {
	connect, err := a.KafkaOptions()
	if err == nil {
		err = a.Rest()
	}
	if err != nil {
		return nil, redrive.Permanent(err)
	}
	client, err := kgo.NewClient(append(connect, kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(redrive.MaxBodySize+redrive.MaxHeaderSize+1<<20), kgo.UnknownTopicRetries(2),
		kgo.RecordDeliveryTimeout(DefaultTimeout), kgo.RecordPartitioner(home{kgo.StickyKeyPartitioner(nil)}))...)
	if err != nil {
		return nil, err
	}
	return &kafkaSender{client}, nil
}

func (k *kafkaSender) send(ctx context.Context, m *message) error {
	r := &kgo.Record{Topic: m.to, Value: m.delivery.Body, Partition: -1}
	if m.origin.Topic == m.to {
		r.Partition = m.origin.Partition
	}
	if len(m.key) > 0 {
		r.Key = m.key
	}
	if m.noBody {
		r.Value = nil
	} else if r.Value == nil {
		r.Value = []byte{}
	}
	for _, h := range m.headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	err := k.client.ProduceSync(ctx, r).FirstErr()
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return oversize(err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException):
		return unroutable("there is no topic %s: %w", m.to, err)
	}
	return err
}

func (k *kafkaSender) close() { k.client.Close() }

// home is a partitioner that puts a record back into the partition that it came from, if
// there is one, and else goes by the key, as producers do.
type home struct{ kgo.Partitioner }

func (h home) ForTopic(topic string) kgo.TopicPartitioner {
	return homePartitioner{h.Partitioner.ForTopic(topic)}
}

type homePartitioner struct{ kgo.TopicPartitioner }

func (h homePartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || h.TopicPartitioner.RequiresConsistency(r)
}

func (h homePartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 && int(r.Partition) < n {
		return int(r.Partition)
	}
	return h.TopicPartitioner.Partition(r, n)
}
