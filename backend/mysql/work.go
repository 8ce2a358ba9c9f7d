package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// work is what one transaction changes: rows are read under locks, judged or changed
// here, and written together.
type work struct {
	db  db
	sql *statements

	clock    time.Time
	settings map[string]redrive.QueueSettings

	gone         []int64 // seqs of waiting messages that go
	goneDead     []redrive.Ref
	insert, bury []*message
	memories     []memory
	results      []*item
	leavers      []leaving
	heads        []lineKey // keys whose heads may have to be freed
	books        map[string]*books
}

type lineKey struct{ queue, key string }

func (k lineKey) compare(o lineKey) int {
	if c := strings.Compare(k.queue, o.queue); c != 0 {
		return c
	}
	return strings.Compare(k.key, o.key)
}

// leaving is a message that leaves the order of its key.
type leaving struct {
	lineKey
	id   string
	back bool // to line up again at the end
}

// memory is what is noted about a remembered id.
type memory struct {
	redrive.Ref
	fate
}

// fate is what became of a message.
type fate struct {
	outcome redrive.Outcome
	reason  redrive.Reason
	ended   bool
}

// now is the server's clock, the same for all of the work.
func (w *work) now(ctx context.Context) (time.Time, error) {
	if !w.clock.IsZero() {
		return w.clock, nil
	}
	var us int64
	err := w.db.run(ctx, step{sql: w.sql.get("now"), scan: scanInto(&us)})
	w.clock = timeAt(us)
	return w.clock, err
}

// lockKeysOf locks the keys that messages stand in line in. It comes before anything
// else, so that what is read afterwards is what the last holder left.
func (w *work) lockKeysOf(ctx context.Context, refs []redrive.Ref) error {
	var keys []lineKey
	var steps []step
	for _, l := range byQueue(refs) {
		st := l.step(w.sql, "keys_of", func(r row) error {
			var k lineKey
			err := r.Scan(&k.queue, &k.key)
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
func (w *work) lockKeys(ctx context.Context, keys []lineKey) error {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, lineKey.compare)
	keys = slices.Compact(keys)
	refs := make([]redrive.Ref, len(keys))
	for i, k := range keys {
		refs[i] = redrive.Ref{Queue: k.queue, ID: k.key}
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

// lockPasses is how often what was not found is looked for: a message may move from one
// table to the other while we wait for its row in the first.
const lockPasses = 3

// lock reads messages for a change, wherever they are.
func (w *work) lock(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]*message, error) {
	found := make(map[redrive.Ref]*message, len(refs))
	keep := func(r row) error {
		m, err := scanMessage(r)
		if err == nil {
			found[m.Ref()] = m
		}
		return err
	}
	for pass := 0; pass < lockPasses && len(refs) > 0; pass++ {
		for _, name := range []string{"lock_messages", "lock_dead"} {
			for _, l := range byQueue(refs) {
				if err := w.db.run(ctx, l.step(w.sql, name, keep)); err != nil {
					return nil, err
				}
			}
		}
		refs = slices.DeleteFunc(slices.Clone(refs), func(r redrive.Ref) bool { return found[r] != nil })
	}
	return found, nil
}

// know reads the settings of queues.
func (w *work) know(ctx context.Context, queues ...string) error {
	if w.settings == nil {
		w.settings = make(map[string]redrive.QueueSettings)
	}
	var missing []any
	for _, q := range queues {
		if _, ok := w.settings[q]; !ok {
			w.settings[q] = redrive.QueueSettings{Remember: redrive.DefaultRemember}
			missing = append(missing, []byte(q))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.db.run(ctx, step{sql: w.sql.with("settings", ":ids", places(len(missing))), args: missing, scan: func(r row) error {
		var name string
		var s redrive.QueueSettings
		var remember int64
		err := r.Scan(&name, &s.OrderByKey, &s.DeadRelease, &remember)
		s.Remember = time.Duration(remember) * time.Microsecond
		w.settings[name] = s
		return err
	}})
}

// count adds to a book.
func (w *work) count(queue string, b book, n int64) {
	if w.books == nil {
		w.books = make(map[string]*books)
	}
	if w.books[queue] == nil {
		w.books[queue] = new(books)
	}
	w.books[queue][b] += n
}

// addWaiting stores a message as waiting. One that stands in line is blocked until the
// head of its key is freed.
func (w *work) addWaiting(m *message) {
	m.dead, m.leased, m.alone, m.instance = false, false, false, ""
	m.size = m.Size()
	m.class = m.openClass()
	if m.turn > 0 {
		m.class = classBlocked
		w.heads = append(w.heads, lineKey{m.Queue, m.Key})
	}
	w.count(m.Queue, book(m.lane), 1)
	w.count(m.Queue, bookBytes, int64(m.size))
	w.insert = append(w.insert, m)
}

// removeWaiting takes a waiting message away.
func (w *work) removeWaiting(m *message) {
	w.count(m.Queue, book(m.lane), -1)
	w.count(m.Queue, bookBytes, -int64(m.size))
	w.gone = append(w.gone, m.seq)
}

// addDead stores a message as dead. Where dead letters let go, it leaves its key.
func (w *work) addDead(m *message) {
	m.dead, m.suspect, m.leased, m.instance = true, false, false, ""
	m.size = m.Size()
	if m.turn > 0 && w.settings[m.Queue].DeadRelease {
		w.leaveLine(m)
	}
	w.count(m.Queue, deadBook(m.reason), 1)
	w.note(m, fate{outcome: redrive.OutcomeDead, reason: m.reason})
	w.bury = append(w.bury, m)
}

// removeDead takes a dead letter away.
func (w *work) removeDead(m *message) {
	w.count(m.Queue, deadBook(m.reason), -1)
	w.goneDead = append(w.goneDead, m.Ref())
}

// leaveLine takes a message out of the order of its key.
func (w *work) leaveLine(m *message) {
	if m.turn > 0 {
		w.leavers = append(w.leavers, leaving{lineKey: lineKey{m.Queue, m.Key}, id: m.ID})
		m.turn = 0
	}
}

// enterLine gives a message a place at the end of its key, where there is order.
func (w *work) enterLine(ctx context.Context, m *message) error {
	m.turn = 0
	if m.Key == "" || !w.settings[m.Queue].OrderByKey {
		return nil
	}
	members := int64(0)
	return w.db.run(ctx, enterKey(w.sql, lineKey{m.Queue, m.Key}, 1, &m.turn, &members)...)
}

// enterKey lines up n messages in a key, and tells the last one's turn and how many
// there are then.
func enterKey(sql *statements, k lineKey, n int, last, members *int64) []step {
	queue, key := []byte(k.queue), []byte(k.key)
	return []step{
		{sql: sql.get("enter_key"), args: []any{queue, key, n, n}},
		{sql: sql.get("entered_key"), args: []any{queue, key}, scan: scanInto(last, members)},
	}
}

// note keeps in mind what became of a message whose id is remembered.
func (w *work) note(m *message, f fate) {
	if m.chosen {
		w.memories = append(w.memories, memory{Ref: m.Ref(), fate: f})
	}
}

// reserve remembers an id for a message. It fails with ErrDuplicate or ErrConflict.
func (w *work) reserve(ctx context.Context, m *message) error {
	it := newItem(&m.Message, new(error))
	m.chosen = true
	if err := w.reserveAll(ctx, []*item{it}); err != nil {
		return err
	}
	return *it.result
}

// forgetArchived forgets an id whose message went to the archive, so that it can be
// imported from there.
func (w *work) forgetArchived(ctx context.Context, m *message) error {
	return w.db.run(ctx, step{sql: w.sql.get("forget_archived"), args: []any{[]byte(m.Queue), []byte(m.ID)}})
}

func isRepeated(err error) bool {
	return errors.Is(err, redrive.ErrDuplicate) || errors.Is(err, redrive.ErrConflict)
}

// takeNumber gives a message a seq before it is written.
func (w *work) takeNumber(ctx context.Context, m *message) error {
	id := []byte(redrive.NewID())
	err := w.db.run(ctx, step{sql: w.sql.get("take_number"), args: []any{id}},
		step{sql: w.sql.get("taken_number"), args: []any{id}, scan: scanInto(&m.seq)})
	if err != nil {
		return err
	}
	w.gone = append(w.gone, m.seq)
	return nil
}

// flush writes everything.
func (w *work) flush(ctx context.Context) error {
	for _, write := range []func(context.Context) error{w.writeRows, w.writeMemories, w.writeResults, w.writeLines, w.writeBooks} {
		if err := write(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeRows(ctx context.Context) error {
	var steps []step
	for _, seqs := range chunks(w.gone) {
		steps = append(steps, step{sql: w.sql.with("delete_messages", ":seqs", numbers(seqs))})
	}
	for _, ref := range w.goneDead {
		steps = append(steps, step{sql: w.sql.get("delete_dead"), args: []any{[]byte(ref.Queue), []byte(ref.ID)}})
	}
	steps = append(steps, insertMessages(w.sql, w.insert)...)
	steps = append(steps, insertDead(w.sql, w.bury)...)
	w.gone, w.goneDead, w.insert, w.bury = nil, nil, nil, nil
	return w.db.run(ctx, steps...)
}

func (w *work) writeMemories(ctx context.Context) error {
	if len(w.memories) == 0 {
		return nil
	}
	fates := make(map[fate][]redrive.Ref)
	last := make(map[redrive.Ref]int)
	for i, m := range w.memories {
		last[m.Ref] = i
	}
	var order []fate // of first appearance, so that runs are alike
	for i, m := range w.memories {
		if last[m.Ref] != i {
			continue
		}
		if _, ok := fates[m.fate]; !ok {
			order = append(order, m.fate)
		}
		fates[m.fate] = append(fates[m.fate], m.Ref)
	}
	var steps []step
	for _, f := range order {
		refs := fates[f]
		slices.SortFunc(refs, compareRefs)
		for _, l := range byQueue(refs) {
			steps = append(steps, l.step(w.sql, "remember", nil, int(f.outcome), int(f.reason), f.ended))
		}
	}
	w.memories = nil
	return w.db.run(ctx, steps...)
}

func compareRefs(a, b redrive.Ref) int {
	if c := strings.Compare(a.Queue, b.Queue); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// writeResults publishes the results that ended messages asked for. One that is there
// already is as good.
func (w *work) writeResults(ctx context.Context) error {
	list := w.results
	w.results = nil
	if err := w.store(ctx, list); err != nil {
		return err
	}
	for _, it := range list {
		if err := *it.result; err != nil && !isRepeated(err) {
			return err
		}
	}
	return nil
}

// writeLines takes leavers out of their keys and frees the heads.
func (w *work) writeLines(ctx context.Context) error {
	if len(w.leavers) == 0 && len(w.heads) == 0 {
		return nil
	}
	var steps []step
	leave := make(map[lineKey]int)
	for _, l := range w.leavers {
		queue, key := []byte(l.queue), []byte(l.key)
		if l.back {
			steps = append(steps, step{sql: w.sql.get("requeue_key"), args: []any{queue, key}},
				step{sql: w.sql.get("requeue_turn"), args: []any{queue, key, queue, []byte(l.id)}})
		} else {
			leave[l.lineKey]++
		}
		w.heads = append(w.heads, l.lineKey)
	}
	slices.SortFunc(w.heads, lineKey.compare)
	w.heads = slices.Compact(w.heads)
	for _, k := range w.heads {
		if n := leave[k]; n > 0 {
			steps = append(steps, step{sql: w.sql.get("leave_key"), args: []any{n, []byte(k.queue), []byte(k.key)}},
				step{sql: w.sql.get("drop_key"), args: []any{[]byte(k.queue), []byte(k.key)}})
		}
	}
	turns := make([]int64, len(w.heads))
	for i, k := range w.heads {
		least := func(r row) error {
			var turn int64
			err := r.Scan(&turn)
			if turns[i] == 0 || turn < turns[i] {
				turns[i] = turn
			}
			return err
		}
		args := []any{[]byte(k.queue), []byte(k.key)}
		steps = append(steps, step{sql: w.sql.get("head_waiting"), args: args, scan: least},
			step{sql: w.sql.get("head_dead"), args: args, scan: least})
	}
	if err := w.db.run(ctx, steps...); err != nil {
		return err
	}
	steps = steps[:0]
	for i, k := range w.heads {
		if turns[i] > 0 {
			steps = append(steps, step{sql: w.sql.get("free_head"), args: []any{[]byte(k.queue), []byte(k.key), turns[i]}})
		}
	}
	w.leavers, w.heads = nil, nil
	return w.db.run(ctx, steps...)
}

func (w *work) writeBooks(ctx context.Context) error {
	var steps []step
	for queue, b := range w.books {
		if *b == (books{}) {
			continue
		}
		args := []any{[]byte(queue)}
		for _, n := range b {
			args = append(args, n)
		}
		steps = append(steps, step{sql: w.sql.get("book"), args: args})
	}
	w.books = nil
	return w.db.run(ctx, steps...)
}
