package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Settle implements redrive.Source. What emits nothing is settled in one transaction;
// the rest in another, since one that is refused must be undone without the others.
func (s *Store) Settle(ctx context.Context, items []redrive.Settlement) []error {
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
func touched(st *redrive.Settlement) []string {
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
func split(items []redrive.Settlement, round []int) (plain, rest []int) {
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
func (s *Store) settle(ctx context.Context, items []redrive.Settlement, which []int, errs []error) {
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
func (w *work) settle(ctx context.Context, items []redrive.Settlement, which []int) (lost []int, err error) {
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

// holding is a claimed row.
type holding struct {
	redrive.Ref
	seq, token, nonce, due, turn int64
	class, lane, size            int
	chosen, leased               bool
	key                          string
}

// hold locks the rows of claims, by their seqs.
func (w *work) hold(ctx context.Context, seqs []int64) (map[int64]*holding, error) {
	found := make(map[int64]*holding, len(seqs))
	var now int64
	slices.Sort(seqs)
	var steps []step
	for _, list := range chunks(slices.Compact(seqs)) {
		steps = append(steps, step{sql: w.sql.with("held", ":seqs", numbers(list)), scan: func(r row) error {
			h := new(holding)
			err := r.Scan(&h.seq, &h.Queue, &h.ID, &h.token, &h.nonce, &h.class, &h.due, &h.lane, &h.size, &h.chosen, &h.turn, &h.key, &now)
			h.leased = h.class >= sqlstore.ClassLeased
			found[h.seq] = h
			return err
		}})
	}
	err := w.db.run(ctx, steps...)
	if now != 0 {
		w.Clock = timeAt(now)
	}
	return found, err
}

// holds reports whether a receipt is that of the row's claim.
func (h *holding) holds(r *redrive.Receipt, p place) bool {
	return h != nil && h.leased && h.Ref == r.Ref && uint64(h.token) == r.Token && h.nonce == p.nonce //nolint:gosec // counts from 0
}

// settleLive settles waiting messages and returns those whose claim did not hold.
func (w *work) settleLive(ctx context.Context, items []redrive.Settlement, which []int) (lost []int, err error) {
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

// batch gathers what settlements of waiting messages change: those that are alike go by
// one statement.
type batch struct {
	work   *work
	alike  map[change][]int64
	order  []change
	single []step
}

// change is a settlement without a failure.
type change struct {
	outcome redrive.Outcome
	after   int64
	reason  redrive.Reason
	letsGo  bool
}

// unknown names the queue whose settings matter for a settlement.
func (b *batch) unknown(h *holding, st *redrive.Settlement) []string {
	if h.turn > 0 && st.Outcome == redrive.OutcomeDead {
		return []string{h.Queue}
	}
	return nil
}

// settle notes what becomes of one message.
func (b *batch) settle(h *holding, st *redrive.Settlement) {
	w := b.work
	c := change{outcome: st.Outcome, after: sqlstore.Micros(st.After)}
	lane := sqlstore.Book(h.lane)
	leaves := st.Outcome != redrive.OutcomeRetry && st.Outcome != redrive.OutcomeRelease
	switch st.Outcome {
	case redrive.OutcomeDone:
		c.after = 0
		w.Count(h.Queue, sqlstore.BookDone, 1)
	case redrive.OutcomeDrop:
		c.after = 0
		w.Count(h.Queue, sqlstore.BookDropped, 1)
	case redrive.OutcomeDead:
		c.after, c.reason, c.letsGo = 0, st.Reason, h.turn > 0 && w.Settings[h.Queue].DeadRelease
		leaves = c.letsGo
		w.Count(h.Queue, sqlstore.DeadBook(st.Reason), 1)
	case redrive.OutcomeRepeat:
		w.Count(h.Queue, sqlstore.BookDone, 1)
		w.Count(h.Queue, sqlstore.BookRepeated, 1)
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.BookFresh, 1)
	case redrive.OutcomeRetry:
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.BookRetry, 1)
	case redrive.OutcomeRelease:
	}
	if ends := c.outcome != redrive.OutcomeRepeat && c.outcome != redrive.OutcomeRetry && c.outcome != redrive.OutcomeRelease; ends {
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.BookBytes, -int64(h.size))
		w.Gone = append(w.Gone, sqlstore.Gone{Ref: h.Ref, Seq: h.seq})
		if h.chosen {
			f := sqlstore.Fate{Outcome: c.outcome, Ended: c.outcome != redrive.OutcomeDead}
			if c.outcome != redrive.OutcomeDone {
				f.Reason = st.Reason
			}
			w.Memories = append(w.Memories, sqlstore.Memory{Ref: h.Ref, Fate: f})
		}
	}
	if h.turn > 0 && leaves {
		w.Leavers = append(w.Leavers, sqlstore.Leaving{LineKey: sqlstore.LineKey{Queue: h.Queue, Key: h.key}, ID: h.ID, Back: c.outcome == redrive.OutcomeRepeat})
	}
	b.add(h.seq, c, st.Failure)
}

// add notes the statement that a change takes.
func (b *batch) add(seq int64, c change, f *redrive.Failure) {
	switch c.outcome {
	case redrive.OutcomeDone, redrive.OutcomeDrop:
		return // the row goes with all that go
	case redrive.OutcomeRepeat:
		f = nil
	}
	if f != nil {
		b.single = append(b.single, b.failed(seq, c, f))
		return
	}
	if b.alike == nil {
		b.alike = make(map[change][]int64)
	}
	if b.alike[c] == nil {
		b.order = append(b.order, c)
	}
	b.alike[c] = append(b.alike[c], seq)
}

// failed is the statement of a settlement with a failure.
func (b *batch) failed(seq int64, c change, f *redrive.Failure) step {
	sql, text := b.work.sql, redrive.EncodeFailure(f)
	one := numbers([]int64{seq})
	if c.outcome == redrive.OutcomeDead {
		return step{sql: sql.with("bury_failed", ":seqs", one), args: []any{c.letsGo, int(c.reason), cut(f.Signature), text, text}}
	}
	retried := c.outcome == redrive.OutcomeRetry
	return step{sql: sql.with("failed", ":seqs", one), args: []any{retried, c.after, retried, !retried, !retried, retried, text, text}}
}

// steps returns all statements. What is copied to the dead letters is removed
// afterwards, with what else goes.
func (b *batch) steps() []step {
	steps := b.single
	sql := b.work.sql
	for _, c := range b.order {
		retried := c.outcome == redrive.OutcomeRetry
		for _, seqs := range chunks(b.alike[c]) {
			list := numbers(seqs)
			switch c.outcome {
			case redrive.OutcomeDead:
				steps = append(steps, step{sql: sql.with("bury", ":seqs", list), args: []any{c.letsGo, int(c.reason)}})
			case redrive.OutcomeRepeat:
				steps = append(steps, step{sql: sql.with("repeat", ":seqs", list), args: []any{c.after}})
			default:
				steps = append(steps, step{sql: sql.with("back", ":seqs", list), args: []any{retried, c.after, retried, !retried, !retried}})
			}
		}
	}
	return steps
}

// emit publishes what the settlements that held emit.
func (w *work) emit(ctx context.Context, items []redrive.Settlement, which, lost []int) error {
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
func (s *Store) explain(ctx context.Context, items []redrive.Settlement, lost []int, errs []error) {
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

// Extend implements redrive.Source.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if err := s.ready(ctx); err != nil {
		return sqlstore.FillErrors(len(receipts), err)
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	var lost []int
	err := s.inTx(ctx, "extend", func(tx db) (err error) {
		lost, err = newWork(tx, s.sql).extend(ctx, receipts, max(lease, sqlstore.MinLease))
		return err
	})
	if err != nil {
		return sqlstore.FillErrors(len(receipts), fault("extend", err))
	}
	if len(lost) == 0 {
		return nil
	}
	errs, refs := make([]error, len(receipts)), make([]redrive.Ref, len(lost))
	for j, i := range lost {
		refs[j] = receipts[i].Ref
	}
	for j, err := range s.whyLost(ctx, refs) {
		errs[lost[j]] = err
	}
	return errs
}

// extend lets leases run anew, if they have not run out, and returns the others.
func (w *work) extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (lost []int, err error) {
	var seqs []int64
	var refs []redrive.Ref
	places := make([]place, len(receipts))
	for i := range receipts {
		places[i] = parsePlace(receipts[i].Position)
		if places[i].kind == placeDead {
			refs = append(refs, receipts[i].Ref)
		} else {
			seqs = append(seqs, places[i].seq)
		}
	}
	found, err := w.hold(ctx, seqs)
	if err != nil {
		return nil, err
	}
	now := w.Clock.UnixMicro()
	foundDead, err := w.holdDead(ctx, refs, &now)
	if err != nil {
		return nil, err
	}
	seqs, refs = nil, nil
	for i := range receipts {
		h := found[places[i].seq]
		if places[i].kind == placeDead {
			h = foundDead[receipts[i].Ref]
		}
		switch {
		case !h.holds(&receipts[i], places[i]) || h.due <= now:
			lost = append(lost, i)
		case places[i].kind == placeDead:
			refs = append(refs, h.Ref)
		default:
			seqs = append(seqs, h.seq)
		}
	}
	due := now + sqlstore.Micros(lease)
	var steps []step
	for _, list := range chunks(seqs) {
		steps = append(steps, step{sql: w.sql.with("extend", ":seqs", numbers(list)), args: []any{due}})
	}
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(w.sql, "extend_dead", nil, due))
	}
	return lost, w.db.run(ctx, steps...)
}

// holdDead locks the rows of claims of dead letters.
func (w *work) holdDead(ctx context.Context, refs []redrive.Ref, now *int64) (map[redrive.Ref]*holding, error) {
	found := make(map[redrive.Ref]*holding, len(refs))
	var steps []step
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(w.sql, "held_dead", func(r row) error {
			h := new(holding)
			err := r.Scan(&h.Queue, &h.ID, &h.token, &h.nonce, &h.leased, &h.due, now)
			found[h.Ref] = h
			return err
		}))
	}
	return found, w.db.run(ctx, steps...)
}
