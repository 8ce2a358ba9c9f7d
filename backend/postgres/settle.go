package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Settle implements driver.Source. What needs nothing else is one statement, whatever
// the outcomes; emits, dead letters and the heads of keys take a transaction.
func (s *Store) Settle(ctx context.Context, items []driver.Settlement) []error {
	if err := s.ready(ctx); err != nil {
		return sqlstore.FillErrors(len(items), err)
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	errs := make([]error, len(items))
	var queues []string
	for _, round := range sqlstore.Rounds(items, errs) {
		plain, rest := split(items, round)
		if len(plain) > 0 {
			s.settlePlain(ctx, items, plain, errs)
		}
		if len(rest) > 0 {
			s.settleRest(ctx, items, rest, errs)
		}
	}
	for i := range items {
		if errs[i] == nil {
			queues = append(queues, touched(&items[i])...)
		}
	}
	s.changed(queues...)
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// touched returns the queues in which a settlement makes something claimable.
func touched(st *driver.Settlement) []string {
	var queues []string
	place, _ := parsePosition(st.Receipt.Position)
	if place != placeMessage || st.Outcome != redrive.OutcomeDone && st.Outcome != redrive.OutcomeDrop {
		queues = append(queues, st.Receipt.Queue)
	}
	for i := range st.Emit {
		queues = append(queues, st.Emit[i].Queue)
	}
	return queues
}

// split parts what one statement can settle from what needs a transaction.
func split(items []driver.Settlement, round []int) (plain, rest []int) {
	for _, i := range round {
		st := &items[i]
		place, _ := parsePosition(st.Receipt.Position)
		ends := st.Outcome != redrive.OutcomeRetry && st.Outcome != redrive.OutcomeRelease
		if len(st.Emit) > 0 || place == placeDead || place == placeOrdered && ends {
			rest = append(rest, i)
		} else {
			plain = append(plain, i)
		}
	}
	return plain, rest
}

// settlePlain settles waiting messages in one statement.
func (s *Store) settlePlain(ctx context.Context, items []driver.Settlement, which []int, errs []error) {
	var lost []int
	began := time.Now()
	err := again(ctx, func() error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		lost, _, err = settleRows(ctx, pgxDB{conn}, s.sql, items, which)
		return err
	})
	s.observe("settle", began, err)
	switch {
	case err == nil:
		s.explain(ctx, items, lost, errs)
	case len(which) > 1 && dataError(err): // one of them is at fault: each for itself
		for _, i := range which {
			s.settlePlain(ctx, items, []int{i}, errs)
		}
	default:
		for _, i := range which {
			errs[i] = fault("settle", err)
		}
	}
}

// settleRows settles waiting messages. It returns those whose claim did not hold, and
// the keys that others left.
func settleRows(ctx context.Context, q db, sql *statements, items []driver.Settlement, which []int) (lost []int, left []sqlstore.Leaving, err error) {
	n := len(which)
	queues, ids, tokens, nonces := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)
	done := true
	for j, i := range which {
		st := &items[i]
		queues[j], ids[j] = st.Receipt.Queue, st.Receipt.ID
		tokens[j] = int64(st.Receipt.Token) //nolint:gosec // no token of ours is that large
		place, nonce := parsePosition(st.Receipt.Position)
		nonces[j] = nonce
		done = done && st.Outcome == redrive.OutcomeDone && place != placeOrdered
	}
	if done {
		err = q.query(ctx, sql.get("settle_done"), func(r row) error {
			var ord int
			err := r.Scan(&ord)
			lost = append(lost, which[max(ord, 1)-1])
			return err
		}, queues, ids, tokens, nonces)
		return lost, nil, err
	}
	outcomes, delays, reasons := make([]int64, n), make([]int64, n), make([]int64, n)
	failures, signatures := make([]*string, n), make([]string, n)
	for j, i := range which {
		st := &items[i]
		outcomes[j], delays[j], reasons[j] = int64(st.Outcome), sqlstore.Micros(st.After), int64(st.Reason)
		if st.Failure != nil {
			failures[j], signatures[j] = failureText(st.Failure), st.Failure.Signature
		}
	}
	err = q.query(ctx, sql.get("settle"), func(r row) error {
		var ord int
		var held bool
		var key string
		if err := r.Scan(&ord, &held, &key); err != nil {
			return err
		}
		i := which[ord-1]
		if held {
			left = append(left, sqlstore.Leaving{LineKey: sqlstore.LineKey{Queue: items[i].Receipt.Queue, Key: key}, ID: items[i].Receipt.ID, Back: items[i].Outcome == redrive.OutcomeRepeat})
		} else {
			lost = append(lost, i)
		}
		return nil
	}, queues, ids, tokens, nonces, outcomes, delays, reasons, failures, signatures)
	return lost, left, err
}

func failureText(f *redrive.Failure) *string {
	if f == nil {
		return nil
	}
	text := string(driver.EncodeFailure(f))
	return &text
}

// explain finds out why claims did not hold: the message is gone, or it is another's.
func (s *Store) explain(ctx context.Context, items []driver.Settlement, lost []int, errs []error) {
	if len(lost) == 0 {
		return
	}
	refs := make([]redrive.Ref, len(lost))
	for j, i := range lost {
		refs[j] = items[i].Receipt.Ref
	}
	reasons := s.whyLost(ctx, refs)
	for j, i := range lost {
		errs[i] = reasons[j]
	}
}

// whyLost returns ErrLeaseLost for messages that are there, ErrNotFound for others.
func (s *Store) whyLost(ctx context.Context, refs []redrive.Ref) []error {
	queues, ids := names(refs)
	reasons := sqlstore.FillErrors(len(refs), redrive.ErrNotFound)
	err := s.one(ctx, "there", nil, func(r row) error {
		var ord int
		err := r.Scan(&ord)
		reasons[max(ord, 1)-1] = redrive.ErrLeaseLost
		return err
	}, queues, ids)
	if err != nil {
		return sqlstore.FillErrors(len(refs), redrive.ErrLeaseLost) // that much is certain
	}
	return reasons
}

func names(refs []redrive.Ref) (queues, ids []string) {
	queues, ids = make([]string, len(refs)), make([]string, len(refs))
	for i := range refs {
		queues[i], ids[i] = refs[i].Queue, refs[i].ID
	}
	return queues, ids
}

// settleRest settles what needs a transaction: all together, and if one of them is
// refused, each in a transaction of its own.
func (s *Store) settleRest(ctx context.Context, items []driver.Settlement, which []int, errs []error) {
	var lost []int
	err := s.inTx(ctx, "settle_tx", func(tx db) (err error) {
		lost, err = settleTx(ctx, tx, s.sql, items, which)
		return err
	})
	var refused *sqlstore.RefusedError
	switch {
	case err == nil:
		s.explain(ctx, items, lost, errs)
	case len(which) > 1 && (errors.As(err, &refused) || dataError(err)):
		for _, i := range which {
			s.settleRest(ctx, items, []int{i}, errs)
		}
	case errors.As(err, &refused):
		errs[which[0]] = refused.Err
	default:
		for _, i := range which {
			errs[i] = fault("settle", err)
		}
	}
}

// settleTx settles within a transaction and returns those whose claim did not hold. An
// emit that is refused is a RefusedError.
func settleTx(ctx context.Context, tx db, sql *statements, items []driver.Settlement, which []int) (lost []int, err error) {
	w := newWork(tx, sql)
	var live, dead []int
	var refs []redrive.Ref
	for _, i := range which {
		place, _ := parsePosition(items[i].Receipt.Position)
		if place == placeDead {
			dead = append(dead, i)
		} else {
			live = append(live, i)
		}
		if place != placeMessage {
			refs = append(refs, items[i].Receipt.Ref)
		}
	}
	if err := w.LockKeys(ctx, refs); err != nil {
		return nil, err
	}
	if len(live) > 0 {
		missed, left, err := settleRows(ctx, tx, sql, items, live)
		if err != nil {
			return nil, err
		}
		lost = missed
		if err := w.leave(ctx, left); err != nil {
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
func (w *work) emit(ctx context.Context, items []driver.Settlement, which, lost []int) error {
	gone := make(map[int]bool, len(lost))
	for _, i := range lost {
		gone[i] = true
	}
	var emits []*sqlstore.Item
	for _, i := range which {
		if gone[i] {
			continue
		}
		for j := range items[i].Emit {
			emits = append(emits, sqlstore.NewItem(&items[i].Emit[j], new(error)))
		}
	}
	if len(emits) == 0 {
		return nil
	}
	if err := store(ctx, w.db, w.sql, emits); err != nil {
		return err
	}
	for _, e := range emits {
		if err := *e.Result; err != nil && !errors.Is(err, redrive.ErrDuplicate) {
			return &sqlstore.RefusedError{Err: fmt.Errorf("emit: %w", err)}
		}
	}
	return nil
}

// Extend implements driver.Source. It is one statement and costs no sync.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if err := s.ready(ctx); err != nil {
		return sqlstore.FillErrors(len(receipts), err)
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	n := len(receipts)
	queues, ids, tokens, nonces, dead := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i := range receipts {
		r := &receipts[i]
		queues[i], ids[i], tokens[i] = r.Queue, r.ID, int64(r.Token) //nolint:gosec // no token of ours is that large
		place, nonce := parsePosition(r.Position)
		nonces[i], dead[i] = nonce, place == placeDead
	}
	held := make([]bool, n)
	err := s.one(ctx, "extend", func() { clear(held) }, func(r row) error {
		var ord int
		err := r.Scan(&ord)
		held[max(ord, 1)-1] = true
		return err
	}, queues, ids, tokens, nonces, dead, int64(max(lease, sqlstore.MinLease)/time.Microsecond))
	if err != nil {
		return sqlstore.FillErrors(n, fault("extend", err))
	}
	var lost []int
	var refs []redrive.Ref
	for i := range held {
		if !held[i] {
			lost = append(lost, i)
			refs = append(refs, receipts[i].Ref)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	errs := make([]error, n)
	for j, err := range s.whyLost(ctx, refs) {
		errs[lost[j]] = err
	}
	return errs
}
