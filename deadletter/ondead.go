package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Handler looks at a dead letter, with its body, failures and original, and
// decides what becomes of it. An error or a panic leaves it where it is; it is looked
// at again later. The context ends with Timeout, when the claim is lost, or when the
// processor stops.
type Handler func(ctx context.Context, e *redrive.Entry) (Decision, error)

// Decision is what shall become of a dead letter. The zero value keeps it.
type Decision struct {
	// Action is [driver.ActRedrive], [driver.ActDrop], [driver.ActArchive], or 0 or [driver.ActEdit] to keep it
	// as a dead letter.
	Action driver.Action
	// Edit changes it before it is redriven or kept; the original is kept beside it.
	Edit *redrive.Edit
	// After postpones a redrive.
	After time.Duration
}

// Archiver takes dead letters to a place outside the store. When it returns nil they
// are durable there, and are then removed from the store and counted as archived. After
// a crash in between it may be given the same ones again. It must be safe for concurrent
// use.
type Archiver interface {
	Archive(ctx context.Context, entries []redrive.Entry) error
}

// Options configures [OnDead]. Every field has a default.
type Options struct {
	// MaxAutoRedrives is how often a message may have been redriven, by whomever, and
	// still be redriven by the handler; beyond that it is kept. Defaults to 3.
	MaxAutoRedrives int
	// Concurrency is how many dead letters are worked on at once. Defaults to 1.
	Concurrency int
	// Timeout bounds one call of the handler. Defaults to 30 s.
	Timeout time.Duration
	// Poll is how often the queue is looked at while nothing is there. Defaults to 5 s.
	Poll time.Duration
	// KeepFor is how long a dead letter that was kept waits before the handler
	// sees it again. Defaults to 24 h.
	KeepFor time.Duration
	// RetryAfter is the same after an error of the handler. Defaults to 1 min.
	RetryAfter time.Duration
	// Archive is where [driver.ActArchive] takes dead letters; without it they are kept.
	Archive Archiver
	// Logger gets a line for each decision. Defaults to [slog.Default].
	Logger *slog.Logger
	// Instance names this process start. Defaults to a new id.
	Instance string
}

// Defaults of Options.
const (
	DefaultAutoRedrives = 3
	defaultDeadPoll     = 5 * time.Second
	defaultKeepFor      = 24 * time.Hour
	defaultDeadRetry    = time.Minute
	deadLease           = 30 * time.Second // of a claim; extended at a third of it
	deadSettleTimeout   = 5 * time.Second
	deadSettleRetry     = 20 * time.Millisecond

	archiveHold = time.Minute // a dead letter is not claimed again while it is archived
)

func (o *Options) fill() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Timeout, redrive.DefaultTimeout}, {&o.Poll, defaultDeadPoll}, {&o.KeepFor, defaultKeepFor}, {&o.RetryAfter, defaultDeadRetry}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.MaxAutoRedrives <= 0 {
		o.MaxAutoRedrives = DefaultAutoRedrives
	}
	o.Concurrency = max(o.Concurrency, 1)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Instance == "" {
		o.Instance = redrive.NewID()
	}
}

// OnDead hands the dead letters of a queue to a handler until ctx ends, the oldest
// first, and does what it decides. Any number of processes may do so for one queue: each
// dead letter is claimed, and handled again if its process dies. While it is claimed a
// person can neither redrive nor drop it. At most one Options may be given. What does not match
// its checksum is kept and not handled, unless it is dead for that reason; the handler may then
// drop or archive it, or redrive it with a new body.
func OnDead(ctx context.Context, store driver.Store, queue string, h Handler, o ...Options) error {
	if err := driver.CheckQueue(queue); err != nil {
		return &redrive.Error{Op: "on dead", Err: err}
	}
	if h == nil || len(o) > 1 {
		return &redrive.Error{Op: "on dead", Queue: queue, Err: fmt.Errorf("%w call: it takes a handler and at most one DeadOptions", redrive.ErrInvalid)}
	}
	p := &deadProcessor{store: store, queue: queue, handle: h, o: append(o, Options{})[0]}
	p.o.fill()
	for ctx.Err() == nil {
		found, err := p.round(ctx)
		if err != nil && ctx.Err() == nil {
			p.o.Logger.LogAttrs(ctx, slog.LevelWarn, "claiming dead letters failed", slog.String("queue", queue), slog.Any("error", err))
		}
		if found > 0 {
			continue
		}
		t := time.NewTimer(p.o.Poll)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	return nil
}

// deadProcessor is the state of OnDead.
type deadProcessor struct {
	store  driver.Store
	queue  string
	handle Handler
	o      Options
}

// round claims some dead letters and works on them.
func (p *deadProcessor) round(ctx context.Context) (int, error) {
	ds, err := p.store.Claim(ctx, driver.ClaimRequest{Queue: p.queue, Dead: true, Max: p.o.Concurrency, Lease: deadLease, Instance: p.o.Instance})
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	for i := range ds {
		wg.Go(func() { p.process(ctx, &ds[i]) })
	}
	wg.Wait()
	return len(ds), nil
}

// process works on one dead letter.
func (p *deadProcessor) process(ctx context.Context, d *redrive.Delivery) {
	attrs := []slog.Attr{slog.String("queue", d.Queue), slog.String("id", d.ID)}
	settle := context.WithoutCancel(ctx)
	var decision Decision
	var err error
	unknown := d.Unfit != 0 && d.Unfit != d.Dead // the handler would take what it reads for what was published
	if !unknown {
		decision, err = p.decide(ctx, d)
	}
	switch {
	case unknown:
		p.o.Logger.LogAttrs(ctx, slog.LevelError, "dead letter fails its checksum: kept", attrs...)
		err = p.settle(settle, &driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRetry, After: p.o.KeepFor})
	case err != nil && ctx.Err() != nil: // we are stopping; another may have it at once
		err = p.settle(settle, &driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRelease})
	case err != nil:
		p.o.Logger.LogAttrs(ctx, slog.LevelWarn, "dead-letter handler failed", append(attrs, slog.Any("error", err))...)
		err = p.settle(settle, &driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRetry, After: p.o.RetryAfter})
	default:
		err = p.carryOut(settle, d, &decision)
	}
	if err != nil {
		p.o.Logger.LogAttrs(ctx, slog.LevelWarn, "dead-letter decision not applied", append(attrs, slog.Any("error", err))...)
	}
}

// decide asks the handler, keeps the claim meanwhile, and bounds what it may ask for.
func (p *deadProcessor) decide(ctx context.Context, d *redrive.Delivery) (Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	entries, err := p.store.Get(ctx, []redrive.Ref{d.Ref()})
	if err != nil {
		return Decision{}, err
	}
	if entries[0] == nil {
		return Decision{}, redrive.ErrNotFound
	}
	stop := p.extend(ctx, cancel, d)
	decision, err := p.call(ctx, entries[0])
	stop()
	if err != nil {
		return Decision{}, err
	}
	keep := Decision{Edit: decision.Edit}
	refused := (&driver.Change{Edit: decision.Edit}).CheckRedrive(&entries[0].Message, d.Unfit)
	switch {
	case decision.Action == driver.ActRedrive && entries[0].Redrives >= p.o.MaxAutoRedrives:
		p.o.Logger.LogAttrs(ctx, slog.LevelWarn, "dead letter reached its redrive limit: kept", slog.String("queue", d.Queue), slog.String("id", d.ID),
			slog.Int("redrives", entries[0].Redrives))
		return keep, nil
	case decision.Action == driver.ActRedrive && refused != nil:
		return keep, &redrive.Error{Op: "on dead", Queue: d.Queue, ID: d.ID, Err: refused, Hint: "give Decision.Edit a body, or drop it"}
	case decision.Action == driver.ActArchive && p.o.Archive == nil:
		return keep, &redrive.Error{Op: "on dead", Queue: d.Queue, ID: d.ID, Err: errors.New("there is no archive"), Hint: "set DeadOptions.Archive"}
	case decision.Action == driver.ActArchive:
		return decision, p.o.Archive.Archive(ctx, []redrive.Entry{*entries[0]})
	case decision.Action > driver.ActEdit || decision.Action == driver.ActKill || decision.After < 0:
		return keep, &redrive.Error{Op: "on dead", Queue: d.Queue, ID: d.ID, Err: fmt.Errorf("%w decision: %s after %s", redrive.ErrInvalid, decision.Action, decision.After)}
	}
	return decision, nil
}

// call calls the handler; a panic is an error.
func (p *deadProcessor) call(ctx context.Context, e *redrive.Entry) (d Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &redrive.PanicError{Value: r}
		}
	}()
	return p.handle(ctx, e)
}

// extend keeps a claim until stop is called; when it is lost, cancel is.
func (p *deadProcessor) extend(ctx context.Context, cancel context.CancelFunc, d *redrive.Delivery) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(deadLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			err := driver.FirstError(p.store.Extend(ctx, []redrive.Receipt{d.Receipt}, deadLease))
			if errors.Is(err, redrive.ErrLeaseLost) || errors.Is(err, redrive.ErrNotFound) {
				cancel()
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// carryOut does what was decided.
func (p *deadProcessor) carryOut(ctx context.Context, d *redrive.Delivery, decision *Decision) error {
	s := driver.Settlement{Receipt: d.Receipt}
	var then *driver.Change
	switch decision.Action {
	case driver.ActRedrive:
		s.Outcome, s.After, s.Edit = redrive.OutcomeRepeat, decision.After, decision.Edit
	case driver.ActDrop:
		s.Outcome, s.Reason = redrive.OutcomeDrop, d.Dead
	case driver.ActArchive: // a claimed message cannot be archived, so the claim ends first
		s.Outcome, s.After = redrive.OutcomeRetry, archiveHold
		then = &driver.Change{Action: driver.ActArchive}
	default:
		s.Outcome, s.After = redrive.OutcomeRetry, p.o.KeepFor
		if decision.Edit != nil {
			then = &driver.Change{Action: driver.ActEdit, Edit: decision.Edit}
		}
	}
	if err := p.settle(ctx, &s); err != nil {
		return err
	}
	if then != nil {
		results, err := p.store.Update(ctx, driver.Selection{Refs: []redrive.Ref{d.Ref()}}, *then, 1)
		if err != nil {
			return err
		}
		if len(results) == 1 && results[0].Err != nil {
			return results[0].Err
		}
	}
	what := "kept"
	if decision.Action != 0 {
		what = decision.Action.String()
	}
	p.o.Logger.LogAttrs(ctx, slog.LevelInfo, "dead letter decided", slog.String("queue", d.Queue), slog.String("id", d.ID), slog.String("decision", what))
	return nil
}

// settle settles a claim, again while the outcome is unknown or the store has a fault
// that passes.
func (p *deadProcessor) settle(ctx context.Context, s *driver.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, deadSettleTimeout)
	defer cancel()
	for {
		err := driver.FirstError(p.store.Settle(ctx, []driver.Settlement{*s}))
		if err == nil || ctx.Err() != nil || errors.Is(err, redrive.ErrLeaseLost) || errors.Is(err, redrive.ErrNotFound) || errors.Is(err, redrive.ErrInvalid) || errors.Is(err, redrive.ErrConflict) {
			return err
		}
		t := time.NewTimer(deadSettleRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}
