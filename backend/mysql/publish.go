package mysql

import (
	"context"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// StoreItems implements sqlstore.Server: it stores the items of some calls in one transaction.
func (d dialect) StoreItems(ctx context.Context, items []*sqlstore.Item, _ bool) error {
	return d.inTx(ctx, "publish", func(tx db) error { return newWork(tx, d.sql, &d.base.Masks).store(ctx, items) })
}

// groupBytes bounds a transaction that calls share.
const groupBytes = 4 << 20

// store publishes items. Those that are refused get their results; what an id that is
// twice among them comes to is decided by the first.
func (w *work) store(ctx context.Context, items []*sqlstore.Item) error {
	var chosen, keyed []*sqlstore.Item
	var queues []string
	for _, it := range items {
		*it.Result, it.Turn, it.Class = nil, 0, int(redrive.LaneFresh)
		if it.Chosen {
			chosen = append(chosen, it)
		}
		if it.Chosen || it.Key != "" {
			queues = append(queues, it.Queue)
		}
	}
	if err := w.Know(ctx, queues...); err != nil {
		return err
	}
	if len(chosen) > 0 {
		if err := w.reserveAll(ctx, chosen); err != nil {
			return err
		}
	}
	accepted := items
	if len(chosen) > 0 {
		accepted = slices.DeleteFunc(slices.Clone(items), func(it *sqlstore.Item) bool { return *it.Result != nil })
	}
	for _, it := range accepted {
		if it.Key != "" && w.Settings[it.Queue].OrderByKey {
			keyed = append(keyed, it)
		}
	}
	if err := w.lineUp(ctx, keyed); err != nil {
		return err
	}
	return w.db.run(ctx, w.insertItems(accepted)...)
}

// reserveAll remembers the ids of items. Those that are taken get their results.
func (w *work) reserveAll(ctx context.Context, items []*sqlstore.Item) error {
	if err := w.Know(ctx, sqlstore.QueuesOf(items)...); err != nil {
		return err
	}
	first := make(map[redrive.Ref]*sqlstore.Item, len(items))
	holds := make(map[redrive.Ref]uint64) // hashes of those who had an id before
	var made []redrive.Ref
	var later []*sqlstore.Item
	for _, it := range items {
		ref := it.Ref()
		if first[ref] != nil {
			later = append(later, it)
			continue
		}
		first[ref] = it
		if it.Made {
			made = append(made, ref)
		}
	}
	if err := w.judgeMade(ctx, made, holds); err != nil {
		return err
	}
	free := make([]redrive.Ref, 0, len(first))
	for ref := range first {
		if _, taken := holds[ref]; !taken {
			free = append(free, ref)
		}
	}
	slices.SortFunc(free, compareRefs) // transactions that want the same ids wait for one another in one order
	nonce := newNonce()
	steps := w.reserveSteps(free, first, nonce)
	for _, l := range byQueue(free) {
		steps = append(steps, l.step(w.sql, "reserved", func(r row) error {
			var ref redrive.Ref
			var hash, owner int64
			if err := r.Scan(&ref.Queue, &ref.ID, &hash, &owner); err != nil {
				return err
			}
			if owner != nonce {
				holds[ref] = uint64(hash) //nolint:gosec // the bits are what counts
			}
			return nil
		}))
	}
	if err := w.db.run(ctx, steps...); err != nil {
		return err
	}
	for ref, it := range first {
		if hash, taken := holds[ref]; taken {
			*it.Result = sqlstore.SameOrNot(hash == it.Hash)
		} else {
			holds[ref] = it.Hash
		}
	}
	for _, it := range later {
		*it.Result = sqlstore.SameOrNot(holds[it.Ref()] == it.Hash)
	}
	return nil
}

// reserveSteps takes ids if they are free.
func (w *work) reserveSteps(refs []redrive.Ref, items map[redrive.Ref]*sqlstore.Item, nonce int64) []step {
	var steps []step
	for part := range slices.Chunk(refs, insertMost) {
		var args []any
		for _, ref := range part {
			it := items[ref]
			args = append(args, []byte(ref.Queue), []byte(ref.ID), int64(it.Hash), nonce, sqlstore.Micros(w.Settings[ref.Queue].Remember)) //nolint:gosec // the bits are what counts
		}
		row := "(?,?,?,?,?," + w.sql.clock + ",NULL,0,0),"
		steps = append(steps, step{sql: w.sql.with("reserve", ":rows", strings.TrimSuffix(strings.Repeat(row, len(part)), ",")), args: args})
	}
	return steps
}

// judgeMade looks for messages under ids that a store may have made, which are not
// remembered: the message itself tells whether it is the same again.
func (w *work) judgeMade(ctx context.Context, made []redrive.Ref, holds map[redrive.Ref]uint64) error {
	var steps []step
	for _, l := range byQueue(made) {
		for _, name := range []string{"made_messages", "made_dead"} {
			steps = append(steps, l.step(w.sql, name, func(r row) error {
				var m redrive.Message
				if err := r.Scan(&m.Queue, &m.ID, &m.Kind, &m.Key, &m.Body); err != nil {
					return err
				}
				holds[m.Ref()] = w.Masks.BodyHash(&m)
				return nil
			}))
		}
	}
	return w.db.run(ctx, steps...)
}

// lineUp gives items their turns in the order of their keys. Only the head of a key is
// not blocked.
func (w *work) lineUp(ctx context.Context, items []*sqlstore.Item) error {
	lines := make(map[sqlstore.LineKey][]*sqlstore.Item)
	var keys []sqlstore.LineKey
	for _, it := range items {
		k := sqlstore.LineKey{Queue: it.Queue, Key: it.Key}
		if lines[k] == nil {
			keys = append(keys, k)
		}
		lines[k] = append(lines[k], it)
	}
	slices.SortFunc(keys, sqlstore.LineKey.Compare)
	last, members := make([]int64, len(keys)), make([]int64, len(keys))
	var steps []step
	for i, k := range keys {
		steps = append(steps, enterKey(w.sql, k, len(lines[k]), &last[i], &members[i])...)
	}
	if err := w.db.run(ctx, steps...); err != nil {
		return err
	}
	for i, k := range keys {
		line := lines[k]
		for j, it := range line {
			it.Turn = last[i] - int64(len(line)-1-j)
			if j > 0 || members[i] > int64(len(line)) {
				it.Class = sqlstore.ClassBlocked
			}
		}
	}
	return nil
}

// bulkRows is the number of rows of the INSERT that is prepared. To read its text takes
// the server as long as to carry it out, so it is worth two round trips more.
const bulkRows = 100

// insertItems writes items as waiting, and the ledger of that.
func (w *work) insertItems(items []*sqlstore.Item) []step {
	var steps []step
	for rest := items; len(rest) > 0; {
		if isBulk(rest) {
			steps = append(steps, w.bulkStep(rest[:bulkRows]))
			rest = rest[bulkRows:]
			continue
		}
		n, size, plain := 0, 0, rest[0].Plain()
		for n < len(rest) && n < insertMost && rest[n].Plain() == plain && (n == 0 || size+rest[n].Size() < insertBytes) {
			size += rest[n].Size()
			n++
		}
		steps = append(steps, w.insertStep(rest[:n], plain))
		rest = rest[n:]
	}
	return append(steps, w.publishedSteps(items)...)
}

// isBulk reports that the first items are due at once and carry nothing out of the
// ordinary.
func isBulk(items []*sqlstore.Item) bool {
	if len(items) < bulkRows {
		return false
	}
	size := 0
	for _, it := range items[:bulkRows] {
		size += it.Size()
		if !isNow(it) || !it.Plain() || size > insertBytes {
			return false
		}
	}
	return true
}

// isNow reports an item that is due at once.
func isNow(it *sqlstore.Item) bool { return it.Delay == 0 && it.DeliverAt.IsZero() }

func (w *work) bulkStep(items []*sqlstore.Item) step {
	args := make([]any, 0, 7*bulkRows)
	for _, it := range items {
		args = append(args, it.Queue, it.ID, it.Kind, encodeHeaders(it.Headers), body(it.Body), it.Size(), it.Sum)
	}
	return step{sql: w.sql.Get("publish_bulk"), args: args, prepared: true}
}

func (w *work) insertStep(items []*sqlstore.Item, plain bool) step {
	var rows strings.Builder
	var args []any
	for i, it := range items {
		if i > 0 {
			rows.WriteByte(',')
		}
		args = append(args, []byte(it.Queue), []byte(it.ID), []byte(it.Kind))
		now := plain && isNow(it)
		if !plain {
			args = append(args, []byte(it.Key))
		}
		args = append(args, encodeHeaders(it.Headers), body(it.Body))
		if !now {
			args = append(args, sqlstore.Micros(it.Delay), deliverAt(it))
		}
		switch {
		case now:
			rows.WriteString(w.sql.Get("publish_now_row"))
			args = append(args, it.Size(), it.Sum)
		case plain:
			rows.WriteString(w.sql.Get("publish_plain_row"))
			args = append(args, it.Size(), it.Sum, sqlstore.Micros(it.Delay), deliverAt(it))
		default:
			rows.WriteString(w.sql.Get("publish_row"))
			args = append(args, microsOrNull(it.ExpiresAt), []byte(it.ReplyTo), it.Generation, it.Redrives, []byte(it.Plan), []byte(it.Origin),
				[]byte(it.EditedFrom), it.Size(), it.Sum, sqlstore.Micros(it.Delay), deliverAt(it), it.Chosen, it.Turn, it.Class)
		}
	}
	name := "publish"
	if plain {
		name = "publish_plain"
	}
	return step{sql: w.sql.with(name, ":rows", rows.String()), args: args}
}

func deliverAt(it *sqlstore.Item) int64 {
	if it.DeliverAt.IsZero() {
		return 0
	}
	return micros(it.DeliverAt)
}

// publishedSteps writes the ledger of items.
func (w *work) publishedSteps(items []*sqlstore.Item) []step {
	type sum struct{ n, bytes int }
	sums := make(map[string]*sum, 1)
	for _, it := range items {
		q := sums[it.Queue]
		if q == nil {
			q = new(sum)
			sums[it.Queue] = q
		}
		q.n++
		q.bytes += it.Size()
	}
	steps := make([]step, 0, len(sums))
	for queue, q := range sums {
		steps = append(steps, step{sql: w.sql.Get("published"), args: []any{[]byte(queue), q.n, q.n, q.bytes}})
	}
	return steps
}
