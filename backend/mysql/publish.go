package mysql

import (
	"context"
	"slices"
	"strings"

	"github.com/redrive/redrive"
)

// Publish implements redrive.Sink. Calls that come together share a transaction. ctx
// withdraws the call until that is begun; after it the outcome is awaited for at most
// the store's timeout.
func (s *Store) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if err := s.ready(ctx); err != nil {
		return fillErrors(len(msgs), err)
	}
	errs := make([]error, len(msgs))
	items := newItems(msgs, errs)
	if len(items) == 0 {
		return orNil(errs)
	}
	if !s.gatherer.publish(ctx, items) {
		for _, it := range items {
			*it.result = ctx.Err()
		}
		return errs
	}
	for _, it := range items {
		it.from.ID = it.ID // also if the outcome is unknown: repeated under this id, it is recognised
	}
	return orNil(errs)
}

// orNil is a result in which every item succeeded as nil.
func orNil(errs []error) []error {
	if redrive.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// item is one message on its way into the database.
type item struct {
	redrive.Message
	from   *redrive.Message // the caller's
	chosen bool             // the caller chose the id
	made   bool             // it looks like one that a store makes
	hash   uint64           // of a chosen one
	result *error
	turn   int64 // in the order of its key
	class  int
}

func newItem(m *redrive.Message, result *error) *item {
	it := &item{Message: *m, from: m, result: result}
	if m.ID == "" {
		it.ID = redrive.NewID()
		return it
	}
	it.chosen, it.made, it.hash = true, isMade(m.ID), redrive.BodyHash(m)
	return it
}

// newItems makes items of valid messages; the others' results tell why they are not.
func newItems(msgs []redrive.Message, errs []error) []*item {
	items := make([]*item, 0, len(msgs))
	for i := range msgs {
		if errs[i] = msgs[i].Validate(); errs[i] == nil {
			items = append(items, newItem(&msgs[i], &errs[i]))
		}
	}
	return items
}

// isMade reports whether an id has the form of those that a store makes.
func isMade(id string) bool { return len(id) == 36 && id[8] == '-' && id[14] == '7' && id[23] == '-' }

// plain reports a message that nothing can be in the way of, and that carries nothing
// out of the ordinary.
func (it *item) plain() bool {
	return !it.chosen && it.Key == "" && it.ReplyTo == "" && it.ExpiresAt.IsZero() && it.Lineage == (redrive.Lineage{})
}

// store publishes items. Those that are refused get their results; what an id that is
// twice among them comes to is decided by the first.
func (w *work) store(ctx context.Context, items []*item) error {
	var chosen, keyed []*item
	var queues []string
	for _, it := range items {
		*it.result, it.turn, it.class = nil, 0, int(redrive.LaneFresh)
		if it.chosen {
			chosen = append(chosen, it)
		}
		if it.chosen || it.Key != "" {
			queues = append(queues, it.Queue)
		}
	}
	if err := w.know(ctx, queues...); err != nil {
		return err
	}
	if len(chosen) > 0 {
		if err := w.reserveAll(ctx, chosen); err != nil {
			return err
		}
	}
	accepted := items
	if len(chosen) > 0 {
		accepted = slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return *it.result != nil })
	}
	for _, it := range accepted {
		if it.Key != "" && w.settings[it.Queue].OrderByKey {
			keyed = append(keyed, it)
		}
	}
	if err := w.lineUp(ctx, keyed); err != nil {
		return err
	}
	return w.db.run(ctx, w.insertItems(accepted)...)
}

// reserveAll remembers the ids of items. Those that are taken get their results.
func (w *work) reserveAll(ctx context.Context, items []*item) error {
	if err := w.know(ctx, queuesOf(items)...); err != nil {
		return err
	}
	first := make(map[redrive.Ref]*item, len(items))
	holds := make(map[redrive.Ref]uint64) // hashes of those who had an id before
	var made []redrive.Ref
	var later []*item
	for _, it := range items {
		ref := it.Ref()
		if first[ref] != nil {
			later = append(later, it)
			continue
		}
		first[ref] = it
		if it.made {
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
			*it.result = sameOrNot(hash == it.hash)
		} else {
			holds[ref] = it.hash
		}
	}
	for _, it := range later {
		*it.result = sameOrNot(holds[it.Ref()] == it.hash)
	}
	return nil
}

// reserveSteps takes ids if they are free.
func (w *work) reserveSteps(refs []redrive.Ref, items map[redrive.Ref]*item, nonce int64) []step {
	var steps []step
	for part := range slices.Chunk(refs, insertMost) {
		var args []any
		for _, ref := range part {
			it := items[ref]
			args = append(args, []byte(ref.Queue), []byte(ref.ID), int64(it.hash), nonce, span(w.settings[ref.Queue].Remember)) //nolint:gosec // the bits are what counts
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
				holds[m.Ref()] = redrive.BodyHash(&m)
				return nil
			}))
		}
	}
	return w.db.run(ctx, steps...)
}

func sameOrNot(same bool) error {
	if same {
		return redrive.ErrDuplicate
	}
	return redrive.ErrConflict
}

// lineUp gives items their turns in the order of their keys. Only the head of a key is
// not blocked.
func (w *work) lineUp(ctx context.Context, items []*item) error {
	lines := make(map[lineKey][]*item)
	var keys []lineKey
	for _, it := range items {
		k := lineKey{it.Queue, it.Key}
		if lines[k] == nil {
			keys = append(keys, k)
		}
		lines[k] = append(lines[k], it)
	}
	slices.SortFunc(keys, lineKey.compare)
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
			it.turn = last[i] - int64(len(line)-1-j)
			if j > 0 || members[i] > int64(len(line)) {
				it.class = classBlocked
			}
		}
	}
	return nil
}

// insertItems writes items as waiting, and the books of that.
func (w *work) insertItems(items []*item) []step {
	var steps []step
	for len(items) > 0 {
		n, size, plain := 0, 0, items[0].plain()
		for n < len(items) && n < insertMost && items[n].plain() == plain && (n == 0 || size+items[n].Size() < insertBytes) {
			size += items[n].Size()
			n++
		}
		steps = append(steps, w.insertStep(items[:n], plain))
		steps = append(steps, w.publishedSteps(items[:n])...)
		items = items[n:]
	}
	return steps
}

func (w *work) insertStep(items []*item, plain bool) step {
	var rows strings.Builder
	var args []any
	for i, it := range items {
		if i > 0 {
			rows.WriteByte(',')
		}
		args = append(args, []byte(it.Queue), []byte(it.ID), []byte(it.Kind))
		now := plain && it.Delay == 0 && it.DeliverAt.IsZero()
		if !plain {
			args = append(args, []byte(it.Key))
		}
		args = append(args, encodeHeaders(it.Headers), body(it.Body))
		if !now {
			args = append(args, span(it.Delay), deliverAt(it))
		}
		switch {
		case now:
			rows.WriteString(w.sql.get("publish_now_row"))
			args = append(args, it.Size())
		case plain:
			rows.WriteString(w.sql.get("publish_plain_row"))
			args = append(args, it.Size())
		default:
			rows.WriteString(w.sql.get("publish_row"))
			args = append(args, microsOrNull(it.ExpiresAt), []byte(it.ReplyTo), it.Generation, it.Redrives, []byte(it.Plan), []byte(it.Origin),
				[]byte(it.EditedFrom), it.Size(), it.chosen, it.turn, it.class)
		}
	}
	name := "publish"
	if plain {
		name = "publish_plain"
	}
	return step{sql: w.sql.with(name, ":rows", rows.String()), args: args}
}

func deliverAt(it *item) int64 {
	if it.DeliverAt.IsZero() {
		return 0
	}
	return micros(it.DeliverAt)
}

// publishedSteps writes the books of items.
func (w *work) publishedSteps(items []*item) []step {
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
		steps = append(steps, step{sql: w.sql.get("published"), args: []any{[]byte(queue), q.n, q.n, q.bytes}})
	}
	return steps
}

// queuesOf returns the queues that items went to, each once.
func queuesOf(items []*item) []string {
	var names []string
	seen := make(map[string]bool, 1)
	for _, it := range items {
		if *it.result == nil && !seen[it.Queue] {
			seen[it.Queue] = true
			names = append(names, it.Queue)
		}
	}
	return names
}
