package broker

import (
	"context"

	"github.com/nats-io/nats.go"
	client "github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/backend/jetstream"
)

// DialJetStream connects to the first server that answers, with all that the address of a
// source may say of it.
func (a *Address) DialJetStream(ctx context.Context) (*nats.Conn, client.JetStream, error) {
	return jetstream.Dial(ctx, a.text)
}
