package redrive

import (
	"context"
	"errors"
	"sync"
	"time"
)

// parking is a source whose settlements do everything: what the source beneath it
// cannot do is parked in the store, under the id by which the source names the
// message across redeliveries, and only then settled as done. A crash between the
// two repeats the parking, which the store recognises.
type parking struct {
	Source
	caps  Caps
	store Store
	e     *Engine
	mu    sync.Mutex
	held  map[Receipt]*Delivery // what was handed out and is not settled
}

func newParking(src Source, store Store, e *Engine) *parking {
	return &parking{Source: src, caps: src.Caps(), store: store, e: e, held: make(map[Receipt]*Delivery)}
}

// Claim implements Source.
func (p *parking) Claim(ctx context.Context, req ClaimRequest) ([]Delivery, error) {
	if !p.caps.Browsable && (req.Alone || req.Dead || req.Expired) {
		return nil, nil
	}
	ds, err := p.Source.Claim(ctx, req)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ds {
		p.held[ds[i].Receipt] = &ds[i]
	}
	return ds, err
}

// Settle implements Source.
func (p *parking) Settle(ctx context.Context, batch []Settlement) []error {
	errs := make([]error, len(batch))
	native := make([]Settlement, len(batch))
	var emits, puts items
	for i := range batch {
		s := batch[i]
		if !p.caps.Emits {
			emits.add(i, s.Emit...)
			s.Emit = nil
		}
		if !p.native(&s) {
			p.mu.Lock()
			d := p.held[s.Receipt]
			p.mu.Unlock()
			if d == nil {
				errs[i] = ErrLeaseLost
			} else {
				puts.put(i, parkedEntry(p.caps, d, &s))
				s = Settlement{Receipt: s.Receipt, Outcome: OutcomeDone, Emit: s.Emit}
			}
		}
		native[i] = s
	}
	p.publish(ctx, &emits, errs)
	p.park(ctx, &puts, errs)
	p.settle(ctx, native, errs)
	return errs
}

// items are messages or entries with the settlement that each belongs to.
type items struct {
	of      []int
	msgs    []Message
	entries []Entry
}

func (l *items) add(of int, m ...Message) {
	for range m {
		l.of = append(l.of, of)
	}
	l.msgs = append(l.msgs, m...)
}

func (l *items) put(of int, e Entry) {
	l.of = append(l.of, of)
	l.entries = append(l.entries, e)
}

// publish makes emits durable before what emitted them is settled. One that is there
// already was published by an earlier try.
func (p *parking) publish(ctx context.Context, l *items, errs []error) {
	if len(l.msgs) == 0 {
		return
	}
	each := p.store.Publish(ctx, l.msgs)
	for i, of := range l.of {
		if each != nil && each[i] != nil && !errors.Is(each[i], ErrDuplicate) && errs[of] == nil {
			errs[of] = each[i]
		}
	}
}

// park puts entries into the store. An id that another message has is not an
// identity: the entry is then parked under a new id, marked as a possible duplicate.
func (p *parking) park(ctx context.Context, l *items, errs []error) {
	if len(l.entries) == 0 {
		return
	}
	each, err := p.store.Apply(ctx, Batch{Put: l.entries, Entered: EnteredParked})
	var again items
	for i, of := range l.of {
		switch {
		case err != nil:
			errs[of] = err
		case each == nil || each[i] == nil || errors.Is(each[i], ErrDuplicate):
		case errors.Is(each[i], ErrConflict):
			e := l.entries[i]
			e.ID = NewID()
			e.Headers = e.Headers.Clone()
			e.Headers.Set(HeaderPossibleDuplicate, "true")
			again.put(of, e)
		default:
			errs[of] = each[i]
		}
	}
	p.e.observe(&Observation{Occasion: OnParked, Count: len(l.entries) - len(again.entries)})
	p.park(ctx, &again, errs)
}

// settle carries out natively what had no error before.
func (p *parking) settle(ctx context.Context, native []Settlement, errs []error) {
	rest := make([]Settlement, 0, len(native))
	for i := range native {
		if errs[i] == nil {
			rest = append(rest, native[i])
		}
	}
	var each []error
	if len(rest) > 0 {
		each = p.Source.Settle(ctx, rest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for i := range native {
		if errs[i] == nil {
			if each != nil {
				errs[i] = each[n]
			}
			n++
		}
		if errs[i] == nil || errors.Is(errs[i], ErrLeaseLost) || errors.Is(errs[i], ErrNotFound) {
			delete(p.held, native[i].Receipt)
		}
	}
}

// native reports whether the source itself can carry out the settlement without
// losing the story.
func (p *parking) native(s *Settlement) bool {
	switch s.Outcome {
	case OutcomeRelease:
		return s.After == 0 && s.Failure == nil || s.After <= p.caps.MaxDelay && p.caps.KeepsHistory
	case OutcomeRetry:
		return p.caps.MaxDelay > 0 && s.After <= p.caps.MaxDelay && p.caps.KeepsHistory
	case OutcomeDead:
		return p.caps.DeadLetters && p.caps.KeepsHistory
	case OutcomeRepeat:
		return p.caps.Repeats
	}
	return true
}

// parkedEntry is a delivery as the entry that its settlement leaves in the store.
func parkedEntry(caps Caps, d *Delivery, s *Settlement) Entry {
	e := Entry{Message: d.Message, State: StateWaiting, Lane: LaneRetry, Attempts: d.Attempt, Crashes: d.Crashes}
	e.Delay, e.DeliverAt = s.After, time.Time{}
	e.History.Count = d.Failures
	e.History.Record(s.Failure, s.Outcome != OutcomeRelease)
	switch s.Outcome {
	case OutcomeRelease:
		e.Attempts--
		e.Lane = d.Lane
	case OutcomeDead:
		e.State, e.Reason, e.Delay = StateDead, s.Reason, 0
	case OutcomeRepeat:
		e.Lane, e.Attempts, e.History = LaneFresh, 0, History{}
		e.Generation++
	}
	identity := d.Identity
	if identity == 0 {
		identity = caps.Identity
	}
	if identity == IdentityNone {
		e.Headers = e.Headers.Clone()
		e.Headers.Set(HeaderPossibleDuplicate, "true")
	}
	return e
}
