package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Plain implements sqlstore.Server. What needs nothing else is one statement, whatever the
// outcomes; the heads of keys take a transaction.
func (d dialect) Plain(st *driver.Settlement) bool {
	stays := st.Outcome == redrive.OutcomeRetry || st.Outcome == redrive.OutcomeRelease
	return stays || sqlstore.PlaceOf(st.Receipt.Position) != sqlstore.PlaceOrdered
}

// SettlePlain implements sqlstore.Server.
func (d dialect) SettlePlain(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	defer func(began time.Time) { d.base.Observe("settle", began, err) }(time.Now())
	err = again(ctx, func() error {
		conn, err := d.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		lost, _, err = settleRows(ctx, newWork(pgxDB{conn}, d.sql, &d.base.Masks, d.base.Texts), items, which)
		return err
	})
	return lost, err
}

// settleRows settles waiting messages. It returns those whose claim did not hold, and
// the keys that others left.
func settleRows(ctx context.Context, w *work, items []driver.Settlement, which []int) (lost []int, left []sqlstore.Leaving, err error) {
	n, q, sql := len(which), w.db, w.sql
	queues, ids, tokens, nonces := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)
	done := true
	for j, i := range which {
		st := &items[i]
		queues[j], ids[j] = st.Receipt.Queue, st.Receipt.ID
		tokens[j] = int64(st.Receipt.Token) //nolint:gosec // no token of ours is that large
		nonces[j] = nonceOf(st.Receipt.Position)
		done = done && st.Outcome == redrive.OutcomeDone && sqlstore.PlaceOf(st.Receipt.Position) != sqlstore.PlaceOrdered
	}
	if done {
		err = q.query(ctx, sql.Get("settle_done"), func(r row) error {
			var ord int
			err := r.Scan(&ord)
			lost = append(lost, which[max(ord, 1)-1])
			return err
		}, queues, ids, tokens, nonces)
		return lost, nil, err
	}
	outcomes, delays, reasons := make([]int64, n), make([]int64, n), make([]int64, n)
	failures, signatures, texts := make([]*string, n), make([]string, n), make([]*int64, n)
	for j, i := range which {
		st := &items[i]
		outcomes[j], delays[j], reasons[j] = int64(st.Outcome), sqlstore.Micros(st.After), int64(st.Reason)
		if st.Failure != nil {
			failures[j], signatures[j] = failureText(st.Failure), st.Failure.Signature
			if st.Outcome == redrive.OutcomeDead {
				texts[j] = w.Texts.Of(w.Masks, st.Receipt.Queue, st.Failure)
			}
		}
	}
	err = q.query(ctx, sql.Get("settle"), func(r row) error {
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
	}, queues, ids, tokens, nonces, outcomes, delays, reasons, failures, signatures, texts)
	return lost, left, err
}

func failureText(f *redrive.Failure) *string {
	if f == nil {
		return nil
	}
	text := string(driver.EncodeFailure(f))
	return &text
}

// There implements sqlstore.Server.
func (d dialect) There(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]bool, error) {
	queues, ids := names(refs)
	there := make(map[redrive.Ref]bool)
	err := d.one(ctx, "there", nil, func(r row) error {
		var ord int
		err := r.Scan(&ord)
		there[refs[max(ord, 1)-1]] = true
		return err
	}, queues, ids)
	return there, err
}

func names(refs []redrive.Ref) (queues, ids []string) {
	queues, ids = make([]string, len(refs)), make([]string, len(refs))
	for i := range refs {
		queues[i], ids[i] = refs[i].Queue, refs[i].ID
	}
	return queues, ids
}

// LockLines implements sqlstore.Rows.
func (w *work) LockLines(ctx context.Context, items []driver.Settlement, which []int) error {
	var refs []redrive.Ref
	for _, i := range which {
		if sqlstore.PlaceOf(items[i].Receipt.Position) != sqlstore.PlaceMessage {
			refs = append(refs, items[i].Receipt.Ref)
		}
	}
	return w.LockKeys(ctx, refs)
}

// SettleLive implements sqlstore.Rows.
func (w *work) SettleLive(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	lost, left, err := settleRows(ctx, w, items, which)
	if err != nil {
		return nil, err
	}
	w.Leavers = append(w.Leavers, left...)
	return lost, w.writeLines(ctx)
}

// Prolong implements sqlstore.Server. It is one statement and costs no sync.
func (d dialect) Prolong(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (lost []int, err error) {
	n := len(receipts)
	queues, ids, tokens, nonces, dead := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i := range receipts {
		r := &receipts[i]
		queues[i], ids[i], tokens[i] = r.Queue, r.ID, int64(r.Token) //nolint:gosec // no token of ours is that large
		nonces[i], dead[i] = nonceOf(r.Position), sqlstore.PlaceOf(r.Position) == sqlstore.PlaceDead
	}
	held := make([]bool, n)
	err = d.one(ctx, "extend", func() { clear(held) }, func(r row) error {
		var ord int
		err := r.Scan(&ord)
		held[max(ord, 1)-1] = true
		return err
	}, queues, ids, tokens, nonces, dead, int64(lease/time.Microsecond))
	for i := range held {
		if !held[i] {
			lost = append(lost, i)
		}
	}
	return lost, err
}
