package mysql

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Plain implements sqlstore.Server.
func (dialect) Plain(*driver.Settlement) bool { return true }

// SettlePlain implements sqlstore.Server.
func (d dialect) SettlePlain(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	err = d.inTx(ctx, "settle", func(tx db) (err error) {
		lost, err = newWork(tx, d.sql, &d.base.Masks).Settle(ctx, items, which)
		return err
	})
	return lost, err
}

// LockLines implements sqlstore.Rows.
func (w *work) LockLines(ctx context.Context, items []driver.Settlement, which []int) error {
	var keys []sqlstore.LineKey
	for _, i := range which {
		if p := parsePlace(items[i].Receipt.Position); p.key != "" {
			keys = append(keys, sqlstore.LineKey{Queue: items[i].Receipt.Queue, Key: p.key})
		}
	}
	return w.lockKeys(ctx, keys)
}

// SettleLive implements sqlstore.Rows.
func (w *work) SettleLive(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
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
	if err := w.db.run(ctx, b.steps()...); err != nil {
		return nil, err
	}
	return lost, w.Flush(ctx)
}

// There implements sqlstore.Server.
func (d dialect) There(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]bool, error) {
	there := make(map[redrive.Ref]bool)
	var steps []step
	for _, l := range byQueue(refs) {
		st := l.step(d.sql, "there", func(r row) error {
			var ref redrive.Ref
			err := r.Scan(&ref.Queue, &ref.ID)
			there[ref] = true
			return err
		})
		st.args = append(st.args, st.args...)
		steps = append(steps, st)
	}
	return there, d.read(ctx, "there", nil, steps...)
}
