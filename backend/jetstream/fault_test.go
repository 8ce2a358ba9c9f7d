package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/servertest"
)

// journal counts what was handled, by id.
type journal struct {
	mu   sync.Mutex
	seen map[string]int
}

func (j *journal) handler(_ context.Context, d *redrive.Delivery) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = make(map[string]int)
	}
	j.seen[d.ID]++
	return nil
}

func (j *journal) count() (messages, again int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.seen {
		again += n - 1
	}
	return len(j.seen), again
}

// load publishes through faults until it has n acknowledgements, while fault is called
// after each tenth of them.
func load(t *testing.T, s *Source, n int, fault func(tenth int)) {
	t.Helper()
	const batch = 20
	for at := 0; at < n; {
		msgs := make([]redrive.Message, batch)
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: brokertest.Queue, ID: fmt.Sprintf("m%d", at+i), Body: []byte("body")}
		}
		servertest.Until(t, "a batch is acknowledged", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			for _, err := range s.Publish(ctx, msgs) {
				if err != nil && !errors.Is(err, redrive.ErrDuplicate) {
					return false
				}
			}
			return true
		})
		if at += batch; at%(n/10) == 0 {
			fault(at * 10 / n)
		}
	}
}

// underLoad publishes and handles messages through faults and checks that all that was
// acknowledged is handled, and little of it again.
func underLoad(t *testing.T, s *Source, n int, fault func(tenth int)) {
	t.Helper()
	var j journal
	store := memory.New()
	stop := brokertest.Consume(t, store, 0, j.handler, engine.QueueOptions{Sources: []driver.Source{s}, Concurrency: 16})
	load(t, s, n, fault)
	servertest.Until(t, "all are handled", func() bool { messages, _ := j.count(); return messages == n })
	stop()
	messages, again := j.count()
	t.Logf("%d messages, %d handled again, advisories %v", messages, again, s.Advisories())
	if again > n/2 {
		t.Errorf("%d of %d were handled again", again, n)
	}
	counts, err := store.Counts(t.Context(), brokertest.Queue)
	if err != nil || counts[0].AllDead() != 0 || counts[0].AllWaiting() != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}

// TestServerIsKilled kills the server's process again and again under load.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	p := natstest.StartProcess(t, natstest.Options{SyncAlways: true})
	r := reach(t, p.Addr())
	s := connect(t, soon(r.stream(t, workQueue)), Options{})
	underLoad(t, s, 1000, func(tenth int) {
		if tenth%3 == 0 {
			p.Kill()
			if err := p.Resume(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestServerRestarts stops and starts the server in order under load.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	s := connect(t, soon(reach(t, server.Addr()).stream(t)), Options{})
	underLoad(t, s, 1000, func(tenth int) {
		if tenth == 3 || tenth == 7 {
			server.Stop()
			if err := server.Resume(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestConnectionIsCut cuts the connection under load, at times with answers that were
// on their way.
func TestConnectionIsCut(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	proxy := proxytest.New(t, server.Addr())
	r := reach(t, server.Addr())
	address := strings.Replace(r.stream(t), server.Addr(), proxy.Addr().String(), 1)
	// The server tells its clients where else it may be reached, which would lead around
	// the proxy.
	s := connect(t, soon(address), Options{Client: []nats.Option{nats.IgnoreDiscoveredServers()}})
	underLoad(t, s, 1000, func(tenth int) {
		if tenth%2 == 0 {
			proxy.Cut()
		}
	})
	stats, err := s.SourceStats(t.Context())
	if err != nil || stats.Reconnects < 4 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestLeaderChanges moves the leaders of a stream with three replicas and of its consumer,
// and stops a server, under load.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, natstest.Options{})
	r := reach(t, c.Addr())
	var address string
	servertest.Until(t, "the stream is made", func() bool {
		defer func() { _ = recover() }()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: "R3", Subjects: []string{"r3"}, Replicas: natstest.Nodes})
		address = "nats://" + c.Addr() + "/R3?ack_wait=3s"
		return err == nil
	})
	s := connect(t, address, Options{})
	for _, v := range s.Probe(t.Context()) {
		if v.Setting == "replicas" && v.Level != driver.LevelOK {
			t.Errorf("%+v", v)
		}
	}
	down := ""
	underLoad(t, s, 1000, func(tenth int) {
		switch tenth {
		case 2, 5:
			_, _ = r.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.R3", nil, 5*time.Second)
		case 3, 6:
			_, _ = r.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.R3.redrive", nil, 5*time.Second)
		case 7:
			if stream, err := r.js.Stream(t.Context(), "R3"); err == nil && stream.CachedInfo().Cluster != nil {
				down = stream.CachedInfo().Cluster.Leader
			}
			if server := c.Named(down); server != nil {
				server.Stop()
			}
		case 9:
			if server := c.Named(down); server != nil {
				if err := server.Resume(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestConsumerIsDeleted deletes the consumer under load: it goes on where it was.
func TestConsumerIsDeleted(t *testing.T) {
	t.Parallel()
	r := start(t)
	for name, alter := range map[string]func(*jetstream.StreamConfig){"Limits": func(*jetstream.StreamConfig) {}, "WorkQueue": workQueue} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, soon(r.stream(t, alter)), Options{})
			underLoad(t, s, 1000, func(tenth int) {
				if tenth == 4 || tenth == 8 { // it may not have been made again yet
					servertest.Until(t, "the consumer is deleted", func() bool {
						return r.js.DeleteConsumer(t.Context(), s.at.stream, "redrive") == nil
					})
				}
			})
		})
	}
}

// TestStreamIsDeleted deletes the stream: the fault is reported, and when it is made again its
// messages are handled, though they have the numbers of others.
func TestStreamIsDeleted(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	s := connect(t, address, Options{})
	brokertest.Publish(t, s, 5)
	ds := claimN(t, s, 5)
	if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeDone, ds[:4]...))); err != nil {
		t.Fatal(err)
	}
	if err := r.js.DeleteStream(t.Context(), s.at.stream); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "the fault is reported", func() bool {
		_, err := s.Claim(t.Context(), claim(1))
		return errors.Is(err, jetstream.ErrStreamNotFound)
	})
	natstest.Stream(t, r.js, jetstream.StreamConfig{Name: s.at.stream, Subjects: []string{s.publish}})
	r.foreign(t, address, "one", "two", "three", "four", "five")
	var got []string
	servertest.Until(t, "the new messages come", func() bool {
		ds, _ := s.Claim(t.Context(), claim(5))
		for i := range ds {
			got = append(got, string(ds[i].Body))
		}
		return len(got) == 5
	})
	if strings.Join(got, " ") != "one two three four five" {
		t.Errorf("%q", got)
	}
}
