package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// parking is a source whose settlements do everything: what the source beneath it
// cannot do is parked in the store, under the id by which the source names the
// message across redeliveries, and only then settled as done. A crash between the
// two repeats the parking, which the store recognises.
type parking struct {
	driver.Source
	caps    driver.Caps
	store   driver.Store
	e       *Engine
	mu      sync.Mutex
	held    map[redrive.Receipt]heldDelivery // what was claimed and is not settled
	records *claimRecords                    // nil if the source keeps its own

	// The store could not take claim records: nothing is claimed before this time, as what is
	// given back comes again at once.
	unrecordable error
	until        time.Time
}

// heldDelivery is a delivery in flight here, with its claim record.
type heldDelivery struct {
	*redrive.Delivery
	record *claimRecord
}

func newParking(src driver.Source, store driver.Store, e *Engine) *parking {
	p := &parking{Source: src, caps: src.Caps(), store: store, e: e, held: make(map[redrive.Receipt]heldDelivery)}
	if !p.caps.RecordsClaims {
		p.records = &claimRecords{store: store, instance: e.opts.Instance}
	}
	return p
}

// Claim implements Source.
func (p *parking) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if !p.caps.Browsable && (req.Dead || req.Expired || req.Isolated && !p.caps.RecordsClaims) {
		return nil, nil
	}
	if err := p.away(); err != nil {
		return nil, err
	}
	ds, records, more, err := p.claimRecorded(ctx, req)
	for n := 1; more && n < followerRounds; n++ {
		ds, records, more, err = p.claimRecorded(ctx, req)
	}
	if len(ds) == 0 || err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ds {
		h := heldDelivery{Delivery: &ds[i]}
		if records != nil {
			h.record = records[i]
		}
		p.held[ds[i].Receipt] = h
	}
	return ds, nil
}

// claimRecorded claims from the source and records the claim. It reports whether all of it was
// parked behind others of its keys, so that there may be more.
func (p *parking) claimRecorded(ctx context.Context, req driver.ClaimRequest) (ds []redrive.Delivery, records []*claimRecord, more bool, err error) {
	if ds, err = p.Source.Claim(ctx, req); len(ds) == 0 || err != nil || p.records == nil {
		return ds, nil, false, err
	}
	if ds, records, err = p.record(ctx, req.Queue, ds); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unrecordable, p.until = err, time.Now().Add(claimRetry)
		return nil, nil, false, err
	}
	return ds, records, len(ds) == 0 && p.caps.Ordered, nil
}

// away returns why nothing can be recorded for the moment.
func (p *parking) away() error {
	if p.records == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.unrecordable
	}
	return nil
}

// record records a claim. Messages that were in flight in a process that crashed are
// taken out of it: they go on as suspects in the store, which delivers them isolated
// and counts their crashes. If the store is away, nothing is delivered.
func (p *parking) record(ctx context.Context, queue string, ds []redrive.Delivery) ([]redrive.Delivery, []*claimRecord, error) {
	rest, suspects, err := p.sift(ctx, queue, ds)
	if err == nil {
		err = p.parkSuspects(ctx, suspects)
	}
	if err == nil {
		rest, err = p.parkFollowers(ctx, queue, rest)
	}
	if err != nil {
		p.giveBack(ctx, ds)
		return nil, nil, err
	}
	if len(rest) == 0 {
		return nil, nil, nil
	}
	records, err := p.records.set(ctx, queue, rest)
	if err != nil {
		p.giveBack(ctx, rest)
		return nil, nil, err
	}
	return rest, records, nil
}

// sift separates what a source may have claimed before, and another process had.
// What has no identity cannot be looked up: it is a suspect whenever it comes again.
func (p *parking) sift(ctx context.Context, queue string, ds []redrive.Delivery) (rest, suspects []redrive.Delivery, err error) {
	var named map[string]struct{}
	rest = ds[:0:0]
	for i := range ds {
		d := &ds[i]
		again := d.Suspect
		if again && p.identity(d) != redrive.IdentityNone {
			if named == nil {
				if named, err = p.records.named(ctx, queue); err != nil {
					return nil, nil, err
				}
			}
			_, again = named[d.ID]
		}
		if again {
			suspects = append(suspects, *d)
			continue
		}
		d.Suspect = false
		rest = append(rest, *d)
	}
	return rest, suspects, nil
}

func (p *parking) identity(d *redrive.Delivery) redrive.Identity {
	return cmp.Or(d.Identity, p.caps.Identity)
}

func (p *parking) parkSuspects(ctx context.Context, suspects []redrive.Delivery) error {
	if len(suspects) == 0 {
		return nil
	}
	var puts items
	done := make([]driver.Settlement, len(suspects))
	for i := range suspects {
		d := &suspects[i]
		s := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRelease}
		e := parkedEntry(p.caps, d, &s)
		e.Suspect, e.Lane, e.Attempts = true, redrive.LaneRetry, max(e.Attempts, 1) // the one that crashed
		puts.put(i, e)
		done[i] = driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
	}
	errs := make([]error, len(suspects))
	p.park(ctx, &puts, errs)
	if err := driver.FirstError(errs); err != nil {
		return err
	}
	p.Source.Settle(ctx, done) // if that fails, it comes again and is recognised
	return nil
}

// giveBack returns what was claimed and cannot be delivered.
func (p *parking) giveBack(ctx context.Context, ds []redrive.Delivery) {
	back := make([]driver.Settlement, len(ds))
	for i := range ds {
		back[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeRelease}
	}
	p.Source.Settle(context.WithoutCancel(ctx), back) // if that fails, its lease runs out
}

// Settle implements Source.
func (p *parking) Settle(ctx context.Context, batch []driver.Settlement) []error {
	errs := make([]error, len(batch))
	native := make([]driver.Settlement, len(batch))
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
			if d.Delivery == nil {
				errs[i] = redrive.ErrLeaseLost
			} else {
				puts.put(i, parkedEntry(p.caps, d.Delivery, &s))
				s = driver.Settlement{Receipt: s.Receipt, Outcome: redrive.OutcomeDone, Emit: s.Emit}
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
	msgs    []redrive.Message
	entries []redrive.Entry
}

func (l *items) add(of int, m ...redrive.Message) {
	for range m {
		l.of = append(l.of, of)
	}
	l.msgs = append(l.msgs, m...)
}

func (l *items) put(of int, e redrive.Entry) {
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
		if each != nil && each[i] != nil && !errors.Is(each[i], redrive.ErrDuplicate) && errs[of] == nil {
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
	each, err := p.store.Apply(ctx, driver.Batch{Put: l.entries, Entered: driver.EnteredParked})
	var again items
	for i, of := range l.of {
		switch {
		case err != nil:
			errs[of] = err
		case each == nil || each[i] == nil || errors.Is(each[i], redrive.ErrDuplicate):
		case errors.Is(each[i], redrive.ErrConflict):
			e := l.entries[i]
			e.ID = redrive.NewID()
			e.Headers = e.Headers.Clone()
			e.Headers.Set(redrive.HeaderPossibleDuplicate, "true")
			again.put(of, e)
		default:
			errs[of] = each[i]
		}
	}
	p.e.observe(&Observation{Occasion: OnParked, Count: len(l.entries) - len(again.entries)})
	p.park(ctx, &again, errs)
}

// settle carries out natively what had no error before.
func (p *parking) settle(ctx context.Context, native []driver.Settlement, errs []error) {
	rest := make([]driver.Settlement, 0, len(native))
	at := make([]int, 0, len(native))
	for i := range native {
		if errs[i] == nil {
			rest, at = append(rest, native[i]), append(at, i)
		}
	}
	p.unrecord(ctx, rest)
	var each []error
	if len(rest) > 0 {
		each = p.Source.Settle(ctx, rest)
	}
	for i := range each {
		errs[at[i]] = each[i]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range native {
		if errs[i] == nil || errors.Is(errs[i], redrive.ErrLeaseLost) || errors.Is(errs[i], redrive.ErrNotFound) {
			if record := p.held[native[i].Receipt].record; record != nil {
				p.records.settled(record)
			}
			delete(p.held, native[i].Receipt)
		}
	}
}

// unrecord takes what goes back to the source out of its records.
func (p *parking) unrecord(ctx context.Context, batch []driver.Settlement) {
	var back map[*claimRecord][]string
	p.mu.Lock()
	for i := range batch {
		record := p.held[batch[i].Receipt].record
		if batch[i].Outcome != redrive.OutcomeRelease || record == nil {
			continue
		}
		if back == nil {
			back = make(map[*claimRecord][]string)
		}
		back[record] = append(back[record], batch[i].Receipt.ID)
	}
	p.mu.Unlock()
	if back != nil {
		p.records.unset(ctx, back)
	}
}

// close removes what this process recorded.
func (p *parking) close() {
	if p.records != nil {
		p.records.clear()
	}
}

// native reports whether the source itself can carry out the settlement without
// losing the failure history.
func (p *parking) native(s *driver.Settlement) bool {
	switch s.Outcome {
	case redrive.OutcomeRelease:
		return s.After == 0 && s.Failure == nil || p.caps.MaxDelay > 0 && s.After <= p.caps.MaxDelay && p.caps.KeepsHistory
	case redrive.OutcomeRetry:
		return p.caps.MaxDelay > 0 && s.After <= p.caps.MaxDelay && p.caps.KeepsHistory
	case redrive.OutcomeDead:
		return p.caps.DeadLetters && p.caps.KeepsHistory
	case redrive.OutcomeRepeat:
		return p.caps.Repeats
	}
	return true
}

// parkedEntry is a delivery as the entry that its settlement leaves in the store.
func parkedEntry(caps driver.Caps, d *redrive.Delivery, s *driver.Settlement) redrive.Entry {
	e := redrive.Entry{Message: d.Message, State: redrive.StateWaiting, Lane: redrive.LaneRetry, Attempts: d.Attempt, Crashes: d.Crashes}
	e.Delay, e.DeliverAt = s.After, time.Time{}
	if d.History != nil {
		e.History = *d.History
	}
	e.History.Count = d.Failures
	e.History.Record(s.Failure, s.Outcome != redrive.OutcomeRelease)
	switch s.Outcome {
	case redrive.OutcomeRelease:
		e.Attempts--
		e.Lane = d.Lane
	case redrive.OutcomeDead:
		e.State, e.Reason, e.Delay = redrive.StateDead, s.Reason, 0
	case redrive.OutcomeRepeat:
		e.Lane, e.Attempts, e.History = redrive.LaneFresh, 0, redrive.History{}
		e.Generation++
	}
	if cmp.Or(d.Identity, caps.Identity) == redrive.IdentityNone {
		e.Headers = e.Headers.Clone()
		e.Headers.Set(redrive.HeaderPossibleDuplicate, "true")
	}
	return e
}
