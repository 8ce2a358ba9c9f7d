package publish

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/broker"
)

type streamSender struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

func newJetStream(ctx context.Context, a *broker.Address) (sender, error) {
	conn, js, err := a.DialJetStream(ctx)
	if err != nil {
		return nil, err
	}
	return &streamSender{conn, js}, nil
}

func (s *streamSender) send(ctx context.Context, m *message) error {
	msg := nats.NewMsg(m.to)
	msg.Data = m.delivery.Body
	for _, h := range m.headers {
		if serverHeader(h.Name) {
			continue
		}
		msg.Header.Add(h.Name, string(h.Value))
	}
	_, err := s.js.PublishMsg(ctx, msg, jetstream.WithMsgID(againID(m.delivery)))
	if errors.Is(err, nats.ErrMaxPayload) {
		return oversize(err)
	}
	return err
}

// serverHeader reports headers that tell the server what to do with a message, or that
// it wrote itself: an old Nats-Msg-Id would make a redriven message a duplicate.
func serverHeader(name string) bool {
	name = strings.ToLower(name)
	for _, prefix := range []string{"nats-msg-id", "nats-expected-", "nats-rollup", "nats-sequence", "nats-time-stamp", "nats-stream",
		"nats-subject", "nats-last-", "nats-num-pending", "nats-schedule", "nats-ttl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func (s *streamSender) close() { s.conn.Close() }
