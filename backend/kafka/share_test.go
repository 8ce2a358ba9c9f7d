package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/servertest"
)

// shared makes a topic and returns its address with a share group of its own.
func (c *cluster) shared(t testing.TB, partitions int32) string {
	t.Helper()
	return strings.Replace(c.topic(t, partitions), "?group=", "?create=true&share=", 1)
}

// join opens a source that closes with the test.
func join(t testing.TB, address string) *Share {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := OpenShare(ctx, address, Options{Queue: brokertest.Queue})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestShare runs what a share group must do on a broker; the one in the process has none.
func TestShare(t *testing.T) {
	t.Parallel()
	c := reach(t, kafkatest.Start(t).Addr())
	t.Run("Conformance", func(t *testing.T) {
		t.Parallel()
		shareConformance(t, c)
	})
	t.Run("Engine", func(t *testing.T) {
		t.Parallel()
		b := c.broker()
		b.Make = func(t testing.TB) string { return c.shared(t, 4) }
		b.Open = openAny
		brokertest.Run(t, b)
	})
	for name, run := range map[string]func(*testing.T, *cluster){
		"APollAcceptsNothing":      pollAcceptsNothing,
		"ReleasedComesAgain":       releasedComesAgain,
		"LocksAreRenewed":          locksAreRenewed,
		"ALateSettlementIsRefused": lateSettlement,
		"LastDeliveriesAreStored":  lastDeliveries,
		"SlowIsReported":           slowShareIsReported,
		"Probe":                    shareProbe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

func shareConformance(t *testing.T, c *cluster) {
	addresses := map[backendtest.SourceSink]string{}
	opened := func(t testing.TB, address string) backendtest.SourceSink {
		s := join(t, address)
		addresses[s] = address
		return s
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open: func(t testing.TB) backendtest.SourceSink { return opened(t, c.shared(t, 1)) },
		Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return opened(t, addresses[s])
		},
		Queues: []string{brokertest.Queue},
	})
}

// openAny opens what an address names, as package backend does.
func openAny(ctx context.Context, address string) (backendtest.SourceSink, error) {
	if Shared(address) {
		return OpenShare(ctx, address, Options{Queue: brokertest.Queue})
	}
	return Open(ctx, address, Options{Queue: brokertest.Queue, Client: []kgo.Opt{kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second)}})
}

// claimed claims until it has n records.
func claimed(t testing.TB, s *Share, n int) (ds []redrive.Delivery) {
	t.Helper()
	servertest.Until(t, "the records come", func() bool {
		more, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: brokertest.Queue, Max: n - len(ds), Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, more...)
		return len(ds) == n
	})
	return ds
}

func settled(t testing.TB, s *Share, outcome redrive.Outcome, ds ...redrive.Delivery) {
	t.Helper()
	batch := make([]driver.Settlement, len(ds))
	for i := range ds {
		batch[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: outcome}
	}
	for _, err := range s.Settle(t.Context(), batch) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pollAcceptsNothing holds a record in flight while the same member fetches and settles
// others, then dies: the record is not lost with it.
func pollAcceptsNothing(t *testing.T, c *cluster) {
	address := c.shared(t, 1)
	s := join(t, address)
	brokertest.Publish(t, s, 1)
	slow := claimed(t, s, 1)[0]
	for range 5 { // each by a poll of its own
		brokertest.Publish(t, s, 3)
		settled(t, s, redrive.OutcomeDone, claimed(t, s, 3)...)
	}
	s.stop() // as a kill does, nothing is given back
	s.loops.Wait()
	s.client.Close()
	next := join(t, address)
	d := claimed(t, next, 1)[0]
	if d.ID != slow.ID || !d.Suspect {
		t.Errorf("%s came, a suspect %v; want %s as a suspect", d.ID, d.Suspect, slow.ID)
	}
	settled(t, next, redrive.OutcomeDone, d)
}

func releasedComesAgain(t *testing.T, c *cluster) {
	s := join(t, c.shared(t, 1))
	brokertest.Publish(t, s, 2)
	ds := claimed(t, s, 2)
	settled(t, s, redrive.OutcomeRelease, ds[1])
	again := claimed(t, s, 1)[0]
	if again.ID != ds[1].ID {
		t.Errorf("%s came again, want %s", again.ID, ds[1].ID)
	}
	if errs := s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDone}}); !errors.Is(errs[0], redrive.ErrLeaseLost) {
		t.Errorf("settled by its first receipt: %v", errs[0])
	}
	settled(t, s, redrive.OutcomeDone, ds[0], again)
}

// shortLocks gives a share group locks of 10 s.
func (c *cluster) shortLocks(t testing.TB, address string) {
	t.Helper()
	at, err := parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := setGroup(t.Context(), c.client, at.share, "share.record.lock.duration.ms", "10000"); err != nil {
		t.Fatal(err)
	}
}

// locksAreRenewed holds a record for longer than its lock.
func locksAreRenewed(t *testing.T, c *cluster) {
	address := c.shared(t, 1)
	c.shortLocks(t, address)
	s := join(t, address)
	brokertest.Publish(t, s, 1)
	d := claimed(t, s, 1)[0]
	s.mu.Lock()
	first, lock := time.Now(), s.lock
	s.mu.Unlock()
	servertest.Until(t, "the lock is over", func() bool { return time.Since(first) > lock+lock/2 })
	settled(t, s, redrive.OutcomeDone, d)
}

func lateSettlement(t *testing.T, c *cluster) {
	address := c.shared(t, 1)
	c.shortLocks(t, address)
	s := join(t, address)
	brokertest.Publish(t, s, 1)
	d := claimed(t, s, 1)[0]
	s.stop() // it neither renews nor fetches, as a process that stands still
	s.loops.Wait()
	s.mu.Lock()
	it := s.inflight[sharedAt{place{s.topic, 0}, 0}]
	it.until = time.Now().Add(time.Hour) // we do not know it
	s.mu.Unlock()
	other := join(t, address)
	again := claimed(t, other, 1)[0]
	if again.ID != d.ID || !again.Suspect {
		t.Errorf("%s came, a suspect %v; want %s as a suspect", again.ID, again.Suspect, d.ID)
	}
	if errs := s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}}); !errors.Is(errs[0], redrive.ErrLeaseLost) {
		t.Errorf("the late settlement: %v", errs[0])
	}
	settled(t, other, redrive.OutcomeDone, again)
}

// lastDeliveries delivers a record until the broker would soon end it: then it goes on in the
// store, before a handler has it.
func lastDeliveries(t *testing.T, c *cluster) {
	address := c.shared(t, 1)
	s := join(t, address)
	brokertest.Publish(t, s, 1)
	for range s.limit - shareMargin - 1 {
		d := claimed(t, s, 1)[0]
		if d.Identity == redrive.IdentityNone {
			t.Fatal("it goes to the store too early")
		}
		settled(t, s, redrive.OutcomeRelease, d)
	}
	store := memory.New()
	handled := make(chan redrive.Delivery, 1)
	stop := brokertest.Consume(t, store, 0, func(_ context.Context, d *redrive.Delivery) error {
		counts, err := store.Counts(t.Context(), brokertest.Queue)
		if err != nil || counts[0].Leased != 1 || counts[0].Ledger.Parked != 1 {
			t.Errorf("while it is handled the store has %+v, %v", counts, err)
		}
		handled <- *d
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{s}})
	if d := <-handled; d.ID != "m0" || !d.Suspect || string(d.Body) != `{"n":0}` {
		t.Errorf("%+v", d)
	}
	stop()
	brokertest.Publish(t, s, 2)
	if next := claimed(t, s, 2); next[0].Suspect || next[1].Suspect {
		t.Error("the broker has it still")
	}
}

func shareProbe(t *testing.T, c *cluster) {
	address := c.shared(t, 1)
	levels := func(address string) map[string]driver.Level {
		of := map[string]driver.Level{}
		for _, v := range join(t, address).Probe(t.Context()) {
			of[strings.Fields(v.Setting)[0]] = v.Level
		}
		return of
	}
	if of := levels(address); of[shareReset] != driver.LevelOK || of[shareLimit] != driver.LevelOK || of["renewal"] != driver.LevelOK {
		t.Errorf("of a group that begins at the start: %v", of)
	}
	if of := levels(strings.Replace(address, "create=true&share=", "share=late-", 1)); of[shareReset] != driver.LevelWarn {
		t.Errorf("of a group that begins at the end: %v", of)
	}
}

func TestShareIsRefused(t *testing.T) {
	t.Parallel()
	c := fake(t, kfake.MaxVersions(kversion.V3_9_0()))
	address := c.shared(t, 1)
	for name, bad := range map[string]struct {
		address string
		o       Options
		says    string
	}{
		"by brokers without": {address, Options{}, "no share groups"},
		"with a group":       {address + "&group=a", Options{}, "a group and a share group"},
		"native":             {address, Options{Native: true}, "dead letters at the brokers"},
		"with retry topics":  {address + "&retry=r", Options{}, "dead letters at the brokers"},
		"with dead letters":  {address + "&dlq=d", Options{}, "dead letters at the brokers"},
		"ordered":            {address, Options{Ordered: true}, "order by key"},
	} {
		_, err := OpenShare(t.Context(), bad.address, bad.o)
		var e *redrive.Error
		if !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
