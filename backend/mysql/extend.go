package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Extend implements driver.Source.
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
