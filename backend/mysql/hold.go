package mysql

import (
	"context"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

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
