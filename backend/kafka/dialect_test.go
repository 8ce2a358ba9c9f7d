package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/dialect"
	"github.com/redrive/redrive/internal/brokertest"
)

// dialectsAreWritten has records of others die, once for each dialect, after a retry at the
// broker, and reads the dead-letter topic as a program does that knows nothing of ours.
func dialectsAreWritten(t *testing.T, c *cluster) {
	for _, d := range []dialect.Dialect{dialect.SpringKafka, dialect.KafkaConnect, dialect.ShareGroup, dialect.SpringStream, dialect.NServiceBus, dialect.MassTransit} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s, _, dlq := natively(t, c, 1, "&tiers=1ms", Options{Dialect: d})
			sent := &kgo.Record{Topic: s.topic, Value: []byte("not ours"), Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("gold")}}}
			if err := c.client.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Value: []byte("before")}, sent).FirstErr(); err != nil {
				t.Fatal(err)
			}
			brokertest.Consume(t, memory.New(), 0, func(_ context.Context, d *redrive.Delivery) error {
				if string(d.Body) == "before" {
					return nil
				}
				return errors.New("the line is busy")
			}, redrive.QueueOptions{Sources: []redrive.Source{s}, Policy: func(*redrive.Message) *redrive.Policy {
				return &redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}, MaxAttempts: 2}
			}})
			var records []Record
			brokertest.Until(t, "it is dead", func() bool { records, _ = readTopic(t, dlq); return len(records) == 1 })
			l := brokertest.OtherReader(t, d, records[0].Headers, "tenant")
			if d != dialect.ShareGroup && l.History.First.Message != "the line is busy" {
				t.Errorf("%+v", l.History.First)
			}
			switch d {
			case dialect.NServiceBus, dialect.MassTransit: // they know queues only
				if l.Place.Queue != s.topic {
					t.Errorf("%+v", l.Place)
				}
			default:
				if l.Place.Topic != s.topic || l.Place.Partition != 0 || l.Place.Offset != sent.Offset {
					t.Errorf("%+v", l.Place)
				}
			}
			if d != dialect.SpringKafka {
				return
			}
			for name, want := range map[string][]byte{
				"kafka_dlt-original-topic": []byte(s.topic), "kafka_dlt-original-partition": binary.BigEndian.AppendUint32(nil, 0),
				"kafka_dlt-original-offset":         binary.BigEndian.AppendUint64(nil, uint64(sent.Offset)),
				"kafka_dlt-original-timestamp":      binary.BigEndian.AppendUint64(nil, uint64(sent.Timestamp.UnixMilli())),
				"kafka_dlt-original-timestamp-type": []byte("CreateTime"), "kafka_dlt-original-consumer-group": []byte(s.group),
				"kafka_dlt-exception-message": []byte("the line is busy"),
			} {
				if got, _ := records[0].Headers.Get(name); got != string(want) {
					t.Errorf("%s: %x, want %x", name, got, want)
				}
			}
		})
	}
}
