package redrive

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HeldQueue is the system queue in which messages are that the store adopted while a
// handler has them: each under a lease of the process that runs the handler. One whose
// process died goes on in its own queue, as a suspect.
const HeldQueue = "_held"

// Headers of a message in the HeldQueue: what it is called in its own. Its kind there
// names the process.
const (
	headerHeldQueue = "redrive-held-queue"
	headerHeldID    = "redrive-held-id"
	headerHeldKind  = "redrive-held-kind"
)

// Times of adoption.
const (
	adoptEvery   = time.Second      // looks for what holds a mark back
	adoptAgain   = 10 * time.Second // after an adoption that failed
	adoptTimeout = 10 * time.Second
	adoptMost    = 256 // messages a look
)

// adoption is a message in a handler's hands that the store has, too, or is about to.
type adoption struct {
	d       *Delivery
	ready   chan struct{} // closed when it is known whether the store has it
	held    bool          // the store has it, leased to us
	receipt Receipt       // of that lease
	settled atomic.Bool   // the source need not keep it any more
	lost    atomic.Bool   // neither is ours any more

	settling sync.Mutex // at the source
	unsure   bool       // that may have counted; under settling
}

// isReady reports whether the fate of the adoption is known.
func (one *adoption) isReady() bool {
	select {
	case <-one.ready:
		return true
	default:
		return false
	}
}

// adopter adopts what holds back the marks of one source.
//
// The steps, and what a crash after each leaves: the copy is put (the source still has the
// message and hands it out again, as a suspect; the copy finds that one in the store, or
// the other way round), the copy is claimed (as before, but its lease has to run out
// first), the source is settled (the copy is all there is). Then each settlement and
// extension of the handler's goes to the copy.
type adopter struct {
	p    *parking
	src  MarkedSource
	gate sync.RWMutex // held for reading by those who settle

	mu    sync.Mutex // before the parking's
	of    map[Receipt]*adoption
	loose bool      // copies of ours may be in the store that nobody needs
	after time.Time // nothing is tried before
}

func newAdopter(p *parking, store Store) *adopter {
	src, ok := p.Source.(MarkedSource)
	if !ok || !store.Caps().Filters || p.caps.Browsable {
		return nil
	}
	return &adopter{p: p, src: src, of: make(map[Receipt]*adoption)}
}

// look adopts what holds a mark back, and goes on with what was not finished before.
func (a *adopter) look(ctx context.Context) {
	a.mu.Lock()
	early := time.Now().Before(a.after)
	a.mu.Unlock()
	if early {
		return
	}
	fresh := a.choose(a.src.HoldingBack())
	work, open := a.unfinished()
	if work = work || len(fresh) > 0; !work && len(open) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adoptTimeout)
	defer cancel()
	var err error
	if work {
		err = a.adopt(ctx, fresh)
	}
	for _, one := range open {
		err = errors.Join(err, a.settleSource(ctx, one))
	}
	if err == nil {
		return
	}
	a.mu.Lock()
	a.after = time.Now().Add(adoptAgain)
	a.mu.Unlock()
	a.p.e.log.LogAttrs(ctx, slog.LevelWarn, "what holds the source back could not be adopted by the store yet",
		slog.String("source", a.p.caps.Name), slog.Any("error", err))
}

// unfinished returns what the store has and the source was not told, and whether copies of
// ours may be in the store that nobody needs.
func (a *adopter) unfinished() (loose bool, open []*adoption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.of {
		if one.isReady() && one.held && !one.settled.Load() && !one.lost.Load() {
			open = append(open, one)
		}
	}
	return a.loose, open
}

// choose registers what is to be adopted. Afterwards no settlement of it is under way that
// does not know.
func (a *adopter) choose(receipts []Receipt) []*adoption {
	var fresh []*adoption
	a.mu.Lock()
	a.p.mu.Lock()
	for _, r := range receipts {
		if h, ok := a.p.held[r]; ok && a.of[r] == nil && len(fresh) < adoptMost {
			one := &adoption{d: h.Delivery, ready: make(chan struct{})}
			a.of[r] = one
			fresh = append(fresh, one)
		}
	}
	a.p.mu.Unlock()
	a.mu.Unlock()
	if len(fresh) == 0 {
		return nil
	}
	a.gate.Lock()   // those who settled meanwhile are done
	a.gate.Unlock() //nolint:staticcheck // a barrier
	return slices.DeleteFunc(fresh, func(one *adoption) bool {
		a.p.mu.Lock()
		_, held := a.p.held[one.d.Receipt]
		a.p.mu.Unlock()
		if !held {
			a.forget(one)
		}
		return !held
	})
}

// forget lets the settlement of a message go to its source, as if it had not been chosen.
func (a *adopter) forget(one *adoption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, one.d.Receipt)
	close(one.ready)
}

// adopt puts copies into the store, takes them under a lease, and settles the source.
func (a *adopter) adopt(ctx context.Context, fresh []*adoption) error {
	err := a.put(ctx, fresh)
	if err == nil {
		err = a.claim(ctx, fresh)
	}
	if err == nil {
		err = a.orphans(ctx, fresh)
	}
	for _, one := range fresh {
		if !one.held {
			a.forget(one)
			continue
		}
		err = errors.Join(err, a.settleSource(ctx, one))
		close(one.ready)
	}
	return err
}

func (a *adopter) put(ctx context.Context, fresh []*adoption) error {
	if len(fresh) == 0 {
		return nil
	}
	a.mu.Lock()
	a.loose = true // if it is not known whether they are there
	a.mu.Unlock()
	puts := make([]Entry, len(fresh))
	for i, one := range fresh {
		puts[i] = a.p.heldEntry(one.d)
	}
	each, err := a.p.store.Apply(ctx, Batch{Put: puts, Entered: EnteredParked})
	for _, failed := range each {
		if failed != nil && !errors.Is(failed, ErrDuplicate) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// claim takes the copies of ours under a lease. One that nobody needs any more is removed.
func (a *adopter) claim(ctx context.Context, fresh []*adoption) error {
	a.p.mu.Lock()
	lease := a.p.lease
	a.p.mu.Unlock()
	wanted := make(map[string]*adoption, len(fresh))
	for _, one := range fresh {
		wanted[heldID(one.d.Ref())] = one
	}
	most := atMost(adoptMost, a.p.store.Caps())
	for {
		ds, err := a.p.store.Claim(ctx, ClaimRequest{Queue: HeldQueue, Kinds: []string{a.p.e.opts.Instance}, Max: most, Lease: lease, Instance: a.p.e.opts.Instance})
		if err != nil {
			return err
		}
		var surplus []Settlement
		for i := range ds {
			if one := wanted[ds[i].ID]; one != nil {
				one.held, one.receipt = true, ds[i].Receipt
			} else {
				surplus = append(surplus, Settlement{Receipt: ds[i].Receipt, Outcome: OutcomeDrop, Reason: ReasonManual})
			}
		}
		if len(surplus) > 0 {
			if err := FirstError(a.p.store.Settle(ctx, surplus)); err != nil {
				return err
			}
		}
		if len(ds) < most {
			a.mu.Lock()
			a.loose = false
			a.mu.Unlock()
			return nil
		}
	}
}

// orphans gives up what an earlier claim took whose answer never came: the copy goes on when
// that lease has run out, and must not meet the handler then.
func (a *adopter) orphans(ctx context.Context, fresh []*adoption) error {
	var refs []Ref
	var of []*adoption
	for _, one := range fresh {
		if !one.held {
			refs, of = append(refs, Ref{HeldQueue, heldID(one.d.Ref())}), append(of, one)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	entries, err := a.p.store.Get(ctx, refs)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if e == nil || e.State != StateLeased || e.Instance != a.p.e.opts.Instance {
			continue
		}
		one := of[i]
		err := FirstError(a.p.Source.Settle(ctx, []Settlement{{Receipt: one.d.Receipt, Outcome: OutcomeDone}}))
		if err != nil && !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrNotFound) {
			return err
		}
		one.held = true
		one.lost.Store(true)
	}
	return nil
}

// settleSource settles at the source what the store has. If the source says that it is not
// ours there, either its next holder has it, and the copy goes; or an earlier try may have
// counted, and the copy goes on in its queue, where it meets the other one.
func (a *adopter) settleSource(ctx context.Context, one *adoption) error {
	one.settling.Lock()
	defer one.settling.Unlock()
	if one.settled.Load() || one.lost.Load() {
		return nil
	}
	err := FirstError(a.p.Source.Settle(ctx, []Settlement{{Receipt: one.d.Receipt, Outcome: OutcomeDone}}))
	switch {
	case err == nil:
		one.settled.Store(true)
		a.p.e.log.LogAttrs(ctx, slog.LevelInfo, "the store adopted a message that held its source back",
			slog.String("queue", one.d.Queue), slog.String("id", one.d.ID))
		return nil
	case !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrNotFound):
		one.unsure = true
		return err
	}
	if one.unsure {
		err = a.p.restore(ctx, []heldCopy{{d: one.d, receipt: one.receipt}})
	} else {
		err = FirstError(a.p.store.Settle(ctx, []Settlement{{Receipt: one.receipt, Outcome: OutcomeDrop, Reason: ReasonManual}}))
	}
	if err == nil || errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound) {
		one.lost.Store(true)
		return nil
	}
	return err
}

// settle carries out the settlement of a message that the store adopted.
func (a *adopter) settle(ctx context.Context, one *adoption, s *Settlement) error {
	if err := a.settleSource(ctx, one); err != nil {
		return err
	}
	if one.lost.Load() {
		return ErrLeaseLost
	}
	outcome := s.Outcome
	if outcome != OutcomeDone && outcome != OutcomeDrop {
		var puts items
		errs := make([]error, 1)
		puts.put(0, parkedEntry(a.p.caps, one.d, s))
		if a.p.park(ctx, &puts, errs); errs[0] != nil {
			return errs[0]
		}
		outcome = OutcomeDone
	}
	return FirstError(a.p.store.Settle(ctx, []Settlement{{Receipt: one.receipt, Outcome: outcome, Reason: s.Reason}}))
}

// ended forgets what is settled for good.
func (a *adopter) ended(r Receipt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, r)
}
