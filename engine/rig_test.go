package engine_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// rig is a store with an engine over it, inside a bubble of virtual time.
type rig struct {
	t      *testing.T
	store  *memory.Store // as it is
	fail   *failing      // as the engine sees it
	engine *engine.Engine
	seen   *recorder
	cancel context.CancelFunc
	done   chan error
}

// bubble runs a test in virtual time with a rig whose engine is not yet running. At
// the end the engine is stopped and the ledger must balance.
func bubble(t *testing.T, test func(t *testing.T, r *rig), o ...engine.Options) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, append(o, engine.Options{})[0])
		test(t, r)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.balanced()
		if n := r.engine.InFlight(); n != 0 {
			t.Errorf("the engine believes that %d deliveries are in flight after Run returned", n)
		}
	})
}

// newRig makes an engine over a memory store that can be made to fail.
func newRig(t *testing.T, o engine.Options) *rig {
	store := memory.New()
	r := &rig{t: t, store: store, fail: &failing{Store: store}, seen: &recorder{next: o.Observer}}
	o.Observer = r.seen
	o.Instance = cmp.Or(o.Instance, "rig")
	r.engine = engine.New(r.fail, o)
	r.engine.IsolateProcess()
	return r
}

func (r *rig) handle(queue string, h redrive.HandlerFunc, o ...engine.QueueOptions) {
	r.t.Helper()
	r.handleWith(queue, h, o...)
}

func (r *rig) handleWith(queue string, h redrive.Handler, o ...engine.QueueOptions) {
	r.t.Helper()
	if err := r.engine.Handle(queue, h, append(o, engine.QueueOptions{})[0]); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.engine.Run(ctx) }()
	synctest.Wait()
}

// stop ends Run, once, and returns what it said.
func (r *rig) stop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	return <-r.done
}

// publish publishes n messages with the ids queue-0, queue-1 and so on.
func (r *rig) publish(queue string, n int) {
	r.t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: queue, ID: queue + "-" + strconv.Itoa(i), Body: []byte("body " + strconv.Itoa(i))}
	}
	r.publishAll(msgs...)
}

func (r *rig) publishAll(msgs ...redrive.Message) {
	r.t.Helper()
	if err := driver.FirstError(r.store.Publish(r.t.Context(), msgs)); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets virtual time go by, and everything that it brings happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// within waits until something holds, or fails the test after so much virtual time.
func (r *rig) within(d time.Duration, what string, holds func() bool) {
	r.t.Helper()
	const steps = 1000
	for range steps {
		synctest.Wait()
		if holds() {
			return
		}
		<-time.After(d / steps)
	}
	synctest.Wait()
	if !holds() {
		r.t.Fatalf("not within %s: %s; counts: %+v; status: %+v", d, what, r.allCounts(), r.engine.Status())
	}
}

// ended waits until nothing waits in a queue.
func (r *rig) ended(d time.Duration, queue string) {
	r.t.Helper()
	r.within(d, queue+" is empty", func() bool { c := r.counts(queue); return c.AllWaiting() == 0 })
}

func (r *rig) counts(queue string) driver.Counts {
	r.t.Helper()
	all, err := r.store.Counts(context.Background(), queue)
	if err != nil || len(all) != 1 {
		r.t.Fatalf("counts of %s: %v, %v", queue, all, err)
	}
	return all[0]
}

func (r *rig) allCounts() []driver.Counts {
	all, err := r.store.Counts(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// entry returns a message as it stands, or nil.
func (r *rig) entry(queue, id string) *redrive.Entry {
	r.t.Helper()
	got, err := r.store.Get(context.Background(), []redrive.Ref{{Queue: queue, ID: id}})
	if err != nil {
		r.t.Fatal(err)
	}
	return got[0]
}

// dead returns a dead letter and fails the test if the message is none.
func (r *rig) dead(queue, id string) *redrive.Entry {
	r.t.Helper()
	e := r.entry(queue, id)
	if e == nil || e.State != redrive.StateDead {
		r.t.Fatalf("%s/%s is no dead letter: %+v", queue, id, e)
	}
	return e
}

// balanced fails the test unless every ledger balances.
func (r *rig) balanced() {
	r.t.Helper()
	audits, err := r.store.Verify(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range audits {
		if a.Imbalance() != 0 || len(a.Problems) > 0 {
			r.t.Errorf("ledger of %s: imbalance %d, problems %v: %+v", a.Queue, a.Imbalance(), a.Problems, a)
		}
	}
}

// status returns the status of a queue.
func (r *rig) status(queue string) engine.QueueStatus {
	r.t.Helper()
	for _, s := range r.engine.Status() {
		if s.Queue == queue {
			return s
		}
	}
	r.t.Fatalf("no status of %s", queue)
	panic("unreachable")
}

// failing is a store whose calls can be intercepted. A hook is set before the engine
// starts.
type failing struct {
	driver.Store
	claim  func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error)
	settle func(ctx context.Context, s []driver.Settlement) []error
	extend func(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error
	apply  func(ctx context.Context, b driver.Batch) ([]error, error)
	wait   func(ctx context.Context, w []driver.Watch) ([]driver.Event, error)
}

func (f *failing) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if f.claim != nil {
		return f.claim(ctx, req)
	}
	return f.Store.Claim(ctx, req)
}

func (f *failing) Settle(ctx context.Context, s []driver.Settlement) []error {
	if f.settle != nil {
		return f.settle(ctx, s)
	}
	return f.Store.Settle(ctx, s)
}

func (f *failing) Extend(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error {
	if f.extend != nil {
		return f.extend(ctx, r, lease)
	}
	return f.Store.Extend(ctx, r, lease)
}

func (f *failing) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if f.apply != nil {
		return f.apply(ctx, b)
	}
	return f.Store.Apply(ctx, b)
}

func (f *failing) Wait(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
	if f.wait != nil {
		return f.wait(ctx, w)
	}
	return f.Store.Wait(ctx, w)
}

// all is the same result for n items.
func all(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// recorder is an Observer that counts and keeps texts.
type recorder struct {
	next  engine.Observer
	mu    sync.Mutex
	count map[engine.Occasion]int
	texts map[engine.Occasion][]string
}

// Observe implements engine.Observer.
func (r *recorder) Observe(o *engine.Observation) {
	r.mu.Lock()
	if r.count == nil {
		r.count = make(map[engine.Occasion]int)
		r.texts = make(map[engine.Occasion][]string)
	}
	r.count[o.Occasion] += max(o.Count, 1)
	if o.Text != "" {
		r.texts[o.Occasion] = append(r.texts[o.Occasion], o.Text)
	}
	r.mu.Unlock()
	if r.next != nil {
		r.next.Observe(o)
	}
}

func (r *recorder) of(o engine.Occasion) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[o]
}

func (r *recorder) textsOf(o engine.Occasion) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts[o])
}

// eachLine is a slog.Handler that is called with each line.
type eachLine func(slog.Record)

// Enabled implements slog.Handler.
func (f eachLine) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (f eachLine) Handle(_ context.Context, r slog.Record) error {
	f(r)
	return nil
}

// WithAttrs implements slog.Handler.
func (f eachLine) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler.
func (f eachLine) WithGroup(string) slog.Handler { return f }

// tally counts by name, for handlers.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

// add counts one and returns how many it are.
func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[name]++
	return c.n[name]
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *tally) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.n {
		n += v
	}
	return n
}

var errSick = errors.New("the target is sick")

// fixed is a policy with a fixed delay, so that tests know when.
func fixed(d time.Duration, p redrive.Policy) engine.Policies {
	p.Backoff = redrive.Fixed{Interval: d}
	return engine.Policies{Default: p}
}
