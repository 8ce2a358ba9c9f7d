package jetstream

import (
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
	"github.com/redrive/redrive/internal/headername"
)

const (
	publishPending = 4096 // not acknowledged yet, of one source
	publishWait    = 20 * time.Second
)

// Publish implements redrive.Sink. It returns when the stream has acknowledged the
// messages, which go out without waiting for one another. What JetStream cannot do, a
// delay, is refused. An id is known within the stream's window of duplicates only.
func (s *Source) Publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	out := make([]*nats.Msg, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if errs[i] = s.fit(m); errs[i] != nil {
			continue
		}
		if m.ID == "" {
			m.ID = redrive.NewID()
		}
		out[i] = &nats.Msg{Subject: s.publish, Header: headersOf(m), Data: m.Body}
		out[i].Header[jetstream.MsgIDHeader] = []string{messageID(m)}
	}
	send(ctx, s.js, s.at.stream, out, errs)
	return errs
}

// messageID tells a message from one of the same id that was redriven or repeated.
func messageID(m *redrive.Message) string {
	if m.Generation == 0 && m.Redrives == 0 {
		return m.ID
	}
	return m.ID + "/" + strconv.Itoa(m.Generation) + "/" + strconv.Itoa(m.Redrives)
}

// fit reports why a message cannot go to the stream.
func (s *Source) fit(m *redrive.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	refuse := func(err error, hint string) error {
		return &redrive.Error{Op: "publish", Queue: m.Queue, ID: m.ID, Err: err, Hint: hint}
	}
	switch {
	case m.Queue != s.o.Queue:
		return refuse(fmt.Errorf("%w queue: this is stream %s", redrive.ErrInvalid, s.at.stream), "publish to queue "+s.o.Queue)
	case m.Delay > 0 || !m.DeliverAt.IsZero():
		return refuse(fmt.Errorf("a delay: %w", redrive.ErrUnsupported), "publish it to the store beside JetStream")
	}
	return nil
}

// send publishes messages to a stream and waits for all acknowledgements. Messages that
// are nil are left out; with no stream named any may take them.
func send(ctx context.Context, js jetstream.JetStream, stream string, out []*nats.Msg, errs []error) {
	acks := make([]jetstream.PubAckFuture, len(out))
	for i, m := range out {
		if m == nil {
			continue
		}
		if stream != "" {
			m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		}
		if acks[i], errs[i] = js.PublishMsgAsync(m, jetstream.WithStallWait(publishWait)); errs[i] != nil {
			errs[i] = publishError(errs[i])
		}
	}
	for i := range errs {
		a := acks[i]
		if a == nil {
			continue
		}
		select {
		case got := <-a.Ok():
			if got.Duplicate {
				errs[i] = redrive.ErrDuplicate
			}
		case err := <-a.Err():
			errs[i] = publishError(err)
		case <-ctx.Done():
			errs[i] = fmt.Errorf("%w: %w", redrive.ErrUnknown, ctx.Err())
		}
	}
}

// Codes of the server that mean that a stream or a disk is full.
const (
	codeResources   jetstream.ErrorCode = 10023
	codeStorage     jetstream.ErrorCode = 10047
	codeStoreFailed jetstream.ErrorCode = 10077 // maximum messages or bytes exceeded, or no room
)

// publishError says whether a publish may be repeated.
func publishError(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return &redrive.Error{Op: "publish", Err: fmt.Errorf("%w message: exceeds the server's size limit", redrive.ErrInvalid),
			Hint: "raise max_payload of the server and max_msg_size of the stream, or keep large data elsewhere"}
	case errors.Is(err, nats.ErrReconnectBufExceeded): // there is no connection, and nothing was sent
		return fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return redrive.ErrClosed
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return &redrive.Error{Op: "publish", Err: fmt.Errorf("%w: %w", redrive.ErrUnknown, err), Hint: "does the stream take this subject, and does it have a leader?"}
	case errors.As(err, &api) && (api.ErrorCode == codeResources || api.ErrorCode == codeStorage || api.ErrorCode == codeStoreFailed):
		return &redrive.Error{Op: "publish", Err: fmt.Errorf("%w: %s", redrive.ErrBacklogged, api.Description), Hint: "consume, or raise the limits of the stream"}
	}
	return fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
}

// publishSubject chooses the subject to publish to.
func (s *Source) publishSubject(of []string) (string, error) {
	if s.at.publish != "" {
		return s.at.publish, nil
	}
	if s.at.subject != "" {
		of = []string{s.at.subject}
	}
	if subject, ok := subjectAmong(of, s.o.Queue); ok {
		return subject, nil
	}
	return "", openError(fmt.Errorf("%w address of NATS: none of the subjects %s can be published to", redrive.ErrInvalid, strings.Join(of, ", ")),
		"say which with the parameter publish")
}

// subjectAmong returns a subject that one of the patterns takes: the first that is no
// pattern, else the first whose last token may be the queue's name.
func subjectAmong(patterns []string, queue string) (string, bool) {
	for _, p := range patterns {
		if !strings.ContainsAny(p, "*>") {
			return p, true
		}
	}
	for _, p := range patterns {
		head, ok := strings.CutSuffix(p, ">")
		if !ok && !strings.Contains(queue, ".") {
			head, ok = strings.CutSuffix(p, "*")
		}
		if ok && !strings.ContainsAny(head, "*>") {
			return head + queue, true
		}
	}
	return "", false
}

// message is one of the stream as a message.
func (s *Source) message(m *nats.Msg, meta *nats.MsgMetadata) redrive.Message {
	d := redrive.Message{Queue: s.o.Queue, Body: m.Data, PublishedAt: meta.Timestamp}
	readHeaders(&d, m.Header)
	if d.ID == "" {
		if id := m.Header.Get(jetstream.MsgIDHeader); driver.CheckID(id) == nil {
			d.ID = id
		}
	}
	if d.Origin == "" {
		d.Origin = meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10)
	}
	if s.publish != "" && m.Subject != s.publish {
		if _, ok := d.Headers.Get(headername.OriginalSubject); !ok {
			d.Headers = append(d.Headers, redrive.Header{Name: headername.OriginalSubject, Value: []byte(m.Subject)})
		}
	}
	return d
}
