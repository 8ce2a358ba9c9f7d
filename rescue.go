package redrive

import (
	"context"
	"log/slog"
	"time"
)

// rescueEvery is how often copies of processes that died are looked for.
const rescueEvery = DefaultLease

// heldCopy is a message of the HeldQueue that is to go on in its own.
type heldCopy struct {
	d       *Delivery // as it was handed out by its source
	receipt Receipt   // of the copy
	story   *History
}

// heldID names the copy of a message in the HeldQueue.
func heldID(of Ref) string { return DeriveID("held", of.Queue, of.ID) }

// heldEntry is the copy of a message that is in a handler's hands.
func (p *parking) heldEntry(d *Delivery) Entry {
	e := parkedEntry(p.caps, d, &Settlement{Outcome: OutcomeRelease})
	e.Lane = LaneFresh
	e.Headers = append(e.Headers.Clone(), Header{headerHeldQueue, []byte(d.Queue)}, Header{headerHeldID, []byte(d.ID)}, Header{headerHeldKind, []byte(d.Kind)})
	e.Queue, e.ID, e.Kind = HeldQueue, heldID(d.Ref()), p.e.opts.Instance
	return e
}

// unheld makes of a copy the message that it was.
func unheld(m Message) (Message, bool) {
	queue, named := m.Headers.Get(headerHeldQueue)
	id, _ := m.Headers.Get(headerHeldID)
	kind, _ := m.Headers.Get(headerHeldKind)
	m.Headers = m.Headers.Clone()
	for _, name := range []string{headerHeldQueue, headerHeldID, headerHeldKind} {
		m.Headers.Del(name)
	}
	m.Queue, m.ID, m.Kind = queue, id, kind
	return m, named
}

// restore puts messages into their queues whose handlers are given up, or died with their
// process: as suspects, under their own ids, so that another copy of them is recognised.
func (p *parking) restore(ctx context.Context, copies []heldCopy) error {
	if len(copies) == 0 {
		return nil
	}
	var puts items
	done := make([]Settlement, len(copies))
	for i, c := range copies {
		e := parkedEntry(p.caps, c.d, &Settlement{Outcome: OutcomeRelease})
		e.Suspect, e.Lane, e.Attempts = true, LaneRetry, max(e.Attempts, 1) // the one that crashed
		if c.story != nil {
			e.History = *c.story
		}
		puts.put(i, e)
		done[i] = Settlement{Receipt: c.receipt, Outcome: OutcomeDone}
	}
	errs := make([]error, len(copies))
	p.park(ctx, &puts, errs)
	if err := FirstError(errs); err != nil {
		return err
	}
	return FirstError(p.store.Settle(ctx, done))
}

// adoptions has the store adopt what holds sources back, as long as the engine runs, and
// rescues what processes that died had adopted.
func (e *Engine) adoptions(ctx context.Context) error {
	look := time.NewTicker(adoptEvery)
	defer look.Stop()
	var rescued time.Time
	var seen map[string]bool
	for {
		all := e.adopters()
		if now := time.Now(); len(all) > 0 && now.Sub(rescued) >= rescueEvery {
			rescued = now
			found, err := all[0].p.rescue(ctx, seen)
			if err != nil && ctx.Err() == nil {
				e.log.LogAttrs(ctx, slog.LevelWarn, "what processes that died had in hand could not be looked for", slog.Any("error", err))
			}
			seen = found
		}
		for _, a := range all {
			a.look(ctx)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (e *Engine) adopters() []*adopter {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.adoptersLocked()
}

// startAdopterLocked looks after sources that have a mark, once there is one.
func (e *Engine) startAdopterLocked() {
	if len(e.adoptersLocked()) > 0 {
		e.adopting.Do(func() { e.sup.start(e.run, "adopter", e.adoptions) })
	}
}

func (e *Engine) adoptersLocked() (all []*adopter) {
	for _, src := range e.wrapped {
		if p, ok := src.(*parking); ok && p.adopter != nil {
			all = append(all, p.adopter)
		}
	}
	return all
}

// rescue restores copies whose lease ran out. One that was put and never claimed has lost
// its process in between, or its claim with the power: it is taken when it was there at the
// look before, too. It returns those that were found so.
func (p *parking) rescue(ctx context.Context, seen map[string]bool) (found map[string]bool, err error) {
	most := atMost(adoptMost, p.store.Caps())
	req := ClaimRequest{Queue: HeldQueue, Alone: true, Max: most, Lease: DefaultLease, Instance: p.e.opts.Instance}
	for n := most; n == most; {
		if n, err = p.rescueClaim(ctx, req); err != nil {
			return seen, err
		}
	}
	page, err := p.store.Find(ctx, Query{Queue: HeldQueue, State: StateWaiting, Limit: most})
	if err != nil {
		return seen, err
	}
	found = make(map[string]bool, len(page.Entries))
	for i := range page.Entries {
		w := &page.Entries[i]
		if w.Kind == p.e.opts.Instance {
			continue
		}
		found[w.ID] = true
		if seen[w.ID] {
			req.Alone, req.Kinds = false, []string{w.Kind}
			if _, err := p.rescueClaim(ctx, req); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

func (p *parking) rescueClaim(ctx context.Context, req ClaimRequest) (int, error) {
	ds, err := p.store.Claim(ctx, req)
	if err != nil || len(ds) == 0 {
		return 0, err
	}
	refs := make([]Ref, len(ds))
	for i := range ds {
		refs[i] = ds[i].Ref()
	}
	stories, err := p.store.Get(ctx, refs)
	if err != nil {
		return 0, err
	}
	var copies []heldCopy
	for i := range ds {
		m, ok := unheld(ds[i].Message)
		if !ok || stories[i] == nil { // not ours, or gone
			continue
		}
		d := &Delivery{Message: m, Attempt: max(stories[i].Attempts-1, 1)}
		copies = append(copies, heldCopy{d: d, receipt: ds[i].Receipt, story: &stories[i].History})
	}
	return len(ds), p.restore(ctx, copies)
}
