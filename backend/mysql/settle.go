package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Settle implements driver.Source. What emits nothing is settled in one transaction;
// the rest in another, since one that is refused must be undone without the others.
func (s *Store) Settle(ctx context.Context, items []driver.Settlement) []error {
	if err := s.ready(ctx); err != nil {
		return sqlstore.FillErrors(len(items), err)
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	errs := make([]error, len(items))
	for _, round := range sqlstore.Rounds(items, errs) {
		plain, rest := split(items, round)
		s.settle(ctx, items, plain, errs)
		s.settle(ctx, items, rest, errs)
	}
	var queues []string
	for i := range items {
		if errs[i] == nil {
			queues = append(queues, touched(&items[i])...)
		}
	}
	s.changed(queues...)
	return sqlstore.OrNil(errs)
}

// touched returns the queues in which a settlement makes something claimable.
func touched(st *driver.Settlement) []string {
	var queues []string
	kind := parsePlace(st.Receipt.Position).kind
	if kind != placeMessage || st.Outcome != redrive.OutcomeDone && st.Outcome != redrive.OutcomeDrop {
		queues = append(queues, st.Receipt.Queue)
	}
	for i := range st.Emit {
		queues = append(queues, st.Emit[i].Queue)
	}
	return queues
}

// split parts what cannot be refused from what can.
func split(items []driver.Settlement, round []int) (plain, rest []int) {
	for _, i := range round {
		if len(items[i].Emit) > 0 || parsePlace(items[i].Receipt.Position).kind == placeDead {
			rest = append(rest, i)
		} else {
			plain = append(plain, i)
		}
	}
	return plain, rest
}

// settle settles some items together, and if one of them is refused, each for itself.
func (s *Store) settle(ctx context.Context, items []driver.Settlement, which []int, errs []error) {
	if len(which) == 0 {
		return
	}
	var lost []int
	err := s.inTx(ctx, "settle", func(tx db) (err error) {
		lost, err = newWork(tx, s.sql).settle(ctx, items, which)
		return err
	})
	var refused *sqlstore.RefusedError
	switch {
	case err == nil:
		s.explain(ctx, items, lost, errs)
	case len(which) > 1 && (errors.As(err, &refused) || dataError(err)):
		for _, i := range which {
			s.settle(ctx, items, []int{i}, errs)
		}
	case errors.As(err, &refused):
		errs[which[0]] = refused.Err
	default:
		for _, i := range which {
			errs[i] = fault("settle", err)
		}
	}
}

// settle settles items and returns those whose claim did not hold. An emit that is
// refused is a RefusedError.
func (w *work) settle(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	var live, dead []int
	var keys []sqlstore.LineKey
	for _, i := range which {
		p := parsePlace(items[i].Receipt.Position)
		if p.kind == placeDead {
			dead = append(dead, i)
		} else {
			live = append(live, i)
		}
		if p.key != "" {
			keys = append(keys, sqlstore.LineKey{Queue: items[i].Receipt.Queue, Key: p.key})
		}
	}
	if err := w.lockKeys(ctx, keys); err != nil {
		return nil, err
	}
	if len(live) > 0 {
		if lost, err = w.settleLive(ctx, items, live); err != nil {
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
	if err := w.Flush(ctx); err != nil {
		return nil, err
	}
	return lost, w.emit(ctx, items, which, lost)
}

// settleLive settles waiting messages and returns those whose claim did not hold.
func (w *work) settleLive(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	places := make([]place, len(which))
	seqs := make([]int64, len(which))
	for j, i := range which {
		places[j] = parsePlace(items[i].Receipt.Position)
		seqs[j] = places[j].seq
	}
	found, err := w.hold(ctx, seqs)
	if err != nil {
		return nil, err
	}
	b := batch{work: w}
	for j, i := range which {
		st := &items[i]
		h := found[places[j].seq]
		if !h.holds(&st.Receipt, places[j]) || h.turn > 0 && h.key != places[j].key {
			lost = append(lost, i)
			continue
		}
		if err := w.Know(ctx, b.unknown(h, st)...); err != nil {
			return nil, err
		}
		b.settle(h, st)
	}
	return lost, w.db.run(ctx, b.steps()...)
}

// emit publishes what the settlements that held emit.
func (w *work) emit(ctx context.Context, items []driver.Settlement, which, lost []int) error {
	var emits []*sqlstore.Item
	for _, i := range which {
		if slices.Contains(lost, i) {
			continue
		}
		for j := range items[i].Emit {
			emits = append(emits, sqlstore.NewItem(&items[i].Emit[j], new(error)))
		}
	}
	if len(emits) == 0 {
		return nil
	}
	if err := w.store(ctx, emits); err != nil {
		return err
	}
	for _, e := range emits {
		if err := *e.Result; err != nil && !errors.Is(err, redrive.ErrDuplicate) {
			return &sqlstore.RefusedError{Err: fmt.Errorf("emit: %w", err)}
		}
	}
	return nil
}

// explain finds out why claims did not hold: the message is gone, or it is another's.
func (s *Store) explain(ctx context.Context, items []driver.Settlement, lost []int, errs []error) {
	refs := make([]redrive.Ref, len(lost))
	for j, i := range lost {
		refs[j] = items[i].Receipt.Ref
	}
	for j, err := range s.whyLost(ctx, refs) {
		errs[lost[j]] = err
	}
}

// whyLost returns ErrLeaseLost for messages that are there, ErrNotFound for others.
func (s *Store) whyLost(ctx context.Context, refs []redrive.Ref) []error {
	if len(refs) == 0 {
		return nil
	}
	there := make(map[redrive.Ref]bool)
	var steps []step
	for _, l := range byQueue(refs) {
		st := l.step(s.sql, "there", func(r row) error {
			var ref redrive.Ref
			err := r.Scan(&ref.Queue, &ref.ID)
			there[ref] = true
			return err
		})
		st.args = append(st.args, st.args...)
		steps = append(steps, st)
	}
	if s.read(ctx, "there", nil, steps...) != nil {
		return sqlstore.FillErrors(len(refs), redrive.ErrLeaseLost) // that much is certain
	}
	reasons := sqlstore.FillErrors(len(refs), redrive.ErrNotFound)
	for i, ref := range refs {
		if there[ref] {
			reasons[i] = redrive.ErrLeaseLost
		}
	}
	return reasons
}
