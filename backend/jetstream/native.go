package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/native"
)

// deadWindow is how long a stream of dead letters that we made knows their ids.
const deadWindow = 24 * time.Hour

// declareDead finds the stream of dead letters, and makes it as durable as the source's
// if it is not there.
func (s *Source) declareDead(ctx context.Context, like *jetstream.StreamConfig) error {
	stream, err := s.js.Stream(ctx, s.at.dlq)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: s.at.dlq, Description: "redrive: dead letters of " + s.at.stream, Subjects: []string{s.at.dlq + ".>"},
			Storage: like.Storage, Replicas: like.Replicas, Duplicates: deadWindow, Discard: jetstream.DiscardNew,
		})
	}
	if err != nil {
		return openError(fmt.Errorf("stream of dead letters %s: %w", s.at.dlq, err), "make it first, or name another with the parameter dlq")
	}
	subject, ok := subjectAmong(stream.CachedInfo().Config.Subjects, s.o.Queue)
	if !ok {
		return openError(fmt.Errorf("stream of dead letters %s: %w: it has no subject to publish to", s.at.dlq, redrive.ErrUnsupported), "name another with the parameter dlq")
	}
	s.buried = subject
	return nil
}

// bury publishes what is dead to the stream of dead letters and returns those items that
// are safe there.
func (s *Source) bury(ctx context.Context, batch []driver.Settlement, items []*item, dead []int, errs []error) []int {
	if len(dead) == 0 {
		return nil
	}
	out := make([]*nats.Msg, len(dead))
	for j, i := range dead {
		it := items[i]
		m := s.message(it.msg, it.meta)
		m.ID = it.receipt.ID
		history := native.History{Queue: s.o.Queue, Attempts: 1, Reason: batch[i].Reason, DiedAt: time.Now()}
		history.History.Record(batch[i].Failure, true)
		at := native.Original{Partition: -1, Offset: int64(it.meta.Sequence.Stream), Group: it.meta.Consumer, //nolint:gosec // a sequence
			Stream: it.meta.Stream, Subject: it.msg.Subject, At: it.meta.Timestamp}
		out[j] = s.deadLetter(&m, &history, &at)
	}
	sent := make([]error, len(dead))
	send(ctx, s.js, s.at.dlq, out, sent)
	safe := dead[:0:0]
	for j, i := range dead {
		if sent[j] != nil && !errors.Is(sent[j], redrive.ErrDuplicate) {
			errs[i] = sent[j]
			continue
		}
		safe = append(safe, i)
	}
	return safe
}

// deadLetter is a message as it stands in the stream of dead letters. Its Nats-Msg-Id is
// derived from what names the message, so that a repetition is recognised.
func (s *Source) deadLetter(m *redrive.Message, history *native.History, at *native.Original) *nats.Msg {
	rest := make(redrive.Headers, 0, len(m.Headers)+20)
	for _, h := range m.Headers {
		if !native.IsOriginal(h.Name) {
			rest = append(rest, h)
		}
	}
	m.Headers = append(append(rest, at.Headers()...), history.Headers()...)
	d := &nats.Msg{Subject: s.buried, Header: headersOf(m), Data: m.Body}
	d.Header[jetstream.MsgIDHeader] = []string{driver.DeriveID("dead", m.Queue, m.Origin, messageID(m))}
	return d
}

// DeadLetter implements [driver.DeadLetterSink]: it publishes a dead letter of the queue,
// also one that was parked in a store meanwhile, to the stream of dead letters. It needs
// [Options.Native].
func (s *Source) DeadLetter(ctx context.Context, e *redrive.Entry) error {
	if s.buried == "" {
		return fmt.Errorf("native dead letters: %w", redrive.ErrUnsupported)
	}
	m := e.Message
	m.Delay, m.DeliverAt = 0, time.Time{}
	history := native.History{Queue: e.Queue, Attempts: e.Attempts, Crashes: e.Crashes, History: e.History, Reason: e.Reason, DiedAt: e.DiedAt}
	if history.DiedAt.IsZero() {
		history.DiedAt = time.Now()
	}
	out, errs := []*nats.Msg{s.deadLetter(&m, &history, s.original(&m))}, make([]error, 1)
	send(ctx, s.js, s.at.dlq, out, errs)
	if errors.Is(errs[0], redrive.ErrDuplicate) {
		return nil
	}
	return errs[0]
}

// original is where a message that was parked came from.
func (s *Source) original(m *redrive.Message) *native.Original {
	at, _ := native.ReadOriginal(m.Headers)
	at.Stream, at.Group, at.Subject = cmp.Or(at.Stream, s.at.stream), cmp.Or(at.Group, s.at.consumer), cmp.Or(at.Subject, s.publish)
	if sequence, ok := strings.CutPrefix(m.Origin, s.at.stream+"/"); ok && at.Offset < 0 {
		if n, err := strconv.ParseInt(sequence, 10, 64); err == nil {
			at.Offset = n
		}
	}
	if at.At.IsZero() {
		at.At = m.PublishedAt
	}
	return &at
}
