package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/leaktest"
	"github.com/redrive/redrive/internal/natstest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return leaktest.Main(m.Run) }, natstest.Part, brokertest.Victim(func(ctx context.Context, address string) (backendtest.SourceSink, error) {
		if err := hasten(ctx, address); err != nil {
			return nil, err
		}
		return Open(ctx, address, Options{Queue: brokertest.Queue})
	})))
}

// hasten lets what a process had that was killed come again after a second.
func hasten(ctx context.Context, address string) error {
	at, err := parse(address)
	if err != nil {
		return err
	}
	nc, err := at.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := at.api(nc)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, at.stream, at.consumer)
	if err != nil {
		return err
	}
	config := consumer.CachedInfo().Config
	config.AckWait = time.Second
	_, err = js.UpdateConsumer(ctx, at.stream, config)
	return err
}

// streams numbers the streams of the tests.
var streams atomic.Int64

// rig is a server with a client of its own.
type rig struct {
	addr string
	nc   *nats.Conn
	js   jetstream.JetStream
}

// reach connects to a server, also across its restarts.
func reach(t testing.TB, addr string) *rig {
	t.Helper()
	js := natstest.Client(t, addr)
	return &rig{addr: addr, nc: js.Conn(), js: js}
}

// start starts a server in this process.
func start(t testing.TB) *rig {
	t.Helper()
	return reach(t, natstest.Start(t, natstest.Options{MaxPayload: 20 << 20}).Addr())
}

// stream makes a stream with a subject of its name and returns its address.
func (r *rig) stream(t testing.TB, alter ...func(*jetstream.StreamConfig)) string {
	t.Helper()
	name := fmt.Sprintf("S%d", streams.Add(1))
	c := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}}
	for _, a := range alter {
		a(&c)
	}
	natstest.Stream(t, r.js, c)
	return "nats://" + r.addr + "/" + name
}

// soon makes what is lost on its way come again after 3 s.
func soon(address string) string { return address + "?ack_wait=3s" }

func workQueue(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }

// connect opens a source that closes with the test.
func connect(t testing.TB, address string, o Options) *Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if o.Queue == "" {
		o.Queue = brokertest.Queue
	}
	s, err := Open(ctx, address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func conformance(t *testing.T, r *rig, o Options, alter ...func(*jetstream.StreamConfig)) {
	addresses := map[backendtest.SourceSink]string{}
	opened := func(t testing.TB, address string) backendtest.SourceSink {
		s := connect(t, address, o)
		addresses[s] = address
		return s
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open:    func(t testing.TB) backendtest.SourceSink { return opened(t, r.stream(t, alter...)) },
		Connect: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink { return opened(t, addresses[s]) },
		Contents: func(t testing.TB, s backendtest.SourceSink) map[string]string {
			own := s.(*Source).at.stream
			return r.contents(t, own, r.theirs(t, own))
		},
		Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return opened(t, addresses[s])
		},
		Queues: []string{brokertest.Queue},
	})
}

// TestOnAServer runs what needs one server, side by side.
func TestOnAServer(t *testing.T) {
	t.Parallel()
	r := start(t)
	for name, alter := range map[string][]func(*jetstream.StreamConfig){"Limits": nil, "WorkQueue": {workQueue}} {
		t.Run("Conformance/"+name, func(t *testing.T) {
			t.Parallel()
			conformance(t, r, Options{}, alter...)
		})
		t.Run("Engine/"+name, func(t *testing.T) {
			t.Parallel()
			brokertest.Run(t, brokertest.Broker{
				Make: func(t testing.TB) string { return r.stream(t, alter...) },
				Open: func(ctx context.Context, address string) (backendtest.SourceSink, error) {
					return Open(ctx, address, Options{Queue: brokertest.Queue})
				},
				Foreign: r.foreign,
			})
		})
	}
	t.Run("Conformance/Native", func(t *testing.T) {
		t.Parallel()
		conformance(t, r, Options{Native: true})
	})
}

// foreign publishes as a program would that knows nothing of Redrive.
func (r *rig) foreign(t testing.TB, address string, bodies ...string) {
	t.Helper()
	at, err := parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		if _, err := r.js.Publish(t.Context(), strings.ToLower(at.stream), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
}

// theirs makes a stream with a message and a consumer, whose names are like those of a stream
// of the tests, unless it is there.
func (r *rig) theirs(t testing.TB, own string) (stream string) {
	t.Helper()
	stream = own + "_THEIRS"
	_, err := r.js.Stream(t.Context(), stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		subject := strings.ToLower(stream)
		made := natstest.Stream(t, r.js, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
		if _, err = r.js.Publish(t.Context(), subject, []byte("theirs")); err == nil {
			_, err = made.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "redrive", AckPolicy: jetstream.AckExplicitPolicy})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// contents tells what the server has: streams and consumers, and how those stand that are
// not the test's own, of which messages are fetched ahead. Other tests' are left out.
func (r *rig) contents(t testing.TB, own, theirs string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	streams := r.js.ListStreams(t.Context())
	for info := range streams.Info() {
		name := info.Config.Name
		if name != own && !strings.HasPrefix(name, own+"_") {
			continue
		}
		config, err := json.Marshal(info.Config)
		if err != nil {
			t.Fatal(err)
		}
		all["stream "+name] = fmt.Sprintf("%s, %d messages, last %d", config, info.State.Msgs, info.State.LastSeq)
		stream, err := r.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		consumers := stream.ListConsumers(t.Context())
		for info := range consumers.Info() {
			config, err := json.Marshal(info.Config)
			if err != nil {
				t.Fatal(err)
			}
			state := string(config)
			if name == theirs {
				state += fmt.Sprintf(" %+v %+v %d %d", info.Delivered, info.AckFloor, info.NumPending, info.NumAckPending)
			}
			all["consumer "+info.Name+" of "+name] = state
		}
		if err := consumers.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
