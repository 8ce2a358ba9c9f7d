package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/native"
)

// Publish implements redrive.Sink. It returns when all replicas in sync have the
// records. What Kafka cannot do, a delay, is refused; ids are not remembered.
func (s *Source) Publish(ctx context.Context, msgs []redrive.Message) []error {
	fit := func(m *redrive.Message) error { return s.fit(m, s.o.Queue, s.Caps().MaxDelay) }
	return s.publishTo(ctx, s.main.client, msgs, fit, s.record)
}

// publishTo publishes the messages that fit, as records.
func (t *target) publishTo(ctx context.Context, client *kgo.Client, msgs []redrive.Message, fit func(*redrive.Message) error, record func(*redrive.Message) *kgo.Record) []error {
	errs := make([]error, len(msgs))
	away := t.reach.check(ctx, client)
	records := make([]*kgo.Record, 0, len(msgs))
	of := make(map[*kgo.Record]int, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if errs[i] = cmp.Or(fit(m), away); errs[i] != nil {
			continue
		}
		if m.ID == "" {
			m.ID = redrive.NewID()
		}
		r := record(m)
		records, of[r] = append(records, r), i
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			errs[of[result.Record]] = produceError(result.Err)
		}
	}
	return errs
}

// fit reports why a message cannot go to the topic.
func (t *target) fit(m *redrive.Message, queue string, longest time.Duration) error {
	if err := m.Validate(); err != nil {
		return err
	}
	refuse := func(err error, hint string) error {
		return &redrive.Error{Op: "publish", Queue: m.Queue, ID: m.ID, Err: err, Hint: hint}
	}
	switch {
	case m.Queue != queue:
		return refuse(fmt.Errorf("%w queue: this is topic %s", redrive.ErrInvalid, t.topic), "publish to queue "+queue)
	case m.Delay > longest || !m.DeliverAt.IsZero():
		return refuse(fmt.Errorf("a delay: %w", redrive.ErrUnsupported), "publish it to the store beside Kafka")
	}
	return nil
}

func (t *target) record(m *redrive.Message) *kgo.Record {
	r := &kgo.Record{Topic: t.topic, Value: m.Body}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	r.Headers = rawHeaders(native.Headers(m, false))
	return r
}

func (s *Source) record(m *redrive.Message) *kgo.Record {
	r := s.target.record(m)
	if m.Delay > 0 { // natively
		history := native.History{Queue: s.o.Queue}
		s.delay(r, history.Headers(), m.Delay, time.Now())
	}
	return r
}

// produceError says whether a publish may be repeated.
func produceError(err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return &redrive.Error{Op: "publish", Err: fmt.Errorf("%w message: exceeds the topic's size limit", redrive.ErrInvalid),
			Hint: "raise max.message.bytes of the topic, or keep large data elsewhere"}
	case errors.Is(err, kgo.ErrClientClosed):
		return redrive.ErrClosed
	}
	return fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
}
