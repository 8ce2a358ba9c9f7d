package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

// headerDue says when a record of a retry topic may be claimed.
const headerDue = headername.Due

// dueOf reads it. A record without one is due at once.
func dueOf(r *kgo.Record) time.Time {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == headerDue {
			if at, err := time.Parse(time.RFC3339Nano, string(r.Headers[i].Value)); err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// takeHistory takes out of a message of a retry topic what its first writer did not put
// there, and gives it the time of its publication back.
func takeHistory(m *redrive.Message) native.History {
	history, _ := native.TakeHistory(m)
	rest := make(redrive.Headers, 0, len(m.Headers))
	for _, h := range m.Headers {
		if h.Name != headerDue && !native.IsOriginal(h.Name) {
			rest = append(rest, h)
		}
	}
	if was, ok := native.ReadOriginal(m.Headers); ok && !was.At.IsZero() {
		m.PublishedAt = was.At
	}
	m.Headers = rest
	return history
}

// original is where a record was first, also if it comes from a retry topic.
func (s *Source) original(r *kgo.Record, retried bool) native.Original {
	if retried {
		h := make(redrive.Headers, 0, len(r.Headers))
		for i := range r.Headers {
			h = append(h, redrive.Header{Name: r.Headers[i].Key, Value: r.Headers[i].Value})
		}
		if was, ok := native.ReadOriginal(h); ok {
			return was
		}
	}
	o := native.NewOriginal()
	o.Topic, o.Group, o.At = s.topic, s.group, r.Timestamp
	if !retried {
		o.Partition, o.Offset = r.Partition, r.Offset
	}
	return o
}

// keeps reports whether a settlement leaves a record in a topic of ours.
func (s *Source) keeps(item *driver.Settlement) bool {
	if !s.o.Native {
		return false
	}
	switch item.Outcome {
	case redrive.OutcomeDead:
		return true
	case redrive.OutcomeRetry, redrive.OutcomeRelease:
		return item.After <= s.longest()
	}
	return false
}

// follower is the record that a settlement leaves: the same key and value, the headers of
// the message, its failure history, and where it was.
func (s *Source) follower(from *member, h *flight, item *driver.Settlement, now time.Time) *kgo.Record {
	m := message(h.record, s.o.Queue)
	var history native.History
	if from.retries {
		history = takeHistory(&m)
	}
	m.ID = item.Receipt.ID
	if len(h.record.Key) > 0 && m.Key == "" { // the key itself stays
		m.Headers = m.Headers.Clone()
		m.Headers.Del(headername.NativeKey)
	}
	history.Queue = s.o.Queue
	history.Attempts++
	if item.Outcome == redrive.OutcomeRelease {
		history.Attempts--
	}
	history.History.Record(item.Failure, item.Outcome != redrive.OutcomeRelease)
	r := &kgo.Record{Topic: s.dlq, Key: h.record.Key, Value: h.record.Value}
	was := s.original(h.record, from.retries)
	r.Headers = rawHeaders(append(native.Headers(&m, false), was.Headers()...))
	if item.Outcome == redrive.OutcomeDead {
		history.Reason, history.DiedAt = item.Reason, now
		r.Headers = append(r.Headers, rawHeaders(history.Headers())...)
		return r
	}
	s.delay(r, history.Headers(), item.After, now)
	return r
}

// DeadLetter implements [driver.DeadLetterSink]: it publishes a dead letter of the queue that
// was parked in a store meanwhile, as what a crash left in flight is, to the topic of dead
// letters. Repeated, it may be there twice, under the same id. It needs [Options.Native].
func (s *Source) DeadLetter(ctx context.Context, e *redrive.Entry) error {
	if !s.o.Native {
		return unsupported("native dead letters")
	}
	m := e.Message
	m.Delay, m.DeliverAt = 0, time.Time{}
	r := &kgo.Record{Topic: s.dlq, Key: []byte(m.Key), Value: m.Body}
	if key, ok := m.Headers.Get(headername.NativeKey); ok && m.Key == "" {
		r.Key = []byte(key)
		m.Headers = m.Headers.Clone()
		m.Headers.Del(headername.NativeKey)
	}
	history := native.History{Queue: s.o.Queue, Attempts: e.Attempts, Crashes: e.Crashes, History: e.History, Reason: e.Reason, DiedAt: e.DiedAt}
	if history.DiedAt.IsZero() {
		history.DiedAt = time.Now()
	}
	was := native.NewOriginal()
	was.Topic, was.Group, was.At = s.topic, s.group, m.PublishedAt
	was.Partition, was.Offset = placeOf(m.Origin, s.topic)
	r.Headers = rawHeaders(append(append(native.Headers(&m, false), was.Headers()...), history.Headers()...))
	if err := s.main.client.ProduceSync(ctx, r).FirstErr(); err != nil {
		return produceError(err)
	}
	return nil
}

// placeOf reads what origin wrote. Another origin has no place.
func placeOf(text, topic string) (partition int32, offset int64) {
	rest, ours := strings.CutPrefix(text, topic+"/")
	number, at, _ := strings.Cut(rest, "/")
	n, errPartition := strconv.ParseInt(number, 10, 32)
	o, errOffset := strconv.ParseInt(at, 10, 64)
	if !ours || errPartition != nil || errOffset != nil {
		return -1, -1
	}
	return int32(n), o
}

// delay makes a record one of a retry topic.
func (s *Source) delay(r *kgo.Record, history redrive.Headers, after time.Duration, now time.Time) {
	r.Topic = s.tier(after)
	r.Headers = append(append(r.Headers, rawHeaders(history)...),
		kgo.RecordHeader{Key: headerDue, Value: []byte(now.Add(after).UTC().Format(time.RFC3339Nano))})
}

// topology checks that the topics are there that failed records go to, or makes them.
func (s *Source) topology(ctx context.Context, partitions int) error {
	topics := append(s.tierTopics(), s.dlq)
	meta, err := s.admin.Metadata(ctx, append(topics, s.topic)...)
	if err != nil {
		return openError(err, "")
	}
	var missing []string
	for _, topic := range topics {
		switch err := meta.Topics[topic].Err; {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing = append(missing, topic)
		case err != nil:
			return openError(fmt.Errorf("topic %s: %w", topic, err), "")
		}
	}
	if len(missing) > 0 {
		if err := s.make(ctx, missing, partitions); err != nil {
			return err
		}
	}
	return s.learnNames(ctx, topics)
}

// learnNames waits until topics are known, and keeps their ids.
func (s *Source) learnNames(ctx context.Context, topics []string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		meta, err := s.admin.Metadata(ctx, topics...)
		if err != nil {
			return openError(err, "")
		}
		s.names = make(map[[16]byte]string)
		known := 0
		for name, t := range meta.Topics {
			s.names[t.ID] = name
			if t.Err == nil && len(t.Partitions) > 0 {
				known++
			}
		}
		if known == len(topics) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return openError(ctx.Err(), "the topics were made and are not known to the brokers yet: try again")
		}
	}
}

// make creates topics if that was asked for. What is retried is kept as long as it was
// in the first topic, and its delay; what is dead is kept for good.
func (s *Source) make(ctx context.Context, missing []string, partitions int) error {
	configs, err := configs(ctx, s.admin, s.topic)
	if err != nil {
		return openError(err, "")
	}
	for _, topic := range missing {
		retention := "-1"
		if ms, err := strconv.ParseInt(configs["retention.ms"], 10, 64); topic != s.dlq && err == nil && ms >= 0 {
			retention = strconv.FormatInt(ms+s.longest().Milliseconds(), 10)
		}
		with := map[string]*string{"retention.ms": &retention, "cleanup.policy": new("delete"), "max.message.bytes": new(room(configs["max.message.bytes"]))}
		if !s.create {
			return openError(fmt.Errorf("topic %s, for what fails: %w", topic, kerr.UnknownTopicOrPartition),
				fmt.Sprintf("make it, or add create=true to the address: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --config retention.ms=%s --config cleanup.policy=delete --config max.message.bytes=%s",
					s.brokers[0], topic, partitions, retention, *with["max.message.bytes"]))
		}
		made, err := s.admin.CreateTopic(ctx, int32(partitions), -1, with, topic) //nolint:gosec // Kafka counts them so
		if err == nil {
			err = made.Err
		}
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return openError(fmt.Errorf("make topic %s: %w", topic, err), "make it by hand, or allow it to this client")
		}
	}
	return nil
}

// headroom is what a failure history adds to a record at most.
const headroom = 64 << 10

// room is the size of records that also fit with a failure history.
func room(bytes string) string {
	n, err := strconv.Atoi(bytes)
	if err != nil {
		n = 1 << 20
	}
	return strconv.Itoa(n + headroom)
}

// configs returns the settings of a topic.
func configs(ctx context.Context, admin *kadm.Client, topic string) (map[string]string, error) {
	all, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for _, c := range all[0].Configs {
		values[c.Key] = c.MaybeValue()
	}
	return values, all[0].Err
}
