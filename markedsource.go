package redrive

import (
	"context"
	"time"
)

// A MarkedSource is a source whose progress is one mark a part, such as the committed
// offset of a log's partition: one message that takes long holds the mark back for all
// that were finished after it. The engine has the store adopt such a message while its
// handler runs, settles it at the source, and the mark moves on.
type MarkedSource interface {
	Source
	// HoldingBack returns the receipts of what is in hand and has held a mark back for
	// too long, or for too many messages. It is asked every second and must be fast.
	HoldingBack() []Receipt
}

// enter begins a call that settles: it returns what of its receipts the store adopted, and
// nothing of the rest is adopted before leave is called.
func (a *adopter) enter(ctx context.Context, batch []Settlement) (adopted map[int]*adoption, err error) {
	for {
		a.gate.RLock()
		adopted, waitFor := a.among(batch)
		if waitFor == nil {
			return adopted, nil
		}
		a.gate.RUnlock() // who adopts waits for us
		select {
		case <-waitFor:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *adopter) leave() { a.gate.RUnlock() }

// among returns what the store adopted of a batch, or what has to be waited for first.
func (a *adopter) among(batch []Settlement) (adopted map[int]*adoption, waitFor <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) == 0 {
		return nil, nil
	}
	for i := range batch {
		one := a.of[batch[i].Receipt]
		switch {
		case one == nil:
		case !one.isReady():
			return nil, one.ready
		case one.held:
			if adopted == nil {
				adopted = make(map[int]*adoption)
			}
			adopted[i] = one
		}
	}
	return adopted, nil
}

// Extend implements Source: the lease of what was adopted is the store's.
func (p *parking) Extend(ctx context.Context, receipts []Receipt, lease time.Duration) []error {
	if p.adopter == nil {
		return p.Source.Extend(ctx, receipts, lease)
	}
	errs := make([]error, len(receipts))
	rest, held := p.adopter.sort(receipts, errs)
	for _, part := range []struct {
		receiptsAt
		extend func(ctx context.Context, r []Receipt, lease time.Duration) []error
	}{{rest, p.Source.Extend}, {held, p.store.Extend}} {
		if len(part.receipts) == 0 {
			continue
		}
		for i, err := range part.extend(ctx, part.receipts, lease) {
			errs[part.at[i]] = err
		}
	}
	return errs
}

// receiptsAt are some of a list of receipts, with their places in it.
type receiptsAt struct {
	receipts []Receipt
	at       []int
}

func (l *receiptsAt) add(r Receipt, at int) {
	l.receipts, l.at = append(l.receipts, r), append(l.at, at)
}

// sort tells the receipts of the source from those of copies. What is being adopted right
// now is ours either way.
func (a *adopter) sort(receipts []Receipt, errs []error) (rest, held receiptsAt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range receipts {
		one := a.of[r]
		switch {
		case one == nil:
			rest.add(r, i)
		case !one.isReady():
		case one.lost.Load():
			errs[i] = ErrLeaseLost
		default:
			held.add(one.receipt, i)
		}
	}
	return rest, held
}
