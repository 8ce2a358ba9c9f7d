package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// PullOptions configures a [Puller]. Every field has a default.
type PullOptions struct {
	// Policies are those of a queue; nil: the default ones. It is asked at each claim,
	// must be fast and safe for concurrent use. What it returns is not changed any more.
	Policies func(queue string) *Policies
	// Breaker tunes that of a queue; nil: the defaults. It is asked as Policies is.
	Breaker func(queue string) BreakerOptions
	// Extractor adds to the failures that workers report; see [QueueOptions.Extractor].
	Extractor Extractor
}

// Bounds of a pull.
const (
	MaxPull      = 1000             // messages a claim
	MaxPullWait  = time.Minute      // of a claim for something to become due
	MaxPullLease = 12 * time.Hour   // of a claim
	pullChunk    = 16               // messages read before their size is known
	pullBytes    = 8 << 20          // bodies of a claim, about
	pullPatience = 10 * time.Second // of a suspect, for a worker to become idle
	pullSweep    = time.Second      // between looks for leases that ran out
	maxPulled    = 100_000          // deliveries remembered at once
)

// PullRequest is what a worker asks for.
type PullRequest struct {
	Queue string
	Kinds []string      // only these kinds, if any are named
	Max   int           // at most so many messages; default 1, at most MaxPull
	Lease time.Duration // how long the claim holds; default 30 s, 1 s to MaxPullLease
	Wait  time.Duration // how long to wait if nothing is due; at most MaxPullWait
	// Worker names the process that handles the messages. A suspect (see
	// [redrive.Delivery.Suspect]) is delivered only to a worker that holds nothing else, and
	// until it is settled that worker gets nothing more. Without a name each claim
	// counts as a process of its own.
	Worker string
}

// Puller delivers messages to workers that are no handlers of this process, such as
// programs in other languages, and settles them by the rules of the engine: gates
// before a claim, the queue's policy after a failure. All methods are safe for
// concurrent use.
type Puller struct {
	e     *Engine
	store driver.Store
	o     PullOptions
	hub   *hub

	draining context.Context //nolint:containedctx // it ends with Drain
	drain    context.CancelFunc

	mu      sync.Mutex
	queues  map[string]*pullQueue
	workers map[string]*pullWorker
	held    map[redrive.Receipt]*pulled
	sweepAt time.Time
}

// pullWorker is a process that holds messages.
type pullWorker struct {
	holds    int
	isolated bool // one of them is a suspect
}

// pulled is a message in flight at a worker, without its body.
type pulled struct {
	d      redrive.Delivery
	q      *pullQueue
	kinds  []string // that the worker asked for
	worker string
	began  time.Time
	until  time.Time
}

// NewPuller returns a puller over the store of an engine. It waits for changes while
// the engine runs.
func NewPuller(e *Engine, o PullOptions) *Puller {
	if o.Policies == nil {
		o.Policies = func(string) *Policies { return nil }
	}
	p := &Puller{e: e, store: e.store, o: o, hub: newHub(e.store), queues: make(map[string]*pullQueue),
		workers: make(map[string]*pullWorker), held: make(map[redrive.Receipt]*pulled)}
	p.draining, p.drain = context.WithCancel(context.Background())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pullers = append(e.pullers, p)
	if e.started.Load() {
		p.start()
	}
	return p
}

func (p *Puller) start() { p.e.sup.start(p.e.run, "waiter of pull workers", p.hub.run) }

// Claim delivers up to r.Max messages, and waits for the first of them up to r.Wait.
// Where workers name their kinds, what none of them, of any process, asked for within 15
// minutes is failed once a minute with [redrive.ErrNoHandler], by the queue's policy. It returns nothing when that is over, or ctx ends, and [redrive.ErrClosed] after Drain.
func (p *Puller) Claim(ctx context.Context, r PullRequest) ([]redrive.Delivery, error) {
	if err := r.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	q := p.queue(r.Queue)
	if q.asks(r.Kinds, time.Now()) {
		p.e.announceSoon()
	}
	q.polling(1)
	defer q.polling(-1)
	for pause := claimSoon; ; {
		if p.draining.Err() != nil {
			return nil, &redrive.Error{Op: "claim", Queue: r.Queue, Err: redrive.ErrClosed}
		}
		changed := q.change()
		now := time.Now()
		p.sweep(now)
		if len(r.Kinds) > 0 {
			p.endStrays(q, now)
		}
		ds, again, err := p.claim(q, &r, now)
		if err != nil || len(ds) > 0 || r.Wait == 0 {
			return ds, err
		}
		if again.IsZero() {
			if again, err = q.nextDue(ctx, p.store, now, &pause); err != nil {
				return nil, nil // the time was up; a store that fails is asked again by the next claim
			}
		}
		t := time.NewTimer(max(time.Until(again), 0))
		select {
		case <-changed:
		case <-t.C:
		case <-p.draining.Done():
		case <-ctx.Done():
			t.Stop()
			return nil, nil
		}
		t.Stop()
	}
}

// complete fills in defaults and refuses what makes no sense.
func (r *PullRequest) complete() error {
	bad := func(format string, args ...any) error {
		return &redrive.Error{Op: "claim", Queue: r.Queue, Err: fmt.Errorf("%w claim: "+format, append([]any{redrive.ErrInvalid}, args...)...)}
	}
	if err := driver.CheckQueue(r.Queue); err != nil {
		return err
	}
	if r.Max == 0 {
		r.Max = 1
	}
	if r.Lease == 0 {
		r.Lease = DefaultLease
	}
	switch {
	case r.Max < 1 || r.Max > MaxPull:
		return bad("max %d: use 1 to %d", r.Max, MaxPull)
	case r.Lease < minLease || r.Lease > MaxPullLease:
		return bad("lease %s: use %s to %s", r.Lease, minLease, MaxPullLease)
	case r.Wait < 0 || r.Wait > MaxPullWait:
		return bad("wait %s: use 0 to %s", r.Wait, MaxPullWait)
	case len(r.Kinds) > 256:
		return bad("%d kinds: use at most 256", len(r.Kinds))
	case len(r.Worker) > redrive.MaxKeyLength || !text.Printable(r.Worker):
		return bad("worker: use at most %d bytes of printable UTF-8", redrive.MaxKeyLength)
	}
	return nil
}

// Drain lets claims that wait return, and refuses new ones. Settlements and extensions
// go on.
func (p *Puller) Drain() { p.drain() }

// Holding returns how many messages are in flight at workers. What a worker let run
// out is not: perhaps it is dead.
func (p *Puller) Holding() (n int) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.held {
		if now.Before(one.until) {
			n++
		}
	}
	return n
}

// ReleaseAll gives back what workers still hold, uncounted: what they settle later has
// lost its lease. It is the end of a shutdown.
func (p *Puller) ReleaseAll(ctx context.Context) error {
	p.mu.Lock()
	var all []driver.Settlement
	for receipt := range p.held {
		all = append(all, driver.Settlement{Receipt: receipt, Outcome: redrive.OutcomeRelease})
	}
	clear(p.held)
	p.mu.Unlock()
	for part := range slices.Chunk(all, MaxPull) {
		if err := driver.FirstError(p.store.Settle(ctx, part)); err != nil {
			return &redrive.Error{Op: "release", Err: err}
		}
	}
	return nil
}

// hold remembers what was delivered.
func (p *Puller) hold(q *pullQueue, r *PullRequest, ds []redrive.Delivery, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ds {
		if len(p.held) >= maxPulled {
			return // it is then settled by what the store knows
		}
		one := &pulled{d: ds[i], q: q, kinds: r.Kinds, worker: r.Worker, began: now, until: now.Add(r.Lease)}
		one.d.Body = nil
		p.held[ds[i].Receipt] = one
		if r.Worker == "" {
			continue
		}
		w := p.workers[r.Worker]
		if w == nil {
			w = new(pullWorker)
			p.workers[r.Worker] = w
		}
		w.holds++
		w.isolated = w.isolated || ds[i].Suspect
	}
}

// forget returns what was remembered of a claim, and frees its worker.
func (p *Puller) forget(receipt redrive.Receipt) *pulled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forgetLocked(receipt)
}

func (p *Puller) forgetLocked(receipt redrive.Receipt) *pulled {
	one := p.held[receipt]
	if one == nil {
		return nil
	}
	delete(p.held, receipt)
	if w := p.workers[one.worker]; w != nil {
		w.holds--
		if one.d.Suspect {
			w.isolated = false
			one.q.wake() // the worker may poll already
		}
		if w.holds <= 0 {
			delete(p.workers, one.worker)
		}
	}
	return one
}

// holds tells what is in flight at a worker.
func (p *Puller) holds(worker string) (n int, isolated bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[worker]; w != nil {
		return w.holds, w.isolated
	}
	return 0, false
}

// sweep forgets claims whose lease ran out. A late settlement is then made by what the
// store knows.
func (p *Puller) sweep(now time.Time) {
	p.mu.Lock()
	if now.Before(p.sweepAt) {
		p.mu.Unlock()
		return
	}
	p.sweepAt = now.Add(pullSweep)
	var lost []*pulled
	for receipt, one := range p.held {
		if now.After(one.until) {
			lost = append(lost, p.forgetLocked(receipt))
		}
	}
	p.mu.Unlock()
	for _, one := range lost {
		one.q.reportGates(&noGates, &one.d, nil, now)
		p.e.observe(&Observation{Occasion: OnLeaseLost, Queue: one.d.Queue, Delivery: &one.d, Err: redrive.ErrLeaseLost})
		p.e.log.LogAttrs(context.Background(), slog.LevelWarn, "worker lease expired", slog.String("queue", one.d.Queue),
			slog.String("id", one.d.ID), slog.String("worker", one.worker))
	}
}

// noGates is the options of a queue without gates beside the engine's own.
var noGates consumerConfig
