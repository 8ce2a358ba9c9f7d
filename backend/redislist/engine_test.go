package redislist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

var errSick = errors.New("the target is sick")

// run consumes queue "sms" of a source with an engine over a store, until the test ends or
// stop is called.
func run(t *testing.T, store driver.Store, s *Source, h redrive.HandlerFunc, p redrive.Policy) (stop func()) {
	t.Helper()
	if p.Backoff == nil {
		p.Backoff = redrive.Fixed{Interval: 5 * time.Millisecond}
	}
	e := engine.New(store, engine.Options{})
	noErr(t, e.Handle("sms", h, engine.QueueOptions{Sources: []driver.Source{s}, Policies: engine.Policies{Default: p},
		Breaker: engine.BreakerOptions{Off: true}, Lease: time.Second}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		noErr(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func counts(t *testing.T, store driver.Store) driver.Counts {
	t.Helper()
	all, err := store.Counts(context.Background(), "sms")
	noErr(t, err)
	return all[0]
}

func entry(t *testing.T, store driver.Store, id string) *redrive.Entry {
	t.Helper()
	got, err := store.Get(context.Background(), []redrive.Ref{{Queue: "sms", ID: id}})
	noErr(t, err)
	if got[0] == nil {
		t.Fatalf("%s is not in the store", id)
	}
	return got[0]
}

func isEmpty(t *testing.T, s *Source) {
	t.Helper()
	servertest.Until(t, "the list to be empty", func() bool {
		c, err := s.Counts(context.Background(), "sms")
		return err == nil && c == Counts{}
	})
}

// TestEngineParks runs everything through an engine whose store parks what the list does
// not keep: a retry stays in the list, a dead letter goes to the store with its first and
// last failure, payloads of others are messages, and what cannot be read is dead.
func TestEngineParks(t *testing.T) {
	store, s := memory.New(), open(t, Options{})
	ctx := t.Context()
	msgs := []redrive.Message{{Queue: "sms", ID: "retried"}, {Queue: "sms", ID: "exhausted", Key: "k", Body: []byte("b")},
		{Queue: "sms", ID: "emits"}, {Queue: "sms", ID: "late", ExpiresAt: time.Now().Add(-time.Hour)}}
	noErr(t, driver.FirstError(s.Publish(ctx, msgs)))
	noErr(t, s.conn.LPush(ctx, s.o.List("sms"), "foreign", magic+"broken", "\xff\x00 bytes", `{"poison":true}`).Err())
	var seen, times sync.Map
	run(t, store, s, func(ctx context.Context, d *redrive.Delivery) error {
		seen.Store(string(d.Body), d.ID)
		n, _ := times.LoadOrStore(d.ID, new(atomic.Int32))
		again := n.(*atomic.Int32).Add(1)
		switch {
		case d.ID == "retried" && again == 1:
			return errSick
		case d.ID == "exhausted":
			return fmt.Errorf("failure %d", again)
		case d.ID == "emits":
			return redrive.Emit(ctx, redrive.Message{Queue: "out", Body: []byte("emitted")})
		case string(d.Body) == `{"poison":true}`:
			return redrive.Permanent(errSick)
		}
		return nil
	}, redrive.Policy{MaxAttempts: 3})
	isEmpty(t, s)
	e := entry(t, store, "exhausted")
	if h := e.History; e.Reason != redrive.ReasonExhausted || h.Count != 3 || h.First.Message != "failure 1" || h.Latest().Message != "failure 3" || e.Key != "k" {
		t.Errorf("exhausted: %+v, first %+v, latest %+v", e, h.First, h.Latest())
	}
	c := counts(t, store)
	if c.Dead[redrive.ReasonUndecodable] != 1 || c.Dead[redrive.ReasonPermanent] != 1 || c.Dead[redrive.ReasonExpired] != 1 || c.AllDead() != 4 || c.AllWaiting() != 0 {
		t.Errorf("dead %v, waiting %d", c.Dead, c.AllWaiting())
	}
	page, err := store.Find(ctx, redrive.Query{Queue: "sms", Reason: redrive.ReasonUndecodable, Limit: 5})
	noErr(t, err)
	if len(page.Entries) != 1 {
		t.Fatalf("%d dead letters could not be read", len(page.Entries))
	}
	if e := entry(t, store, page.Entries[0].ID); string(e.Body) != magic+"broken" || e.History.Count != 1 {
		t.Errorf("what cannot be read: %+v", e)
	}
	for _, body := range []string{"foreign", "\xff\x00 bytes"} {
		if _, ok := seen.Load(body); !ok {
			t.Errorf("the payload %q was not handled", body)
		}
	}
	out, err := store.Counts(ctx, "out")
	noErr(t, err)
	if out[0].AllWaiting() != 1 {
		t.Errorf("%d emitted, want 1", out[0].AllWaiting())
	}
}

// TestEngineKeepsDead keeps dead letters beside the list, and puts one back.
func TestEngineKeepsDead(t *testing.T) {
	store, s := memory.New(), open(t, Options{KeepDead: true})
	ctx := t.Context()
	noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", ID: "a", Body: []byte("b")}, {Queue: "sms", ID: "c"}})))
	var healthy atomic.Bool
	run(t, store, s, func(_ context.Context, d *redrive.Delivery) error {
		if !healthy.Load() {
			return fmt.Errorf("failure of attempt %d", d.Attempt)
		}
		if d.Generation != 1 || d.Redrives != 1 || d.Failures != 0 || d.Lane != redrive.LaneRedrive {
			t.Errorf("redriven: %+v", d)
		}
		return nil
	}, redrive.Policy{MaxAttempts: 2})
	var dead []redrive.Entry
	servertest.Until(t, "both to be dead", func() bool {
		var err error
		dead, err = s.DeadLetters(ctx, "sms", 10)
		noErr(t, err)
		return len(dead) == 2
	})
	if d := dead[0]; d.Reason != redrive.ReasonExhausted || d.History.Count != 2 || d.History.First.Message != "failure of attempt 1" || d.DiedAt.IsZero() || d.State != redrive.StateDead {
		t.Errorf("%+v", d)
	}
	if err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", ID: "a", Body: []byte("b")}})); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("the id of a dead letter published again: %v", err)
	}
	healthy.Store(true)
	errs := s.Redrive(ctx, "sms", "a", "never-was")
	if errs[0] != nil || !errors.Is(errs[1], redrive.ErrNotFound) {
		t.Error(errs)
	}
	noErr(t, driver.FirstError(s.Drop(ctx, "sms", "c")))
	isEmpty(t, s)
	if c := counts(t, store); c.Ledger.Parked != 0 {
		t.Errorf("%d parked", c.Ledger.Parked)
	}
}

// TestEnginePoison has a message among good ones that kills each process that works on
// it. It ends as crashed, after deaths while it was isolated; the good ones are done.
func TestEnginePoison(t *testing.T) {
	const good = 30
	url := redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix()
	s := connect(t, url, Options{KeepDead: true})
	ctx := t.Context()
	for i := range good + 1 {
		body := "good"
		if i == good/2 {
			body = "poison"
		}
		noErr(t, s.conn.LPush(ctx, s.o.List("sms"), body).Err())
	}
	deaths := 0
	for range 20 {
		said, kill := spawn(t, "engine "+url)
		kill()
		if said == "done" {
			break
		}
		if deaths++; said != "at the poison" {
			t.Fatal(said)
		}
	}
	dead, err := s.DeadLetters(ctx, "sms", 10)
	noErr(t, err)
	if len(dead) != 1 || dead[0].Reason != redrive.ReasonCrashed || string(dead[0].Body) != "poison" || dead[0].Crashes != 3 {
		t.Fatalf("dead letters after %d deaths: %+v", deaths, dead)
	}
	if n, err := s.conn.Get(ctx, s.o.List("sms")+":good").Int(); err != nil || n < good {
		t.Errorf("%d of %d good ones were handled, %v", n, good, err)
	}
	t.Logf("%d deaths until the poison was dead", deaths)
}

// engineChild works with an engine until it stands before the poison, or until the queue
// is empty.
func engineChild(url string) {
	ctx := context.Background()
	s, err := Open(ctx, url, Options{KeepDead: true})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	e := engine.New(memory.New(), engine.Options{})
	policy := engine.Policies{Default: redrive.Policy{MaxCrashes: 2}}
	err = e.Handle("sms", redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		if string(d.Body) == "poison" {
			fmt.Println("at the poison")
			select {}
		}
		return s.conn.Incr(ctx, s.o.List("sms")+":good").Err()
	}), engine.QueueOptions{Sources: []driver.Source{s}, Policies: policy, Lease: time.Second, Concurrency: 4})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			if c, err := s.Counts(ctx, "sms"); err == nil && c.Waiting+c.Delayed+c.Retries+c.Processing == 0 {
				fmt.Println("done")
			}
		}
	}()
	fmt.Println("ended:", e.Run(ctx))
	os.Exit(1)
}

// TestProcessing looks at what is in flight.
func TestProcessing(t *testing.T) {
	s := open(t, Options{})
	ctx := t.Context()
	const n = 250
	for range n {
		noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", Body: []byte("b"), Kind: "k"}})))
	}
	var claimed []redrive.Delivery
	for i := range 5 {
		ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: n / 5, Lease: time.Minute, Instance: fmt.Sprintf("w%d", i)})
		noErr(t, err)
		claimed = append(claimed, ds...)
	}
	noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: claimed[0].Receipt, Outcome: redrive.OutcomeDone}})))
	noErr(t, driver.FirstError(s.Extend(ctx, []redrive.Receipt{claimed[1].Receipt}, time.Hour))) // which does not make it younger
	got, err := s.Processing(ctx, "sms", 1000)
	noErr(t, err)
	if got[0].ID != claimed[1].ID {
		t.Errorf("the oldest is %s, want %s", got[0].ID, claimed[1].ID)
	}
	if len(got) != n-1 {
		t.Fatalf("%d in process, want %d", len(got), n-1)
	}
	ids := map[string]bool{}
	for i, e := range got {
		if ids[e.ID] || e.State != redrive.StateLeased || e.Attempts != 1 || e.Token != 1 || e.Kind != "k" || !e.Until.After(e.PublishedAt) {
			t.Fatalf("%+v", e)
		}
		ids[e.ID] = true
		if want := fmt.Sprintf("w%d", (i+1)/(n/5)); e.Instance != want {
			t.Fatalf("number %d is held by %s, want %s: oldest first", i, e.Instance, want)
		}
	}
	if got, err = s.Processing(ctx, "sms", 3); len(got) != 3 {
		t.Errorf("%d, %v of at most 3", len(got), err)
	}
	if _, err = s.Processing(ctx, "sms", 0); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("at most 0: %v", err)
	}
}

// TestRepeat repeats one message in two sources at once: it is never claimed twice,
// whichever settles.
func TestRepeat(t *testing.T) {
	url := redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix()
	a := connect(t, url, Options{})
	both := []*Source{a, connect(t, url, Options{})}
	ctx := t.Context()
	noErr(t, driver.FirstError(a.Publish(ctx, []redrive.Message{{Queue: "sms", ID: "loop", Body: []byte("b")}})))
	var held, most, turns atomic.Int32
	var wg sync.WaitGroup
	for _, s := range both {
		wg.Go(func() {
			for turns.Load() < 400 {
				ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 2, Lease: time.Minute, Instance: "w"})
				if err != nil {
					t.Error(err)
					return
				}
				for _, d := range ds {
					most.Store(max(most.Load(), held.Add(1)))
					if n := turns.Add(1); int(n) != d.Generation+1 || d.Attempt != 1 || string(d.Body) != "b" {
						t.Errorf("turn %d: generation %d, attempt %d", n, d.Generation, d.Attempt)
					}
					held.Add(-1)
					if err := driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeRepeat}})); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("held %d times at once", most.Load())
	}
	c, err := a.Counts(ctx, "sms")
	noErr(t, err)
	if c != (Counts{Delayed: 1}) {
		t.Errorf("left %+v", c)
	}
}

// TestWakeUp publishes to waiters of other processes, which the token wakes, and lets one
// that was woken die: the token wakes the next.
func TestWakeUp(t *testing.T) {
	url := redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix()
	sender, dies, next := connect(t, url, Options{}), connect(t, url, Options{}), connect(t, url, Options{})
	ctx := t.Context()
	wait := func(s *Source, since uint64) driver.Event {
		for {
			events, err := s.Wait(ctx, []driver.Watch{{Queue: "sms", Since: since}})
			noErr(t, err)
			if since == 0 || events[0].NextDueIn == 0 {
				return events[0]
			}
			since = events[0].Version
		}
	}
	v := wait(dies, 0).Version
	reported := make(chan driver.Event)
	go func() { reported <- wait(dies, v) }()
	noErr(t, driver.FirstError(sender.Publish(ctx, []redrive.Message{{Queue: "sms"}})))
	if e := <-reported; !e.Lanes.Has(redrive.LaneFresh) {
		t.Errorf("%+v", e)
	}
	noErr(t, dies.Close()) // before it claimed
	if n := sender.conn.LLen(ctx, newKeys(sender.o.List("sms")).wake).Val(); n != 1 {
		t.Errorf("%d tokens after one who was woken died, want 1", n)
	}
	if e := wait(next, 0); !e.Lanes.Has(redrive.LaneFresh) {
		t.Errorf("%+v", e)
	}
	ds, err := next.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 5, Lease: time.Minute, Instance: "n"})
	noErr(t, err)
	if len(ds) != 1 || ds[0].Attempt != 1 {
		t.Fatalf("%+v", ds)
	}
	// A payload that another client pushes has no token; a look finds it.
	v = wait(next, 0).Version
	go func() { reported <- wait(next, v) }()
	noErr(t, sender.conn.LPush(ctx, sender.o.List("sms"), "foreign").Err())
	<-reported
}

func TestSourceStats(t *testing.T) {
	s := open(t, Options{KeepDead: true})
	ctx := t.Context()
	msgs := make([]redrive.Message, 6)
	for i := range msgs {
		msgs[i].Queue = "sms"
	}
	msgs[5].Delay = time.Hour
	noErr(t, driver.FirstError(s.Publish(ctx, msgs)))
	ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 4, Lease: time.Minute, Instance: "one"})
	noErr(t, err)
	expect := func(lag, unacked, dead int64) {
		t.Helper()
		got, err := s.SourceStats(ctx)
		noErr(t, err)
		if want := (driver.SourceStats{Lag: lag, Unacked: unacked, Dead: dead, Reconnects: driver.Unknown, OldestUnacked: driver.Unknown}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	expect(2, 4, 0)
	settle := func(d redrive.Delivery, o redrive.Outcome) error {
		return driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: o, Reason: redrive.ReasonPermanent}}))
	}
	noErr(t, settle(ds[0], redrive.OutcomeDone))
	noErr(t, settle(ds[1], redrive.OutcomeDead))
	noErr(t, settle(ds[2], redrive.OutcomeRetry))
	expect(3, 1, 1)
	noErr(t, s.Close())
	if _, err := s.SourceStats(ctx); !errors.Is(err, redrive.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestNewsAreForAll looks for one waiter: the others receive what it found.
func TestNewsAreForAll(t *testing.T) {
	s := open(t, Options{})
	q, err := s.queue("sms")
	noErr(t, err)
	noErr(t, s.conn.LPush(t.Context(), s.o.List("sms"), "from elsewhere").Err())
	s.mu.Lock()
	others := s.changed
	s.mu.Unlock()
	noErr(t, s.lookAll(t.Context(), []*queue{q}))
	select {
	case <-others:
	default:
		t.Error("nobody else received it")
	}
}
