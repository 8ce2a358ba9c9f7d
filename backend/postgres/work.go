package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// work is what one transaction changes beside the hot path: whole messages are read
// under locks, changed here, and written back together.
type work struct {
	db  db
	sql *statements

	clock    time.Time
	settings map[string]redrive.QueueSettings

	gone, goneDead []redrive.Ref
	insert, bury   []*message
	memories       []memory
	results        []*item
	leavers        []leaving
	heads          []key // keys whose heads may have to be freed
	books          map[string]*books
}

type key struct{ queue, key string }

// leaving is a message that leaves the order of its key.
type leaving struct {
	queue, id, key string
	back           bool // to line up again at the end
}

// memory is what is noted about a remembered id.
type memory struct {
	redrive.Ref
	outcome redrive.Outcome
	reason  redrive.Reason
	ended   bool
}

// now is the server's clock, the same for all of the work.
func (w *work) now(ctx context.Context) (time.Time, error) {
	if !w.clock.IsZero() {
		return w.clock, nil
	}
	err := w.db.query(ctx, w.sql.get("now"), func(r row) error { return r.Scan(&w.clock) })
	w.clock = w.clock.UTC()
	return w.clock, err
}

// lockKeys locks the keys that messages stand in line in. It comes before anything
// else, so that what is read afterwards is what the last holder left.
func (w *work) lockKeys(ctx context.Context, refs []redrive.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	queues, ids := names(refs)
	return w.db.query(ctx, w.sql.get("keys_of"), func(row) error { return nil }, queues, ids)
}

// lockPasses is how often what was not found is looked for: a message may move from one
// table to the other while we wait for its row in the first.
const lockPasses = 3

// lock reads messages for a change, wherever they are.
func (w *work) lock(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]*message, error) {
	found := make(map[redrive.Ref]*message, len(refs))
	for pass := 0; pass < lockPasses && len(refs) > 0; pass++ {
		queues, ids := names(refs)
		for _, name := range []string{"lock_messages", "lock_dead"} {
			err := w.db.query(ctx, w.sql.get(name), func(r row) error {
				m, err := scanMessage(r)
				if err == nil {
					found[m.Ref()] = m
				}
				return err
			}, queues, ids)
			if err != nil {
				return nil, err
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
	var missing []string
	for _, q := range queues {
		if _, ok := w.settings[q]; !ok && !slices.Contains(missing, q) {
			missing = append(missing, q)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, q := range missing {
		w.settings[q] = redrive.QueueSettings{}
	}
	return w.db.query(ctx, w.sql.get("settings"), func(r row) error {
		var name string
		var s redrive.QueueSettings
		err := r.Scan(&name, &s.OrderByKey, &s.DeadRelease)
		w.settings[name] = s
		return err
	}, missing)
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
		w.free(m.Queue, m.Key)
	}
	w.count(m.Queue, book(m.lane), 1)
	w.count(m.Queue, bookBytes, int64(m.size))
	w.insert = append(w.insert, m)
}

// removeWaiting takes a waiting message away.
func (w *work) removeWaiting(m *message) {
	w.count(m.Queue, book(m.lane), -1)
	w.count(m.Queue, bookBytes, -int64(m.size))
	w.gone = append(w.gone, m.Ref())
}

// addDead stores a message as dead. Where dead letters let go, it leaves its key.
func (w *work) addDead(m *message) {
	m.dead, m.suspect, m.leased, m.instance = true, false, false, ""
	m.size = m.Size()
	if m.turn > 0 && w.settings[m.Queue].DeadRelease {
		w.leaveLine(m)
	}
	w.count(m.Queue, deadBook(m.reason), 1)
	w.note(m, redrive.OutcomeDead, m.reason, false)
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
		w.leavers = append(w.leavers, leaving{queue: m.Queue, id: m.ID, key: m.Key})
		m.turn = 0
	}
}

func (w *work) free(queue, k string) { w.heads = append(w.heads, key{queue, k}) }

// enterLine gives a message a place at the end of its key, where there is order.
func (w *work) enterLine(ctx context.Context, m *message) error {
	m.turn = 0
	if m.Key == "" || !w.settings[m.Queue].OrderByKey {
		return nil
	}
	return w.db.query(ctx, w.sql.get("enter_key"), func(r row) error {
		var members int64
		return r.Scan(&m.turn, &members)
	}, m.Queue, m.Key)
}

// note keeps in mind what became of a message whose id is remembered.
func (w *work) note(m *message, o redrive.Outcome, reason redrive.Reason, ended bool) {
	if m.chosen {
		w.memories = append(w.memories, memory{Ref: m.Ref(), outcome: o, reason: reason, ended: ended})
	}
}

// reserve remembers an id for a message. It fails with ErrDuplicate or ErrConflict.
func (w *work) reserve(ctx context.Context, m *message) error {
	free := false
	it := newItem(&m.Message, new(error))
	m.chosen = true
	err := w.db.query(ctx, w.sql.get("reserve"), func(r row) error {
		free = true
		var ord int
		return r.Scan(&ord)
	}, []string{m.Queue}, []string{m.ID}, []int64{int64(it.hash)}, []bool{it.made}) //nolint:gosec // the bits are what counts
	if err != nil || free {
		return err
	}
	if err := judge(ctx, w.db, w.sql, []*item{it}); err != nil {
		return err
	}
	return *it.result
}

// forgetArchived forgets an id whose message went to the archive, so that it can be
// imported from there.
func (w *work) forgetArchived(ctx context.Context, m *message) error {
	_, err := w.db.exec(ctx, w.sql.get("forget_archived"), m.Queue, m.ID)
	return err
}

func isRepeated(err error) bool {
	return errors.Is(err, redrive.ErrDuplicate) || errors.Is(err, redrive.ErrConflict)
}

// flush writes everything.
func (w *work) flush(ctx context.Context) error {
	for _, step := range []func(context.Context) error{w.writeRows, w.writeMemories, w.writeResults, w.writeLines, w.writeBooks} {
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
		_, err := w.db.exec(ctx, w.sql.get(name), args...)
		return err
	}
	for name, refs := range map[string][]redrive.Ref{"delete_messages": w.gone, "delete_dead": w.goneDead} {
		queues, ids := names(refs)
		if err := run(name, len(refs), queues, ids); err != nil {
			return err
		}
	}
	if err := run("insert_messages", len(w.insert), insertMessages(w.insert)...); err != nil {
		return err
	}
	return run("insert_dead", len(w.bury), insertDead(w.bury)...)
}

func (w *work) writeMemories(ctx context.Context) error {
	n := len(w.memories)
	if n == 0 {
		return nil
	}
	queues, ids, outcomes, reasons, ended := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	slices.SortStableFunc(w.memories, func(a, b memory) int {
		return strings.Compare(a.Queue+"/"+a.ID, b.Queue+"/"+b.ID)
	})
	for i, m := range w.memories {
		queues[i], ids[i], outcomes[i], reasons[i], ended[i] = m.Queue, m.ID, int64(m.outcome), int64(m.reason), m.ended
	}
	_, err := w.db.exec(ctx, w.sql.get("remember"), queues, ids, outcomes, reasons, ended)
	return err
}

// writeResults publishes the results that ended messages asked for. One that is there
// already is as good.
func (w *work) writeResults(ctx context.Context) error {
	if err := store(ctx, w.db, w.sql, w.results); err != nil {
		return err
	}
	for _, it := range w.results {
		if err := *it.result; err != nil && !isRepeated(err) {
			return err
		}
	}
	return nil
}

// writeLines takes leavers out of their keys and frees the heads.
func (w *work) writeLines(ctx context.Context) error {
	leave := make(map[key]int64)
	for _, l := range w.leavers {
		k := key{l.queue, l.key}
		if !l.back {
			leave[k]++
		} else if _, err := w.db.exec(ctx, w.sql.get("requeue_turn"), l.queue, l.id, l.key); err != nil {
			return err
		}
		w.heads = append(w.heads, k)
	}
	if len(leave) > 0 {
		var queues, keys []string
		var counts []int64
		for k, n := range leave {
			queues, keys, counts = append(queues, k.queue), append(keys, k.key), append(counts, n)
		}
		if _, err := w.db.exec(ctx, w.sql.get("leave_keys"), queues, keys, counts); err != nil {
			return err
		}
	}
	if len(w.heads) == 0 {
		return nil
	}
	slices.SortFunc(w.heads, func(a, b key) int { return strings.Compare(a.queue+"\x00"+a.key, b.queue+"\x00"+b.key) })
	w.heads = slices.Compact(w.heads)
	var queues, keys []string
	for _, k := range w.heads {
		queues, keys = append(queues, k.queue), append(keys, k.key)
	}
	_, err := w.db.exec(ctx, w.sql.get("free_heads"), queues, keys)
	w.leavers, w.heads = nil, nil
	return err
}

// leave carries out what settled messages mean for their keys.
func (w *work) leave(ctx context.Context, left []leaving) error {
	w.leavers = append(w.leavers, left...)
	return w.writeLines(ctx)
}

func (w *work) writeBooks(ctx context.Context) error {
	for queue, b := range w.books {
		if *b == (books{}) {
			continue
		}
		args := []any{queue}
		for _, n := range b {
			args = append(args, n)
		}
		if _, err := w.db.exec(ctx, w.sql.get("book"), args...); err != nil {
			return fmt.Errorf("books of %s: %w", queue, err)
		}
	}
	return nil
}
