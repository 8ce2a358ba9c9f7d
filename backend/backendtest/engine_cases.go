package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Cases of the programme that belong to the engine run it over the store under test.

// attempts counts how often each message was handled.
type attempts struct {
	mu sync.Mutex
	n  map[string]int
}

func (a *attempts) add(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == nil {
		a.n = make(map[string]int)
	}
	a.n[id]++
	return a.n[id]
}

// size is how many messages were handled.
func (a *attempts) size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.n)
}

func (a *attempts) of(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n[id]
}

// engine runs an engine with a handler over a store until the case ends or stop is
// called, which waits for Run to return.
func (c *C) engine(s driver.Store, o engine.QueueOptions, h redrive.HandlerFunc) (e *engine.Engine, stop func()) {
	c.Helper()
	e = engine.New(s, engine.Options{Instance: "engine-1", Service: "backendtest"})
	c.noError(e.Handle(c.q, h, o), "handle")
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.Errorf("Run: %v", err)
		}
	})
	c.Cleanup(stop)
	return e, stop
}

func policy(p redrive.Policy) engine.Policies {
	if p.Backoff == nil {
		p.Backoff = redrive.Fixed{Interval: time.Millisecond}
	}
	return engine.Policies{Default: p}
}

var errAgain = errors.New("it failed")

// noBreaker is for cases in which everything fails.
var noBreaker = engine.BreakerOptions{Off: true}

// ended waits until the queue holds nothing that waits.
func (c *C) ended() {
	c.Helper()
	c.eventually("everything to end", func() bool { return c.counts().AllWaiting() == 0 })
}

func maxAttemptsExact(c *C) {
	const n, limit = 5, 4
	c.publishN(n)
	var tried attempts
	_, stop := c.engine(c.store, engine.QueueOptions{Policies: policy(redrive.Policy{MaxAttempts: limit}), Breaker: noBreaker}, func(_ context.Context, d *redrive.Delivery) error {
		tried.add(d.ID)
		return errAgain
	})
	c.ended()
	stop()
	for i := range n {
		id := fmt.Sprintf("m%04d", i+1)
		e := c.entry(id)
		if tried.of(id) != limit || e.Reason != redrive.ReasonExhausted || e.History.Count != limit || e.Attempts != limit {
			c.Errorf("%s: %d attempts, dead as %s with %d attempts and %d failures; want %d", id, tried.of(id), e.Reason, e.Attempts, e.History.Count, limit)
		}
	}
	c.holds(0, n)
}

func permanentGoesDead(c *C) {
	c.publishN(3)
	var tried attempts
	_, stop := c.engine(c.store, engine.QueueOptions{Policies: policy(redrive.Policy{}), Breaker: noBreaker}, func(_ context.Context, d *redrive.Delivery) error {
		tried.add(d.ID)
		switch d.ID {
		case "m0001":
			return redrive.Permanent(errAgain)
		case "m0002":
			return redrive.PermanentAs(errAgain, redrive.ReasonUncertain)
		}
		return nil
	})
	c.ended()
	stop()
	if a, b := c.entry("m0001"), c.entry("m0002"); a.Reason != redrive.ReasonPermanent || b.Reason != redrive.ReasonUncertain || a.History.Latest() == nil || a.History.Latest().Message != errAgain.Error() {
		c.Errorf("dead as %s and %s with %+v", a.Reason, b.Reason, a.History.Latest())
	}
	if tried.of("m0001") != 1 || tried.of("m0002") != 1 {
		c.Errorf("%d and %d attempts, want 1 and 1", tried.of("m0001"), tried.of("m0002"))
	}
	c.holds(0, 2)
}

func backpressure(c *C) {
	const depth = 10
	w := backlog.New(c.store, func(string) backlog.Limits { return backlog.Limits{Depth: depth} }, backlog.Options{Refresh: time.Millisecond})
	accepted := 0
	for i := range 3 * depth {
		err := at(w.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: fmt.Sprintf("m%02d", i)}}), 0)
		c.is(err, "publish", nil, redrive.ErrBacklogged)
		if err == nil {
			accepted++
		}
		if (err == nil) != (c.lookUp(c.q, fmt.Sprintf("m%02d", i)) != nil) {
			c.Errorf("m%02d: %v was said, and the store has it otherwise", i, err)
		}
	}
	if accepted != depth {
		c.Errorf("%d accepted of a depth of %d", accepted, depth)
	}
	c.done(c.get(depth, c.ask(depth))...)
	c.eventually("the queue to be open again", func() bool {
		return at(w.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: "again"}}), 0) == nil
	})
	c.done(c.one(c.ask(1)))
}

// settleOwnDeadline lets a handler use up its whole deadline: what it returns is
// recorded all the same.
func settleOwnDeadline(c *C) {
	c.publish(redrive.Message{ID: "late"}, redrive.Message{ID: "failed"})
	var tried attempts
	_, stop := c.engine(c.store, engine.QueueOptions{Policies: policy(redrive.Policy{Timeout: 50 * time.Millisecond, MaxAttempts: 1}), Breaker: noBreaker}, func(ctx context.Context, d *redrive.Delivery) error {
		tried.add(d.ID)
		<-ctx.Done()
		if d.ID == "late" {
			return nil
		}
		return ctx.Err()
	})
	c.ended()
	stop()
	c.inState("failed", redrive.StateDead)
	if tried.of("late") != 1 || tried.of("failed") != 1 {
		c.Errorf("%d and %d attempts, want 1 and 1", tried.of("late"), tried.of("failed"))
	}
}

func pauseResumeDrain(c *C) {
	var handled atomic.Int32
	e, stop := c.engine(c.store, engine.QueueOptions{}, func(context.Context, *redrive.Delivery) error {
		handled.Add(1)
		return nil
	})
	c.publishN(5)
	c.ended()
	e.Pause(c.q, "", "maintenance", 0)
	c.publish(redrive.Message{ID: "paused"})
	c.pass(2 * c.tick)
	if e := c.entry("paused"); handled.Load() != 5 || e.State != redrive.StateWaiting || e.Attempts != 0 {
		c.Errorf("while paused %d were handled; the new one is %s at attempt %d", handled.Load(), e.State, e.Attempts)
	}
	e.Resume(c.q, "")
	c.ended()
	stop() // drains: what was claimed is settled
	c.publish(redrive.Message{ID: "after"})
	c.inState("after", redrive.StateWaiting)
	if n := c.counts(); handled.Load() != 6 || n.Leased != 0 || n.Ledger.Done != 6 {
		c.Errorf("%d handled, %d leased, %d done; want 6, 0, 6", handled.Load(), n.Leased, n.Ledger.Done)
	}
}

// Faults of other systems that belong to the engine.

var engineTrapCases = []testCase{
	{name: "KindsAreAnnounced", run: kindsAnnounced, needs: []need{eng}},
	{name: "T2_SettleIsRepeatedUntilItSucceeds", run: settleRepeated, needs: []need{eng}},
	{name: "T9_UndecodableDoesNotEndTheLoop", run: undecodable, needs: []need{eng}},
	{name: "T11_RetryIsNotDroppedAsDuplicate", run: retryNotDuplicate, needs: []need{eng}},
}

// flaky is a store whose settlements fail for a while.
type flaky struct {
	driver.Store
	failing atomic.Bool
	refused atomic.Int32
}

func (f *flaky) Settle(ctx context.Context, s []driver.Settlement) []error {
	if !f.failing.Load() {
		return f.Store.Settle(ctx, s)
	}
	f.refused.Add(1)
	errs := make([]error, len(s))
	for i := range errs {
		errs[i] = errors.New("the server is gone")
	}
	return errs
}

func settleRepeated(c *C) {
	c.publish(redrive.Message{ID: "m"})
	f := &flaky{Store: c.store}
	f.failing.Store(true)
	var tried attempts
	_, stop := c.engine(f, engine.QueueOptions{}, func(_ context.Context, d *redrive.Delivery) error {
		tried.add(d.ID)
		return nil
	})
	c.eventually("a settlement to be repeated", func() bool { return f.refused.Load() >= 3 })
	f.failing.Store(false)
	c.ended()
	stop()
	if tried.of("m") != 1 {
		c.Errorf("handled %d times, want 1", tried.of("m"))
	}
	if n := c.counts(); n.Ledger.Done != 1 {
		c.Errorf("ledger %+v", n.Ledger)
	}
}

func undecodable(c *C) {
	type order struct{ N int }
	for i := range 5 {
		c.publish(redrive.Message{ID: fmt.Sprintf("bad-%d", i), Kind: "order", Body: []byte("\x00{not json\xff")},
			redrive.Message{ID: fmt.Sprintf("good-%d", i), Kind: "order", Body: []byte(`{"N":1}`)},
			redrive.Message{ID: fmt.Sprintf("foreign-%d", i), Kind: "unheard-of"})
	}
	mux := redrive.NewMux()
	var good atomic.Int32
	redrive.Handle(mux, func(context.Context, order) error {
		good.Add(1)
		return nil
	}, redrive.ForKind("order"))
	e := engine.New(c.store, engine.Options{})
	c.noError(e.Handle(c.q, mux, engine.QueueOptions{Breaker: noBreaker}), "handle")
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	c.eventually("what can be decoded", func() bool { return good.Load() == 5 })
	c.eventually("what cannot be decoded", func() bool { return c.counts().Dead[redrive.ReasonUndecodable] == 5 })
	cancel()
	c.noError(<-done, "Run")
	c.holds(5, 5) // a kind that nobody handles waits for whoever may
	if b := c.entry("bad-0"); string(b.Body) != "\x00{not json\xff" {
		c.Errorf("the raw bytes changed to %q", b.Body)
	}
}

func retryNotDuplicate(c *C) {
	c.publish(redrive.Message{ID: "chosen", Body: []byte("b")})
	var tried attempts
	_, stop := c.engine(c.store, engine.QueueOptions{Policies: policy(redrive.Policy{}), Breaker: noBreaker}, func(_ context.Context, d *redrive.Delivery) error {
		if tried.add(d.ID) == 1 {
			return errAgain
		}
		return nil
	})
	c.ended()
	stop()
	if n := c.counts(); tried.of("chosen") != 2 || n.Ledger.Done != 1 {
		c.Errorf("%d attempts, %d done; want 2, 1", tried.of("chosen"), n.Ledger.Done)
	}
}

// Instances find in the store which kinds others handle: what their handlers name, and what
// their pull workers ask for.
func kindsAnnounced(c *C) {
	mux := redrive.NewMux()
	redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("handled", "handled, too"))
	for instance, h := range map[string]redrive.Handler{"handles": mux, "pulls": nil} {
		e := engine.New(c.store, engine.Options{Instance: instance})
		if h != nil {
			c.noError(e.Handle(c.q, h, engine.QueueOptions{Breaker: noBreaker}), "handle")
		}
		pull := engine.NewPuller(e, engine.PullOptions{})
		ctx, cancel := context.WithCancel(c.ctx)
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		c.Cleanup(func() {
			cancel()
			c.noError(<-done, "Run")
		})
		_, err := pull.Claim(c.ctx, engine.PullRequest{Queue: c.q, Kinds: []string{"asked by " + instance}})
		c.noError(err, "pull")
	}
	want := []string{`{"kinds":["asked by handles","handled","handled, too"]}`, `{"kinds":["asked by pulls"]}`}
	var got []string
	c.eventually(fmt.Sprintf("records of the kinds %q", want), func() bool {
		list, err := c.store.ListRecords(c.ctx, driver.DeriveID("kinds", c.q), "", 10)
		c.noError(err, "list records")
		got = nil
		for i := range list {
			got = append(got, string(list[i].Value))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// A text column may refuse NUL and what is not UTF-8; an error's text may hold both.
func hostileErrorText(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("b")}, redrive.Message{ID: "neighbour", Body: []byte("b")})
	_, stop := c.engine(c.store, engine.QueueOptions{Breaker: noBreaker}, func(_ context.Context, d *redrive.Delivery) error {
		if d.ID == "m" {
			return redrive.Permanent(errors.New("bad \x00 byte \xff and a quote ' \" \\ end"))
		}
		return nil
	})
	c.eventually("the failure to be kept", func() bool { n := c.counts(); return n.AllDead() == 1 && n.Ledger.Done == 1 })
	stop()
	f := c.entry("m").History.Latest()
	if f == nil || !utf8.ValidString(f.Message) || strings.Contains(f.Message, "\x00") || !strings.HasPrefix(f.Message, "bad ") || !strings.HasSuffix(f.Message, ` end`) {
		c.Errorf("the failure history became %+v", f)
	}
}
