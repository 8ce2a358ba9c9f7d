package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Receipts. A position begins with where the message stands.
const (
	PlaceMessage = 'm' // a waiting message
	PlaceOrdered = 'o' // one that stands in the line of its key
	PlaceDead    = 'd' // a dead letter
)

// PlaceOf is where a position says that the message stands.
func PlaceOf(position string) byte {
	if position == "" {
		return PlaceMessage
	}
	return position[0]
}

// Settle implements driver.Source. What nothing can refuse is settled together; the rest
// apart, since what is refused must be undone without the others.
func (v Verbs) Settle(ctx context.Context, items []driver.Settlement) []error {
	b := v.base
	if err := b.Ready(ctx); err != nil {
		return FillErrors(len(items), err)
	}
	ctx, cancel := b.Detach(ctx)
	defer cancel()
	b.Texts.Learn(ctx, &b.Masks, func(add func(string, *redrive.Failure)) {
		for i := range items {
			if items[i].Outcome == redrive.OutcomeDead || PlaceOf(items[i].Receipt.Position) == PlaceDead {
				add(items[i].Receipt.Queue, items[i].Failure)
			}
		}
	})
	errs := make([]error, len(items))
	for _, round := range rounds(items, errs) {
		var plain, rest []int
		for _, i := range round {
			if len(items[i].Emit) == 0 && PlaceOf(items[i].Receipt.Position) != PlaceDead && b.own.Plain(&items[i]) {
				plain = append(plain, i)
			} else {
				rest = append(rest, i)
			}
		}
		b.settle(ctx, items, plain, errs, true)
		b.settle(ctx, items, rest, errs, false)
	}
	var queues []string
	for i := range items {
		if errs[i] == nil {
			queues = append(queues, touched(&items[i])...)
		}
	}
	b.Changed(queues...)
	return OrNil(errs)
}

// touched returns the queues in which a settlement makes something claimable.
func touched(st *driver.Settlement) []string {
	var queues []string
	if PlaceOf(st.Receipt.Position) != PlaceMessage || st.Outcome != redrive.OutcomeDone && st.Outcome != redrive.OutcomeDrop {
		queues = append(queues, st.Receipt.Queue)
	}
	for i := range st.Emit {
		queues = append(queues, st.Emit[i].Queue)
	}
	return queues
}

// settle settles some items together, and if one of them is refused, each for itself.
func (b *Base) settle(ctx context.Context, items []driver.Settlement, which []int, errs []error, plain bool) {
	if len(which) == 0 {
		return
	}
	var lost []int
	var err error
	if plain {
		lost, err = b.own.SettlePlain(ctx, items, which)
	} else {
		lost, err = b.settleRest(ctx, items, which)
	}
	var refused *RefusedError
	switch {
	case err == nil:
		b.explain(ctx, func(i int) redrive.Ref { return items[i].Receipt.Ref }, lost, errs)
	case len(which) > 1 && (errors.As(err, &refused) || b.own.DataError(err)):
		for _, i := range which {
			b.settle(ctx, items, []int{i}, errs, plain)
		}
	case errors.As(err, &refused):
		errs[which[0]] = refused.Err
	default:
		for _, i := range which {
			errs[i] = b.own.Fault("settle", err)
		}
	}
}

func (b *Base) settleRest(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	err = b.own.InTx(ctx, "settle_tx", func(w *Work) (err error) {
		lost, err = w.Settle(ctx, items, which)
		return err
	})
	return lost, err
}

// Settle settles items and returns those whose claim did not hold. An emit that is
// refused is a RefusedError.
func (w *Work) Settle(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	var live, dead []int
	for _, i := range which {
		if PlaceOf(items[i].Receipt.Position) == PlaceDead {
			dead = append(dead, i)
		} else {
			live = append(live, i)
		}
	}
	if err := w.Rows.LockLines(ctx, items, which); err != nil {
		return nil, err
	}
	if len(live) > 0 {
		if lost, err = w.Rows.SettleLive(ctx, items, live); err != nil {
			return nil, err
		}
	}
	if len(dead) > 0 {
		missed, err := w.SettleDead(ctx, items, dead)
		if err != nil {
			return nil, err
		}
		lost = append(lost, missed...)
	}
	return lost, w.emit(ctx, items, which, lost)
}

// emit publishes what the settlements that held emit.
func (w *Work) emit(ctx context.Context, items []driver.Settlement, which, lost []int) error {
	gone := make(map[int]bool, len(lost))
	for _, i := range lost {
		gone[i] = true
	}
	var emits []*Item
	for _, i := range which {
		if gone[i] {
			continue
		}
		for j := range items[i].Emit {
			emits = append(emits, NewItem(&items[i].Emit[j], w.Masks, new(error)))
		}
	}
	if len(emits) == 0 {
		return nil
	}
	if err := w.Rows.Publish(ctx, emits); err != nil {
		return err
	}
	for _, e := range emits {
		if err := *e.Result; err != nil && !errors.Is(err, redrive.ErrDuplicate) {
			return &RefusedError{Err: fmt.Errorf("emit: %w", err)}
		}
	}
	return nil
}

// SettleTx settles a delivery within a transaction of the caller's.
func (w *Work) SettleTx(ctx context.Context, st *driver.Settlement) error {
	if err := st.Validate(); err != nil {
		return err
	}
	lost, err := w.Settle(ctx, []driver.Settlement{*st}, []int{0})
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Err
	case err != nil:
		return &redrive.Error{Op: "settle", Queue: st.Receipt.Queue, ID: st.Receipt.ID, Err: err, Hint: "roll the transaction back"}
	case len(lost) > 0:
		return redrive.ErrLeaseLost
	}
	return nil
}

// PublishTx publishes within a transaction of the caller's. What is there already counts
// as published; the error names what was refused.
func (w *Work) PublishTx(ctx context.Context, msgs []redrive.Message) error {
	errs := make([]error, len(msgs))
	items := NewItems(msgs, w.Masks, errs)
	if err := w.Rows.Publish(ctx, items); err != nil {
		return &redrive.Error{Op: "publish", Err: err, Hint: "roll the transaction back"}
	}
	for _, it := range items {
		it.From.ID = it.ID
	}
	return driver.Refused("publish", len(msgs), func(i int) (redrive.Ref, error) {
		if errors.Is(errs[i], redrive.ErrDuplicate) {
			return redrive.Ref{}, nil
		}
		return msgs[i].Ref(), errs[i]
	})
}

// rounds checks settlements and parts them so that no message is twice in a round.
func rounds(items []driver.Settlement, errs []error) [][]int {
	var all [][]int
	times := make(map[redrive.Ref]int)
	for i := range items {
		if errs[i] = items[i].Validate(); errs[i] != nil {
			continue
		}
		n := times[items[i].Receipt.Ref]
		times[items[i].Receipt.Ref]++
		if n == len(all) {
			all = append(all, nil)
		}
		all[n] = append(all[n], i)
	}
	return all
}
