package mysql

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// work is what one transaction changes: rows are read under locks, judged or changed,
// and written together.
type work struct {
	sqlstore.Work
	db  db
	sql *statements
}

func newWork(tx db, sql *statements, masks *driver.Masks) *work {
	w := &work{db: tx, sql: sql}
	w.Rows, w.Masks = w, masks
	return w
}

// ReadClock implements sqlstore.Rows.
func (w *work) ReadClock(ctx context.Context) (time.Time, error) {
	var us int64
	err := w.db.run(ctx, step{sql: w.sql.Get("now"), scan: scanInto(&us)})
	return timeAt(us), err
}

// LockKeys implements sqlstore.Rows.
func (w *work) LockKeys(ctx context.Context, refs []redrive.Ref) error {
	var keys []sqlstore.LineKey
	var steps []step
	for _, l := range byQueue(refs) {
		st := l.step(w.sql, "keys_of", func(r row) error {
			var k sqlstore.LineKey
			err := r.Scan(&k.Queue, &k.Key)
			keys = append(keys, k)
			return err
		})
		st.args = append(st.args, st.args...)
		steps = append(steps, st)
	}
	if err := w.db.run(ctx, steps...); err != nil {
		return err
	}
	return w.lockKeys(ctx, keys)
}

// lockKeys locks keys in their order.
func (w *work) lockKeys(ctx context.Context, keys []sqlstore.LineKey) error {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, sqlstore.LineKey.Compare)
	keys = slices.Compact(keys)
	refs := make([]redrive.Ref, len(keys))
	for i, k := range keys {
		refs[i] = redrive.Ref{Queue: k.Queue, ID: k.Key}
	}
	var steps []step
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(w.sql, "lock_keys", func(r row) error {
			var key []byte
			return r.Scan(&key)
		}))
	}
	return w.db.run(ctx, steps...)
}

// LockRows implements sqlstore.Rows.
func (w *work) LockRows(ctx context.Context, refs []redrive.Ref, found func(*sqlstore.Message)) error {
	for _, name := range []string{"lock_messages", "lock_dead"} {
		for _, l := range byQueue(refs) {
			err := w.db.run(ctx, l.step(w.sql, name, func(r row) error {
				m, err := scanMessage(r)
				if err == nil {
					found(m)
				}
				return err
			}))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadSettings implements sqlstore.Rows.
func (w *work) ReadSettings(ctx context.Context, queues []string, into map[string]driver.QueueSettings) error {
	l := idList{ids: queues}
	return w.db.run(ctx, step{sql: w.sql.with("settings", ":ids", places(len(queues))), args: l.args()[1:], scan: func(r row) error {
		var name string
		var s driver.QueueSettings
		var remember int64
		err := r.Scan(&name, &s.OrderByKey, &s.DeadRelease, &remember)
		s.Remember = time.Duration(remember) * time.Microsecond
		into[name] = s
		return err
	}})
}

// EnterKey implements sqlstore.Rows.
func (w *work) EnterKey(ctx context.Context, m *sqlstore.Message) error {
	members := int64(0)
	return w.db.run(ctx, enterKey(w.sql, sqlstore.LineKey{Queue: m.Queue, Key: m.Key}, 1, &m.Turn, &members)...)
}

// Nonce implements sqlstore.Rows.
func (w *work) Nonce(position string) int64 { return parsePlace(position).nonce }

// Relax implements sqlstore.Rows: no session may ask for less than the server's own.
func (w *work) Relax(context.Context) error { return nil }

// Publish implements sqlstore.Rows.
func (w *work) Publish(ctx context.Context, items []*sqlstore.Item) error { return w.store(ctx, items) }

// Fit implements sqlstore.Rows: it cuts names that are too long.
func (w *work) Fit(m *sqlstore.Message) {
	m.Fit(func(name string) string { return name[:min(len(name), textMax)] })
}

// Reserve implements sqlstore.Rows.
func (w *work) Reserve(ctx context.Context, it *sqlstore.Item) error {
	return w.reserveAll(ctx, []*sqlstore.Item{it})
}

// Range implements sqlstore.Rows.
func (w *work) Range(ctx context.Context, g *driver.Range) ([]redrive.Ref, error) {
	queue, k := []byte(g.Queue), []byte(g.Key)
	var last int64
	err := w.db.run(ctx, step{sql: w.sql.Get("range_end"), args: []any{queue, []byte(g.UpTo), k, queue, []byte(g.UpTo), k}, scan: scanInto(&last)})
	if err != nil || last == 0 {
		return nil, err
	}
	first := int64(0)
	if g.Single {
		first = last
	}
	var refs []redrive.Ref
	err = w.db.run(ctx, step{sql: w.sql.Get("range"), args: []any{queue, k, first, last}, scan: func(r row) error {
		ref := redrive.Ref{Queue: g.Queue}
		err := r.Scan(&ref.ID)
		refs = append(refs, ref)
		return err
	}})
	return refs, err
}

// enterKey lines up n messages in a key, and tells the last one's turn and how many
// there are then.
func enterKey(sql *statements, k sqlstore.LineKey, n int, last, members *int64) []step {
	queue, key := []byte(k.Queue), []byte(k.Key)
	return []step{
		{sql: sql.Get("enter_key"), args: []any{queue, key, n, n}},
		{sql: sql.Get("entered_key"), args: []any{queue, key}, scan: scanInto(last, members)},
	}
}

// ForgetRemoved implements sqlstore.Rows.
func (w *work) ForgetRemoved(ctx context.Context, m *sqlstore.Message) error {
	return w.db.run(ctx, step{sql: w.sql.Get("forget_removed"), args: []any{[]byte(m.Queue), []byte(m.ID)}})
}

// Number implements sqlstore.Rows: a dead letter needs one from the table of messages.
func (w *work) Number(ctx context.Context, m *sqlstore.Message) error {
	id := []byte(redrive.NewID())
	err := w.db.run(ctx, step{sql: w.sql.Get("take_number"), args: []any{id}},
		step{sql: w.sql.Get("taken_number"), args: []any{id}, scan: scanInto(&m.Seq)})
	if err != nil {
		return err
	}
	w.Gone = append(w.Gone, sqlstore.Gone{Ref: m.Ref(), Seq: m.Seq})
	return nil
}

// Flush implements sqlstore.Rows: it writes everything.
func (w *work) Flush(ctx context.Context) error {
	for _, write := range []func(context.Context) error{w.writeRows, w.writeMemories, w.PublishResults, w.writeLines, w.writeLedger, w.writeCauses} {
		if err := write(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeRows(ctx context.Context) error {
	var steps []step
	seqs := make([]int64, len(w.Gone))
	for i := range w.Gone {
		seqs[i] = w.Gone[i].Seq
	}
	for _, seqs := range chunks(seqs) {
		steps = append(steps, step{sql: w.sql.with("delete_messages", ":seqs", numbers(seqs))})
	}
	for _, ref := range w.GoneDead {
		steps = append(steps, step{sql: w.sql.Get("delete_dead"), args: []any{[]byte(ref.Queue), []byte(ref.ID)}})
	}
	steps = append(steps, insertMessages(w.sql, w.Insert)...)
	steps = append(steps, insertDead(w.sql, w.Bury)...)
	w.Gone, w.GoneDead, w.Insert, w.Bury = nil, nil, nil, nil
	return w.db.run(ctx, steps...)
}

func (w *work) writeMemories(ctx context.Context) error {
	if len(w.Memories) == 0 {
		return nil
	}
	fates := make(map[sqlstore.Fate][]redrive.Ref)
	last := make(map[redrive.Ref]int)
	for i, m := range w.Memories {
		last[m.Ref] = i
	}
	var order []sqlstore.Fate // of first appearance, so that runs are alike
	for i, m := range w.Memories {
		if last[m.Ref] != i {
			continue
		}
		if _, ok := fates[m.Fate]; !ok {
			order = append(order, m.Fate)
		}
		fates[m.Fate] = append(fates[m.Fate], m.Ref)
	}
	var steps []step
	for _, f := range order {
		refs := fates[f]
		slices.SortFunc(refs, compareRefs)
		for _, l := range byQueue(refs) {
			steps = append(steps, l.step(w.sql, "remember", nil, int(f.Outcome), int(f.Reason), f.Ended))
		}
	}
	w.Memories = nil
	return w.db.run(ctx, steps...)
}

func compareRefs(a, b redrive.Ref) int {
	if c := strings.Compare(a.Queue, b.Queue); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// writeLines takes leavers out of their keys and frees the heads.
func (w *work) writeLines(ctx context.Context) error {
	if len(w.Leavers) == 0 && len(w.Heads) == 0 {
		return nil
	}
	var steps []step
	leave := make(map[sqlstore.LineKey]int)
	for _, l := range w.Leavers {
		queue, key := []byte(l.Queue), []byte(l.Key)
		if l.Back {
			steps = append(steps, step{sql: w.sql.Get("requeue_key"), args: []any{queue, key}},
				step{sql: w.sql.Get("requeue_turn"), args: []any{queue, key, queue, []byte(l.ID)}})
		} else {
			leave[l.LineKey]++
		}
		w.Heads = append(w.Heads, l.LineKey)
	}
	slices.SortFunc(w.Heads, sqlstore.LineKey.Compare)
	w.Heads = slices.Compact(w.Heads)
	for _, k := range w.Heads {
		if n := leave[k]; n > 0 {
			steps = append(steps, step{sql: w.sql.Get("leave_key"), args: []any{n, []byte(k.Queue), []byte(k.Key)}},
				step{sql: w.sql.Get("drop_key"), args: []any{[]byte(k.Queue), []byte(k.Key)}})
		}
	}
	turns := make([]int64, len(w.Heads))
	for i, k := range w.Heads {
		least := func(r row) error {
			var turn int64
			err := r.Scan(&turn)
			if turns[i] == 0 || turn < turns[i] {
				turns[i] = turn
			}
			return err
		}
		args := []any{[]byte(k.Queue), []byte(k.Key)}
		steps = append(steps, step{sql: w.sql.Get("head_waiting"), args: args, scan: least},
			step{sql: w.sql.Get("head_dead"), args: args, scan: least})
	}
	if err := w.db.run(ctx, steps...); err != nil {
		return err
	}
	steps = steps[:0]
	for i, k := range w.Heads {
		if turns[i] > 0 {
			steps = append(steps, step{sql: w.sql.Get("free_head"), args: []any{[]byte(k.Queue), []byte(k.Key), turns[i]}})
		}
	}
	w.Leavers, w.Heads = nil, nil
	return w.db.run(ctx, steps...)
}

func (w *work) writeLedger(ctx context.Context) error {
	var steps []step
	for queue, b := range w.Ledger {
		if *b == (sqlstore.Ledger{}) {
			continue
		}
		steps = append(steps, step{sql: w.sql.Get("write_ledger"), args: b.Args([]byte(queue))})
	}
	w.Ledger = nil
	return w.db.run(ctx, steps...)
}
