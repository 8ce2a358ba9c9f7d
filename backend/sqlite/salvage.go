package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Salvage copies every message that can be read from a damaged store into a new one
// and lists the rest. The old one is not changed. A message whose place was lost
// waits again: it is rather delivered twice than lost. One that does not match its checksum
// is dead as corrupt. What could not be read is counted as dropped in the ledger of the new
// store.
func Salvage(ctx context.Context, fromDir, toDir string, progress func(messages int64)) (Report, error) {
	var r Report
	if _, err := os.Stat(filepath.Join(toDir, FileName)); err == nil {
		return r, &redrive.Error{Op: "salvage", Err: fmt.Errorf("%s has a store already", toDir), Hint: "name a new folder"}
	}
	src, err := openSource(fromDir)
	if err != nil {
		return r, err
	}
	defer src.close()
	src.report, src.progress = &r, progress
	headless := src.headless()
	if !headless {
		if err := src.checkVersion("salvage"); err != nil {
			return r, err
		}
	}
	to, err := Open(toDir)
	if err != nil {
		return r, err
	}
	if headless {
		if err := src.lendHeader(toDir); err != nil {
			return r, errors.Join(err, to.Close())
		}
	}
	src.sayMissing()
	v := &salvage{source: src, to: to}
	if err = v.run(ctx); err == nil {
		_, err = to.Verify(ctx)
	}
	return r, errors.Join(err, to.Close())
}

// salvage copies from one store to another.
type salvage struct {
	*source
	to      *Store
	queueOf map[int64]*queue // by their number in the old file
	kinds   []string         // that readable rows name
	corrupt []corruptOne
}

// corruptOne is a message that does not match its checksum.
type corruptOne struct {
	queue *queue
	id    string
	flags int64
}

// salvageSlice is how many messages are copied in one transaction.
const salvageSlice = 500

func (v *salvage) run(ctx context.Context) error {
	if err := v.copyQueues(ctx); err != nil {
		return err
	}
	seqs := v.seqs()
	v.findKinds()
	for part := range slices.Chunk(seqs, salvageSlice) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.to.do(ctx, len(part), func(t *tx) error { return v.copySlice(t, part) }); err != nil {
			return err
		}
	}
	for _, table := range []struct{ name, columns, values string }{
		{"chosen", "queue, id, seq, hash, outcome, reason, at, keep, until", "?, ?, ?, ?, ?, ?, ?, ?, ?"},
		{"record", "space, key, value, version, expires", "?, ?, ?, ?, ?"},
		{"claim", "token, queue, isolated, seqs", "?, ?, ?, ?"},
	} {
		if err := v.copyTable(ctx, table.name, table.columns, table.values); err != nil {
			return err
		}
	}
	return v.to.do(ctx, 1, v.finish)
}

// copyQueues makes the queues under their old numbers, with their ledger.
func (v *salvage) copyQueues(ctx context.Context) error {
	v.queueOf = make(map[int64]*queue)
	list := v.queues()
	return v.to.do(ctx, len(list), func(t *tx) error {
		for _, old := range list {
			if driver.CheckQueue(old.name) != nil {
				v.report.problem("queue %d: its name is lost", old.id)
				continue
			}
			if err := v.makeQueue(t, old); err != nil {
				return err
			}
		}
		return nil
	})
}

func (v *salvage) makeQueue(t *tx, old *queue) error {
	q := t.s.addQueue(old.name)
	q.settings = old.settings
	for c := countPublished; c <= countMovedOut; c++ {
		t.count(q, c, old.state.counts[c])
	}
	q.id = old.id
	t.touch(q)
	v.queueOf[old.id] = q
	return t.write(`INSERT INTO queue (queue, name, order_by_key, dead_release, remember) VALUES (?, ?, ?, ?, ?)`).
		int(q.id).text(q.name).flag(q.settings.OrderByKey).flag(q.settings.DeadRelease).int(int64(q.settings.Remember)).run()
}

// seqs collects the messages that any readable page names, in their order. A scan
// that meets a damaged page goes on from the other end.
func (v *salvage) seqs() []int64 {
	found := make(map[int64]struct{})
	for _, scan := range []struct{ what, from, order, reverse string }{
		{"bodies", "message", "seq", "seq DESC"},
		{"waiting messages", "waiting NOT INDEXED", "queue, class, due, seq", "queue DESC, class DESC, due DESC, seq DESC"},
		{"index of waiting messages", "waiting INDEXED BY waiting_seq", "queue, seq", "queue DESC, seq DESC"},
		{"dead letters", "dead NOT INDEXED", "seq", "seq DESC"},
		{"index of dead letters", "dead INDEXED BY dead_died", "queue, died, seq", "queue DESC, died DESC, seq DESC"},
	} {
		if !v.collect("SELECT seq FROM "+scan.from+" ORDER BY "+scan.order, found) {
			v.report.problem("%s: a page cannot be read", scan.what)
			v.collect("SELECT seq FROM "+scan.from+" ORDER BY "+scan.reverse, found)
		}
	}
	seqs := make([]int64, 0, len(found))
	for seq := range found {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// collect adds the seqs that a statement yields before it fails, and reports
// whether it reached its end.
func (v *salvage) collect(sql string, found map[int64]struct{}) bool {
	st := v.conn.stmt(sql)
	for st.next() {
		found[st.colInt(0)] = struct{}{}
	}
	return st.done() == nil
}

// kindsTried bounds how many kinds are tried on a message whose own was lost.
const kindsTried = 1000

// findKinds collects the kinds that readable rows name.
func (v *salvage) findKinds() {
	found := make(map[string]struct{})
	for _, from := range []string{"waiting ORDER BY queue, class, due, seq", "waiting ORDER BY queue DESC, class DESC, due DESC, seq DESC", "dead ORDER BY seq", "dead ORDER BY seq DESC"} {
		st := v.conn.stmt("SELECT kind FROM " + from)
		for len(found) < kindsTried && st.next() {
			found[st.colText(0)] = struct{}{}
		}
		_ = st.done() // seqs reports the page
	}
	v.kinds = slices.Sorted(maps.Keys(found))
}

// kindOf is the kind with which a message matches its checksum: it was lost with its place.
func (v *salvage) kindOf(m *stored) string {
	for _, kind := range v.kinds {
		try := *m
		if try.Kind = kind; m.checksum != unchecked && try.sound() {
			return kind
		}
	}
	return ""
}

// copySlice copies some messages.
func (v *salvage) copySlice(t *tx, seqs []int64) error {
	for _, seq := range seqs {
		v.tick()
		if err := v.copyOne(t, seq); err != nil {
			return err
		}
	}
	return nil
}

// old is a message as far as it could be read.
type old struct {
	queue   int64
	message stored
	waiting *row
	dead    *deadRow
}

// copyOne copies one message, or lists it as lost.
func (v *salvage) copyOne(t *tx, seq int64) error {
	var o old
	body := v.readInto(`SELECT queue, `+messageColumns+` FROM message WHERE seq = ?`, seq, func(st *stmt) error {
		o.queue, o.message = st.colInt(0), scanMessage(st, 1)
		return nil
	})
	v.readInto(`SELECT queue, `+deadColumns+` FROM dead WHERE seq = ?`, seq, func(st *stmt) error {
		d := scanDead(st, 1)
		o.queue, o.dead = st.colInt(0), &d
		return nil
	})
	if o.dead == nil {
		for number := range v.queueOf {
			if (!body || number == o.queue) && v.readWaiting(number, seq, &o) {
				o.queue = number
				break
			}
		}
	}
	q := v.queueOf[o.queue]
	if q == nil && body {
		q = v.unnamed(t, o.queue)
	}
	if q == nil || !body {
		v.lose(q, seq)
		return nil
	}
	o.message.Queue = q.name
	return v.store(t, q, seq, &o)
}

func (v *salvage) readInto(sql string, seq int64, fn func(*stmt) error) bool {
	st := v.conn.stmt(sql).int(seq)
	ok := st.next() && fn(st) == nil
	return st.done() == nil && ok
}

func (v *salvage) readWaiting(queue, seq int64, o *old) bool {
	st := v.conn.stmt(`SELECT ` + rowColumns + ` FROM waiting INDEXED BY waiting_seq WHERE queue = ? AND seq = ?`).int(queue).int(seq)
	if st.next() {
		r := scanRow(st, 0)
		o.waiting = &r
	}
	return st.done() == nil && o.waiting != nil
}

// unnamed makes a queue for messages whose queue's row was lost.
func (v *salvage) unnamed(t *tx, number int64) *queue {
	q := &queue{id: number, name: fmt.Sprintf("salvaged-%d", number)}
	if err := v.makeQueue(t, q); err != nil {
		t.check(err)
		return nil
	}
	v.report.problem("queue %d: its row is lost; its messages are in queue %s", number, q.name)
	return v.queueOf[number]
}

// lose lists a message that cannot be copied, by its id if the caller chose it.
func (v *salvage) lose(q *queue, seq int64) {
	name, id := "?", fmt.Sprintf("#%d", seq)
	if q != nil {
		name = q.name
	}
	v.readInto(`SELECT id FROM chosen WHERE seq = ?`, seq, func(st *stmt) error {
		id = st.colText(0)
		return nil
	})
	v.report.Lost = append(v.report.Lost, name+"/"+id)
}

// store writes a message that was read into the new file.
func (v *salvage) store(t *tx, q *queue, seq int64, o *old) error {
	m := &o.message
	r := row{seq: seq, due: t.now}
	switch {
	case o.dead != nil:
		r = o.dead.row
	case o.waiting != nil:
		r = *o.waiting
	default:
		v.report.problem("%s: its place is lost; it waits again", m.Ref())
		r.kind = v.kindOf(m)
		if m.Key != "" && q.settings.OrderByKey {
			r.turn, r.class = seq, classBlocked // until the heads are freed
		}
	}
	r.flags &^= flagFirst | flagLast | flagEdited
	if err := v.copyHistory(t, &r); err != nil {
		return err
	}
	t.s.lastSeq = max(t.s.lastSeq, seq)
	if m.Key != "" {
		ordered, turn := int64(0), seq
		if r.turn != 0 {
			ordered, turn = 1, r.turn
		}
		if err := t.insertKeyed(q, m.Key, ordered, turn, seq); err != nil {
			return err
		}
	}
	if err := t.insertMessage(q, seq, m); err != nil {
		return err
	}
	if m.Kind = r.kind; !m.sound() {
		return v.buryCorrupt(t, q, m, o.dead, r)
	}
	if o.dead == nil {
		v.report.Waiting++
		return t.insertWaiting(q, &r, int64(m.Size()))
	}
	v.report.Dead++
	d := *o.dead
	d.row = r
	if d.reason == 0 || d.reason > driver.LastReason {
		d.reason = redrive.ReasonManual
	}
	return t.bury(q, &d, m.ID, m.Key)
}

// buryCorrupt stores a message that does not match its checksum as a dead letter. What it was
// dead for before stands in its failures.
func (v *salvage) buryCorrupt(t *tx, q *queue, m *stored, dead *deadRow, r row) error {
	v.report.Dead++
	v.corrupt = append(v.corrupt, corruptOne{q, m.ID, r.flags})
	d := deadRow{row: r, died: t.now, due: t.now}
	if dead != nil {
		d.died, d.due, d.signature = dead.died, dead.due, dead.signature
	} else {
		f := &redrive.Failure{At: timeOf(t.now), Reason: redrive.ReasonCorrupt, Types: []string{"redrive.salvaged"}, Message: redrive.ErrBodyCorrupt.Error()}
		f.Clean()
		f.Signature = driver.Signature(f)
		d.signature, d.flags = f.Signature, d.flags&^flagSuspect
		if err := t.recordFailure(&d.row, f, false); err != nil {
			return err
		}
	}
	d.reason = redrive.ReasonCorrupt
	return t.bury(q, &d, m.ID, m.Key)
}

// tellCorrupt reports what does not match its checksum, and notes what became of the ids
// that callers chose.
func (v *salvage) tellCorrupt(t *tx) error {
	if len(v.corrupt) == 0 {
		return nil
	}
	first := v.corrupt[0]
	v.report.problem("%d messages do not match their checksum, for instance %s; they are dead as corrupt", len(v.corrupt), redrive.Ref{Queue: first.queue.name, ID: first.id})
	for _, c := range v.corrupt {
		if err := t.became(c.queue, c.id, c.flags, redrive.OutcomeDead, redrive.ReasonCorrupt); err != nil {
			return err
		}
	}
	return nil
}

// copyHistory copies failures and original.
func (v *salvage) copyHistory(t *tx, r *row) error {
	for i, flag := range []int64{flagFirst, flagLast} {
		var json []byte
		if !v.readInto(`SELECT json FROM failure WHERE slot = ?`, 2*r.seq+int64(i), func(st *stmt) error {
			json = st.colBytes(0)
			return nil
		}) {
			continue
		}
		r.flags |= flag
		if err := t.write(`INSERT INTO failure (slot, json) VALUES (?, ?)`).int(2*r.seq + int64(i)).blob(json).run(); err != nil {
			return err
		}
	}
	var m stored
	if !v.readInto(`SELECT `+originalColumns+` FROM original WHERE seq = ?`, r.seq, func(st *stmt) error {
		m = scanOriginal(st, 0)
		return nil
	}) {
		return nil
	}
	return t.keepOriginal(r, &m)
}

// copyTable copies the rows of a table as they are, as far as they can be read.
func (v *salvage) copyTable(ctx context.Context, name, columns, values string) error {
	insert := fmt.Sprintf("INSERT OR IGNORE INTO %s (%s) VALUES (%s)", name, columns, values)
	return v.to.do(ctx, 1, func(t *tx) error {
		st := v.conn.stmt(fmt.Sprintf("SELECT %s FROM %s", columns, name))
		for st.next() {
			to := t.write(insert)
			st.copyRow(to)
			if err := to.run(); err != nil {
				return err
			}
			if name == "record" {
				v.report.Records++
			}
		}
		if err := st.done(); err != nil {
			v.report.problem("%s: %v", name, err)
		}
		return nil
	})
}

// finish balances the ledger, frees the heads of keys, and takes the epoch over.
func (v *salvage) finish(t *tx) error {
	if err := v.tellCorrupt(t); err != nil {
		return err
	}
	for _, q := range v.queueOf {
		c := &q.state.counts
		ledger := c.ledger()
		missing := ledger.Entered() - ledger.Left() - c.waiting() - c.dead()
		if missing > 0 {
			t.count(q, countDropped, missing)
		} else {
			t.count(q, countImported, -missing)
		}
		if err := v.freeHeads(t, q); err != nil {
			return err
		}
	}
	if err := t.write("DELETE FROM claim WHERE queue NOT IN (SELECT queue FROM queue)").run(); err != nil {
		return err
	}
	epoch, err := v.conn.value("SELECT value FROM meta WHERE name = 'epoch'")
	if err != nil {
		v.report.problem("epoch: %v", err)
		epoch = 1 << 30 // beyond any that was used
	}
	return t.write("UPDATE meta SET value = max(value, ?) WHERE name = 'epoch'").int(epoch).run()
}

// freeHeads makes the head of each key claimable, whose own head may have been lost.
func (v *salvage) freeHeads(t *tx, q *queue) error {
	var keys []string
	st := t.read(`SELECT DISTINCT key FROM keyed WHERE queue = ? AND ordered = 1`).int(q.id)
	for st.next() {
		keys = append(keys, st.colText(0))
	}
	if err := st.done(); err != nil {
		return err
	}
	for _, key := range keys {
		if err := t.freeHead(q, key); err != nil {
			return err
		}
	}
	return nil
}
