package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// work is what one transaction changes beside the hot path.
type work struct {
	sqlstore.Work
	db  db
	sql *statements
}

func newWork(q db, sql *statements, masks *driver.Masks, texts *sqlstore.Texts) *work {
	w := &work{db: q, sql: sql}
	w.Rows, w.Masks, w.Texts = w, masks, texts
	return w
}

// ReadClock implements sqlstore.Rows.
func (w *work) ReadClock(ctx context.Context) (now time.Time, err error) {
	err = w.db.query(ctx, w.sql.Get("now"), func(r row) error { return r.Scan(&now) })
	return now.UTC(), err
}

// LockKeys implements sqlstore.Rows.
func (w *work) LockKeys(ctx context.Context, refs []redrive.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	queues, ids := names(refs)
	return w.db.query(ctx, w.sql.Get("keys_of"), func(row) error { return nil }, queues, ids)
}

// LockRows implements sqlstore.Rows.
func (w *work) LockRows(ctx context.Context, refs []redrive.Ref, found func(*sqlstore.Message)) error {
	queues, ids := names(refs)
	for _, name := range []string{"lock_messages", "lock_dead"} {
		err := w.db.query(ctx, w.sql.Get(name), func(r row) error {
			m, err := scanMessage(r)
			if err == nil {
				found(m)
			}
			return err
		}, queues, ids)
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadSettings implements sqlstore.Rows.
func (w *work) ReadSettings(ctx context.Context, queues []string, into map[string]driver.QueueSettings) error {
	return w.db.query(ctx, w.sql.Get("settings"), func(r row) error {
		var name string
		var s driver.QueueSettings
		var remember int64
		err := r.Scan(&name, &s.OrderByKey, &s.DeadRelease, &remember)
		s.Remember = time.Duration(remember) * time.Microsecond
		into[name] = s
		return err
	}, queues)
}

// EnterKey implements sqlstore.Rows.
func (w *work) EnterKey(ctx context.Context, m *sqlstore.Message) error {
	return w.db.query(ctx, w.sql.Get("enter_key"), func(r row) error {
		var members int64
		return r.Scan(&m.Turn, &members)
	}, m.Queue, m.Key)
}

// Nonce implements sqlstore.Rows.
func (w *work) Nonce(position string) int64 {
	return nonceOf(position)
}

// Number implements sqlstore.Rows: rows are numbered as they are written.
func (w *work) Number(context.Context, *sqlstore.Message) error { return nil }

// Relax implements sqlstore.Rows, only until the end of the transaction: no state of the
// session.
func (w *work) Relax(ctx context.Context) error {
	return w.db.query(ctx, "SELECT set_config('synchronous_commit', 'off', true)", func(row) error { return nil })
}

// Publish implements sqlstore.Rows.
func (w *work) Publish(ctx context.Context, items []*sqlstore.Item) error {
	return store(ctx, w.db, w.sql, items)
}

// Range implements sqlstore.Rows.
func (w *work) Range(ctx context.Context, g *driver.Range) (refs []redrive.Ref, err error) {
	err = w.db.query(ctx, w.sql.Get("range"), func(r row) error {
		ref := redrive.Ref{Queue: g.Queue}
		err := r.Scan(&ref.ID)
		refs = append(refs, ref)
		return err
	}, g.Queue, g.Key, g.UpTo, g.Single)
	return refs, err
}

// Fit implements sqlstore.Rows: it makes text of names that are none.
func (w *work) Fit(m *sqlstore.Message) {
	m.Fit(storable)
	m.Origin = storable(m.Origin)
}

// Reserve implements sqlstore.Rows.
func (w *work) Reserve(ctx context.Context, it *sqlstore.Item) error {
	free := false
	err := w.db.query(ctx, w.sql.Get("reserve"), func(r row) error {
		free = true
		var ord int
		return r.Scan(&ord)
	}, []string{it.Queue}, []string{it.ID}, []int64{int64(it.Hash)}, []bool{it.Made}) //nolint:gosec // the bits are what counts
	if err != nil || free {
		return err
	}
	return judge(ctx, w.db, w.sql, []*sqlstore.Item{it})
}

// ForgetRemoved implements sqlstore.Rows.
func (w *work) ForgetRemoved(ctx context.Context, m *sqlstore.Message) error {
	_, err := w.db.exec(ctx, w.sql.Get("forget_removed"), m.Queue, m.ID)
	return err
}

// Flush implements sqlstore.Rows: it writes everything.
func (w *work) Flush(ctx context.Context) error {
	for _, step := range []func(context.Context) error{w.writeRows, w.writeMemories, w.PublishResults, w.writeLines, w.writeLedger, w.writeCauses} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeRows(ctx context.Context) error {
	run := func(name string, n int, args ...any) error {
		if n == 0 {
			return nil
		}
		_, err := w.db.exec(ctx, w.sql.Get(name), args...)
		return err
	}
	waiting := make([]redrive.Ref, len(w.Gone))
	for i := range w.Gone {
		waiting[i] = w.Gone[i].Ref
	}
	for name, refs := range map[string][]redrive.Ref{"delete_messages": waiting, "delete_dead": w.GoneDead} {
		queues, ids := names(refs)
		if err := run(name, len(refs), queues, ids); err != nil {
			return err
		}
	}
	if err := run("insert_messages", len(w.Insert), insertMessages(w.Insert)...); err != nil {
		return err
	}
	return run("insert_dead", len(w.Bury), insertDead(w.Bury)...)
}

func (w *work) writeMemories(ctx context.Context) error {
	n := len(w.Memories)
	if n == 0 {
		return nil
	}
	queues, ids, outcomes, reasons, ended := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	slices.SortStableFunc(w.Memories, func(a, b sqlstore.Memory) int {
		return strings.Compare(a.Queue+"/"+a.ID, b.Queue+"/"+b.ID)
	})
	for i, m := range w.Memories {
		queues[i], ids[i], outcomes[i], reasons[i], ended[i] = m.Queue, m.ID, int64(m.Outcome), int64(m.Reason), m.Ended
	}
	_, err := w.db.exec(ctx, w.sql.Get("remember"), queues, ids, outcomes, reasons, ended)
	return err
}

// writeLines takes leavers out of their keys and frees the heads.
func (w *work) writeLines(ctx context.Context) error {
	leave := make(map[sqlstore.LineKey]int64)
	for _, l := range w.Leavers {
		k := l.LineKey
		if !l.Back {
			leave[k]++
		} else if _, err := w.db.exec(ctx, w.sql.Get("requeue_turn"), l.Queue, l.ID, l.Key); err != nil {
			return err
		}
		w.Heads = append(w.Heads, k)
	}
	if len(leave) > 0 {
		var queues, keys []string
		var counts []int64
		for k, n := range leave {
			queues, keys, counts = append(queues, k.Queue), append(keys, k.Key), append(counts, n)
		}
		if _, err := w.db.exec(ctx, w.sql.Get("leave_keys"), queues, keys, counts); err != nil {
			return err
		}
	}
	if len(w.Heads) == 0 {
		return nil
	}
	slices.SortFunc(w.Heads, sqlstore.LineKey.Compare)
	w.Heads = slices.Compact(w.Heads)
	var queues, keys []string
	for _, k := range w.Heads {
		queues, keys = append(queues, k.Queue), append(keys, k.Key)
	}
	_, err := w.db.exec(ctx, w.sql.Get("free_heads"), queues, keys)
	w.Leavers, w.Heads = nil, nil
	return err
}

func (w *work) writeLedger(ctx context.Context) error {
	for queue, b := range w.Ledger {
		if *b == (sqlstore.Ledger{}) {
			continue
		}
		if _, err := w.db.exec(ctx, w.sql.Get("write_ledger"), b.Args(queue)...); err != nil {
			return fmt.Errorf("ledger of %s: %w", queue, err)
		}
	}
	return nil
}
