package sqlite

import (
	"time"
)

// Flags of waiting and dead rows.
const (
	flagSuspect int64 = 1 << iota // a claim ended without a settlement
	flagChosen                    // the id is remembered
	flagEdited                    // there is an original
	flagFirst                     // a first failure is kept
	flagLast                      // a last failure is kept
	flagDelayed                   // due was asked for by a delay, a retry or a schedule
)

// row is a waiting row without its queue.
type row struct {
	class, due, seq, lane                int64
	attempts, failures, earlier, crashes int64
	flags, token, turn                   int64
	kind                                 string
	expires, born                        int64 // 0: none
}

// setDue sets when a row is due. What is due later than now was delayed: its due holds also
// when the clock goes back.
func (r *row) setDue(now, due int64) {
	r.due = due
	if r.flags &^= flagDelayed; due > now {
		r.flags |= flagDelayed
	}
}

func (r *row) place() place { return place{r.due, r.seq} }

const rowColumns = `class, due, seq, lane, attempts, failures, earlier, crashes, flags, token, turn, kind, expires, born`

// scanRow reads rowColumns from column i on.
func scanRow(s *stmt, i int32) row {
	return row{
		class: s.colInt(i), due: s.colInt(i + 1), seq: s.colInt(i + 2), lane: s.colInt(i + 3),
		attempts: s.colInt(i + 4), failures: s.colInt(i + 5), earlier: s.colInt(i + 6), crashes: s.colInt(i + 7),
		flags: s.colInt(i + 8), token: s.colInt(i + 9), turn: s.colInt(i + 10),
		kind: s.colText(i + 11), expires: s.colInt(i + 12), born: s.colInt(i + 13),
	}
}

// insertWaiting stores a waiting row. size is that of its message.
func (t *tx) insertWaiting(q *queue, r *row, size int64) error {
	t.appears(q, r, size)
	s := t.write(`INSERT INTO waiting (queue, ` + rowColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	s.int(q.id).int(r.class).int(r.due).int(r.seq).int(r.lane).int(r.attempts).int(r.failures).int(r.earlier).
		int(r.crashes).int(r.flags).int(r.token).int(r.turn).textOrNull(r.kind)
	return s.intOrNull(r.expires).intOrNull(r.born).run()
}

// appears counts a new waiting row and notes that it can be claimed.
func (t *tx) appears(q *queue, r *row, size int64) {
	t.countWaiting(q, r, 1, size)
	if r.class != classBlocked {
		q.appeared(r.class, r.place())
		t.bump(q)
	}
}

// deleteWaiting removes a waiting row.
func (t *tx) deleteWaiting(q *queue, r *row, size int64) error {
	t.countWaiting(q, r, -1, -size)
	return t.write(`DELETE FROM waiting WHERE queue = ? AND class = ? AND due = ? AND seq = ?`).
		int(q.id).int(r.class).int(r.due).int(r.seq).run()
}

// moveWaiting replaces a waiting row of the same message.
func (t *tx) moveWaiting(q *queue, from, to *row) error {
	if err := t.deleteWaiting(q, from, 0); err != nil {
		return err
	}
	return t.insertWaiting(q, to, 0)
}

func (t *tx) countWaiting(q *queue, r *row, n, size int64) {
	t.count(q, counter(r.lane), n)
	t.count(q, countBytes, size)
	switch r.class {
	case classBlocked:
		t.count(q, countBlocked, n)
	case classSuspect:
		t.count(q, countSuspects, n)
	}
}

// messageColumns is what a message carries, without seq and queue.
const messageColumns = `id, key, headers, published, expires, reply_to, generation, redrives, plan, origin, edited_from, crc, body`

const messageWidth = 13

// insertMessage stores what a message carries.
func (t *tx) insertMessage(q *queue, seq int64, m *stored) error {
	s := t.write(`INSERT INTO message (seq, queue, ` + messageColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	s.int(seq).int(q.id).text(m.ID).textOrNull(m.Key).blobOrNull(encodeHeaders(m.Headers))
	s.int(nanos(m.PublishedAt)).intOrNull(nanos(m.ExpiresAt)).textOrNull(m.ReplyTo)
	s.int(int64(m.Generation)).int(int64(m.Redrives)).textOrNull(m.Plan).textOrNull(m.Origin).textOrNull(m.EditedFrom)
	return s.checksum(m.checksum).blob(m.Body).run()
}

// scanMessage reads messageColumns from column i on. Queue and kind stand elsewhere. Of
// headers that cannot be read it takes what can: the message is not sound then.
func scanMessage(s *stmt, i int32) (m stored) {
	m.ID, m.Key = s.colText(i), s.colText(i+1)
	m.readHeaders(s, i+2, i+11)
	m.PublishedAt, m.ExpiresAt = timeOf(s.colInt(i+3)), timeOf(s.colInt(i+4))
	m.ReplyTo = s.colText(i + 5)
	m.Generation, m.Redrives = int(s.colInt(i+6)), int(s.colInt(i+7))
	m.Plan, m.Origin, m.EditedFrom = s.colText(i+8), s.colText(i+9), s.colText(i+10)
	m.Body = s.colBytes(i + 12)
	return m
}

// readHeaders reads headers and checksum.
func (m *stored) readHeaders(s *stmt, headers, sum int32) {
	m.checksum = s.colChecksum(sum)
	var err error
	if m.Headers, err = decodeHeaders(s.colBytes(headers)); err != nil && m.checksum == unchecked {
		m.checksum = unreadable
	}
}

const originalColumns = `kind, key, headers, crc, body`

// scanOriginal reads originalColumns from column i on.
func scanOriginal(s *stmt, i int32) (m stored) {
	m.Kind, m.Key = s.colText(i), s.colText(i+1)
	m.readHeaders(s, i+2, i+3)
	m.Body = s.colBytes(i + 4)
	return m
}

// nanos is a time as it is stored: 0 for none, and within what can be stored.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Year() > 2261:
		return dueNever - 1
	case t.Year() < 1970:
		return 1
	}
	return t.UnixNano()
}

// timeOf is the reverse of nanos.
func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// later is a time d from now, at most the end of what can be stored.
func later(now int64, d time.Duration) int64 {
	if sum := now + int64(d); sum >= now {
		return min(sum, dueNever-1)
	}
	return dueNever - 1
}
