package natstest

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Client connects to a server, also across its restarts, until the test ends.
func Client(t testing.TB, addr string, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(addr, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Stream makes a stream.
func Stream(t testing.TB, js jetstream.JetStream, c jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, c)
	if err != nil {
		t.Fatalf("make stream %s: %v", c.Name, err)
	}
	return stream
}
