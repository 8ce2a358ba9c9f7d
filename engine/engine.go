package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// releaseGrace is how long a cancelled handler has to return before its message is
// released without it, and how long the last settlements may take.
const releaseGrace = 5 * time.Second

// Engine claims messages, has them handled, and settles them. One engine serves any
// number of queues of one store and of the sources beside it. All methods are safe
// for concurrent use.
type Engine struct {
	store     driver.Store
	opts      Options
	log       *slog.Logger
	identity  *identity
	sup       supervisor
	isolation *isolation

	base      context.Context // of handlers: it ends when a shutdown loses patience
	abort     context.CancelCauseFunc
	giveUp    chan struct{}   // closed when settlements are no longer repeated
	rehandled chan struct{}   // a queue got another handler
	workers   sync.WaitGroup  // settlers
	run       context.Context // of waiters and claims: it ends with Run's
	stopRun   context.CancelFunc
	started   atomic.Bool

	undurable atomic.Int64 // settlements that the shutdown gave up

	mu        sync.Mutex
	draining  bool
	consumers map[string]*consumer
	retired   []*consumer // removed, perhaps not idle yet
	hubs      map[driver.Source]*hub
	settlers  map[driver.Source]*settler
	wrapped   map[driver.Source]driver.Source
	pullers   []*Puller
}

// New returns an engine over a store. It does nothing before [Engine.Run].
func New(store driver.Store, o Options) *Engine {
	if o.Instance == "" {
		o.Instance = redrive.NewID()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	base, abort := context.WithCancelCause(context.Background())
	run, stop := context.WithCancel(context.Background())
	return &Engine{
		store: store, opts: o, log: o.Logger, identity: newIdentity(o), isolation: &processIsolation,
		sup:  supervisor{log: o.Logger, observer: o.Observer, down: make(map[string]error)},
		base: base, abort: abort, giveUp: make(chan struct{}), rehandled: make(chan struct{}, 1), run: run, stopRun: stop,
		consumers: make(map[string]*consumer), hubs: make(map[driver.Source]*hub), settlers: make(map[driver.Source]*settler), wrapped: make(map[driver.Source]driver.Source),
	}
}

// Handle consumes a queue with a handler, from now on if the engine runs. For a
// queue that is consumed already it replaces handler and options; its sources must stay
// the same. What the breaker knows of the handler before is forgotten, and so are the pauses
// that it asked for ([redrive.TargetDown], [redrive.TargetGone]) and those of another target. It returns an error that wraps [redrive.ErrInvalid] for options
// that make no sense, and for what is wrong with the registrations of a [redrive.Mux].
func (e *Engine) Handle(queue string, h redrive.Handler, o QueueOptions) error {
	if err := driver.CheckQueue(queue); err != nil {
		return &redrive.Error{Op: "handle", Err: err}
	}
	if h == nil {
		return &redrive.Error{Op: "handle", Queue: queue, Err: fmt.Errorf("%w handler: nil", redrive.ErrInvalid)}
	}
	if o.Concurrency < 0 || o.Lease < 0 {
		return &redrive.Error{Op: "handle", Queue: queue, Err: fmt.Errorf("%w options: concurrency and lease are zero (default) or more", redrive.ErrInvalid)}
	}
	cfg := &consumerConfig{QueueOptions: o, handler: h}
	cfg.registry, _ = h.(driver.Registry)
	var err error
	if cfg.policies, err = newPolicySet(&o.Policies, cfg.registry); err != nil {
		return &redrive.Error{Op: "handle", Queue: queue, Err: err}
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	cfg.Lease = max(cfg.Lease, minLease)

	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.consumers[queue]; ok {
		old := c.options()
		if !slices.Equal(old.Sources, o.Sources) {
			return &redrive.Error{Op: "handle", Queue: queue, Err: fmt.Errorf("%w change: sources stay as they are while a queue is consumed", redrive.ErrInvalid), Hint: "remove the queue first"}
		}
		c.config.Store(cfg)
		c.renew(cfg)
		c.wakeAfresh()
		e.announceSoon()
		return nil
	}
	c := newConsumer(e, queue, cfg)
	for _, src := range append([]driver.Source{driver.Source(e.store)}, o.Sources...) {
		f := e.feed(c, src)
		c.feeds = append(c.feeds, f)
	}
	e.consumers[queue] = c
	for _, f := range c.feeds {
		f.hub.add(queue, f)
	}
	e.announceSoon()
	return nil
}

// feed ties a consumer to a source, with the hub and settler that all queues of the
// source share. A source that is not the store is wrapped, so that what it cannot do
// is parked.
func (e *Engine) feed(c *consumer, src driver.Source) *feed {
	w, ok := e.wrapped[src]
	if !ok {
		w = src
		if src != driver.Source(e.store) {
			w = newParking(src, e.store, e)
		}
		e.wrapped[src] = w
		e.hubs[src] = newHub(w)
		e.settlers[src] = newSettler(e, w)
		if e.started.Load() {
			e.startHub(e.hubs[src])
		}
	}
	return &feed{c: c, src: w, caps: w.Caps(), hub: e.hubs[src], settler: e.settlers[src]}
}

func (e *Engine) startHub(h *hub) {
	e.sup.start(e.run, "waiter of "+h.src.Caps().Name, h.run)
}

// Remove stops consuming a queue. What is in flight goes on to its end.
func (e *Engine) Remove(queue string) {
	e.mu.Lock()
	c := e.consumers[queue]
	delete(e.consumers, queue)
	e.retired = slices.DeleteFunc(e.retired, (*consumer).isIdle)
	if c != nil {
		e.retired = append(e.retired, c)
	}
	e.mu.Unlock()
	if c == nil {
		return
	}
	for _, f := range c.feeds {
		f.hub.remove(queue)
	}
	c.stop()
}

// Run works until ctx ends. It then claims nothing more, gives what is in flight
// the time of Grace, cancels and releases what is left, and returns after the last
// settlement is durable. It returns an error if something could not be settled, and
// if it was called before.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	if !e.started.CompareAndSwap(false, true) {
		e.mu.Unlock()
		return &redrive.Error{Op: "run", Err: errors.New("the engine was run before"), Hint: "make a new one"}
	}
	for _, h := range e.hubs {
		e.startHub(h)
	}
	for _, p := range e.pullers {
		p.start()
	}
	e.mu.Unlock()
	e.sup.start(e.run, "announcer of kinds", e.announce)
	<-ctx.Done()
	e.stopRun()

	e.mu.Lock()
	e.draining = true
	all := slices.AppendSeq(slices.Clone(e.retired), maps.Values(e.consumers))
	e.mu.Unlock()
	for _, c := range all {
		c.stop()
	}
	idle := make(chan struct{})
	go func() {
		for _, c := range all {
			c.awaitIdle()
		}
		close(idle)
	}()
	err := e.drain(idle, all)
	e.sup.wg.Wait()
	if err != nil {
		return err
	}
	e.workers.Wait()
	e.unrecord()
	if n := e.undurable.Load(); n > 0 {
		return &redrive.Error{Op: "shutdown", Err: fmt.Errorf("%s did not become durable", text.Plural(int(n), "settlement")), Hint: "their messages will be delivered again"}
	}
	return nil
}

// unrecord removes the claim records that no source keeps itself.
func (e *Engine) unrecord() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, src := range e.wrapped {
		if p, ok := src.(*parking); ok {
			p.close()
		}
	}
}

// drain is the end of Run: patience, cancellation, release.
func (e *Engine) drain(idle <-chan struct{}, all []*consumer) error {
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-idle:
			return true
		case <-t.C:
			return false
		}
	}
	defer e.abort(ErrShutdown)
	if wait(e.opts.Grace) {
		close(e.giveUp)
		return nil
	}
	e.log.Warn("shutdown grace period over: running attempts cancelled and released", slog.Duration("after", e.opts.Grace))
	e.abort(ErrShutdown)
	if wait(releaseGrace) {
		close(e.giveUp)
		return nil
	}
	for _, c := range all {
		c.releaseAll()
	}
	done := wait(releaseGrace)
	close(e.giveUp)
	if !done && !wait(releaseGrace) {
		return &redrive.Error{Op: "shutdown", Err: errors.New("the store does not answer; some settlements may not be durable"), Hint: "their messages will be delivered again"}
	}
	return nil
}

// Ready returns nil, or why the engine is not ready to work: it does not run, a
// goroutine of it is down, or half of the slots of a queue are stuck.
func (e *Engine) Ready() error {
	if err := e.sup.ready(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started.Load() || e.draining {
		return errors.New("the engine does not run")
	}
	for _, queue := range slices.Sorted(maps.Keys(e.consumers)) {
		c := e.consumers[queue]
		if slots, stuck := c.slots(); stuck > 0 && 2*stuck >= slots {
			return fmt.Errorf("queue %s: %d of %d slots are stuck in handlers that ignore their context", queue, stuck, slots)
		}
	}
	return nil
}

// QueueStatus is what an engine is doing with a queue.
type QueueStatus struct {
	Queue    string
	Slots    int // concurrency
	Busy     int // handlers that run
	Stuck    int // of those, the ones that ignore their context
	Settling int // results on their way to the store
	Breakers []BreakerStatus
	Paused   []PauseStatus
	// Refused is the newest reason why a gate did not let something be claimed;
	// empty if nothing is held back.
	Refused string
	// Holds is what lets nothing of the queue, or only some of it, be claimed: gates of the
	// queue's options and the slots. Pauses and breakers stand above.
	Holds []Hold
	// AllRefusedSince is since when each of at least ten deliveries was refused for its message
	// (HTTP 400, 413, 415, 422, [redrive.Permanent]), once that is a minute ago; zero: it is not so.
	AllRefusedSince time.Time
	// Unhandled are kinds that came in the last day and that the handler does not know;
	// of many only some.
	Unhandled []UnhandledKind
}

// Status returns what the engine is doing, by queue.
func (e *Engine) Status() []QueueStatus {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.consumers))
	e.mu.Unlock()
	status := make([]QueueStatus, 0, len(all))
	for _, c := range all {
		status = append(status, c.status())
	}
	slices.SortFunc(status, func(a, b QueueStatus) int {
		switch {
		case a.Queue < b.Queue:
			return -1
		case a.Queue > b.Queue:
			return 1
		}
		return 0
	})
	return status
}

// Pause stops claiming for a target (or kind) of a queue, or for the whole queue if
// target is empty, for d or until it is resumed if d is 0. What is in flight goes
// on. It lasts as long as the engine.
func (e *Engine) Pause(queue, target, reason string, d time.Duration) {
	if c := e.consumer(queue); c != nil {
		c.pause(target, reason, d, false)
	}
}

// Resume ends a pause.
func (e *Engine) Resume(queue, target string) {
	if c := e.consumer(queue); c != nil {
		c.pauses.resume(target)
		c.wakeAfresh()
	}
}

func (e *Engine) consumer(queue string) *consumer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.consumers[queue]
}

// observe tells the observer. One that panics is logged, as it must not cost more than
// what it would have counted.
func (e *Engine) observe(o *Observation) {
	if e.opts.Observer == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("observer panicked", slog.String("occasion", o.Occasion.String()), slog.Any("panic", r))
		}
	}()
	e.opts.Observer.Observe(o)
}

// guard runs a callback of a timer so that a panic in it is reported, not fatal.
func (e *Engine) guard(name string, f func()) {
	defer e.recovered(name)
	f()
}

// recovered is deferred around code of others: gates, sinks, sources. A
// panic of theirs is reported and ends only what they were asked for.
func (e *Engine) recovered(name string) {
	r := recover() //nolint:revive // callers defer it
	if r == nil {
		return
	}
	buf := make([]byte, 16<<10)
	err := &redrive.PanicError{Value: r, Stack: string(buf[:runtime.Stack(buf, false)])}
	e.log.Error("callback panicked", slog.String("goroutine", name), slog.Any("error", err), slog.String("stack", err.Stack))
	e.observe(&Observation{Occasion: OnRestart, Text: name, Err: err})
}

// Run works on one queue until ctx ends, then shuts down as [Engine.Run] does. It takes
// what [New] and [Engine.Handle] take: at most one [Options] and one [QueueOptions].
func Run(ctx context.Context, store driver.Store, queue string, h redrive.Handler, o ...Option) error {
	var all Options
	var one QueueOptions
	given := make(map[string]bool, len(o))
	for _, set := range o {
		kind := fmt.Sprintf("%T", set)
		if given[kind] {
			return &redrive.Error{Op: "run", Queue: queue, Err: fmt.Errorf("%w call: more than one %s", redrive.ErrInvalid, kind)}
		}
		given[kind] = true
		set.apply(&all, &one)
	}
	e := New(store, all)
	if err := e.Handle(queue, h, one); err != nil {
		return err
	}
	return e.Run(ctx)
}
