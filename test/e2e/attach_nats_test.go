package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/natstest"
)

// TestAttachToJetStream: a stream of dead letters with the retention of a work queue, on
// which no second consumer may look.
func TestAttachToJetStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.Options{})
	js := natstest.Client(t, s.Addr())
	testAttach(t, &foreignBroker{
		address: "nats://" + s.Addr(), options: []string{"--origin", "NAME.new"},
		dead: func(name string) string { return "nats://" + s.Addr() + "/" + name + "_DLQ" },
		make: func(t *testing.T, name string) {
			t.Helper()
			natstest.Stream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
			natstest.Stream(t, js, jetstream.StreamConfig{Name: name + "_DLQ", Subjects: []string{"dead." + name}, Retention: jetstream.WorkQueuePolicy})
		},
		die: func(t *testing.T, name string, from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				m := nats.NewMsg("dead." + name)
				m.Data = []byte(deadBody(i))
				m.Header.Set("tenant", "gold")
				m.Header.Set("x-exception-message", fmt.Sprintf("order %d: amount cannot be read", i))
				m.Header.Set("x-exception-fqcn", "ValueError")
				m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s-%d", name, i)) // of the message, which a redrive must not repeat
				if _, err := js.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		},
		back: func(t *testing.T, name string) (all []foreign) {
			t.Helper()
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			for at := uint64(1); ; at++ {
				raw, err := stream.GetMsg(t.Context(), at)
				if errors.Is(err, jetstream.ErrMsgNotFound) {
					return all
				} else if err != nil {
					t.Fatal(err)
				}
				if raw.Subject != name+".new" {
					t.Errorf("subject %s", raw.Subject)
				}
				m := foreign{body: string(raw.Data), headers: make(map[string]string)}
				for name := range raw.Header {
					m.headers[name] = raw.Header.Get(name)
				}
				all = append(all, m)
			}
		},
		left: func(t *testing.T, name string) int {
			t.Helper()
			stream, err := js.Stream(t.Context(), name+"_DLQ")
			if err != nil {
				t.Fatal(err)
			}
			return int(stream.CachedInfo().State.Msgs)
		},
	})
}
