package transfer

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/servertest"
)

// stream is the world of a stream of JetStream.
func stream(native bool) func(*testing.T, server) *world {
	return func(t *testing.T, beside server) *world {
		p := natstest.StartProcess(t, natstest.Options{SyncAlways: true})
		const name, consumer = "ORDERS", "shop"
		s := server{addr: p.Addr(), url: at("nats://ADDR/" + name + "?consumer=" + consumer + "&ack_wait=2s"), kill: killed(p.Kill), resume: p.Resume}
		js := natstest.Client(t, p.Addr())
		names := []string{name}
		if native {
			names = append(names, name+"_DLQ")
		}
		for _, n := range names {
			natstest.Stream(t, js, jetstream.StreamConfig{Name: n, Subjects: []string{n + ".>"}})
		}
		w, store := sourced(t, "nats", s, beside, native)
		w.publish = func(t *testing.T, body string) {
			t.Helper()
			servertest.UntilNil(t, "a message is published", func() error {
				_, err := js.Publish(t.Context(), name+".new", []byte(body), jetstream.WithMsgID(body))
				return err
			})
		}
		w.left = func(t *testing.T) int {
			c, err := js.Consumer(t.Context(), name, consumer)
			if err != nil {
				return 1
			}
			info, err := c.Info(t.Context())
			if err != nil {
				return 1
			}
			return int(info.NumPending) + info.NumAckPending + waiting(t, store)
		}
		if native {
			w.alsoDead(func(t *testing.T) map[string]int {
				t.Helper()
				seen := newFound()
				dlq, err := js.Stream(t.Context(), name+"_DLQ")
				if err != nil {
					return nil
				}
				for n := uint64(1); n <= dlq.CachedInfo().State.LastSeq; n++ {
					m, err := dlq.GetMsg(t.Context(), n)
					if err != nil {
						return nil
					}
					seen.add(string(m.Data))
				}
				return seen.counts()
			})
		}
		return w
	}
}
