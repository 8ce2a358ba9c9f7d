package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Prolong implements sqlstore.Server.
func (d dialect) Prolong(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (lost []int, err error) {
	err = d.inTx(ctx, "extend", func(tx db) (err error) {
		lost, err = newWork(tx, d.sql, &d.base.Masks).extend(ctx, receipts, lease)
		return err
	})
	return lost, err
}

// extend lets leases run anew, if they have not run out, and returns the others.
func (w *work) extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (lost []int, err error) {
	var seqs []int64
	var refs []redrive.Ref
	places := make([]place, len(receipts))
	for i := range receipts {
		places[i] = parsePlace(receipts[i].Position)
		if places[i].kind == sqlstore.PlaceDead {
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
		if places[i].kind == sqlstore.PlaceDead {
			h = foundDead[receipts[i].Ref]
		}
		switch {
		case !h.holds(&receipts[i], places[i]) || h.due <= now:
			lost = append(lost, i)
		case places[i].kind == sqlstore.PlaceDead:
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
