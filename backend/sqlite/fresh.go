package sqlite

import (
	"strings"

	"github.com/redrive/redrive"
)

// Nearly every new message has a body, perhaps a kind, and nothing else. Such
// messages are not stored one by one: they are held until another statement is
// needed or enough are there, and then stored by one statement for several, which
// appends to each tree without descending it anew.

// fresh is such a message with its row.
type fresh struct {
	queue     int64
	class     int64
	due, seq  int64
	flags     int64
	published int64
	kind, id  string
	checksum  checksum
	body      []byte
}

// freshRows is how many are stored by one statement.
const freshRows = 16

const (
	freshWaiting = `INSERT INTO waiting (queue, ` + rowColumns + `) VALUES `
	freshRow     = `(?, ?, ?, ?, 0, 0, 0, 0, 0, ?, 0, 0, ?, NULL, NULL)`
	freshMessage = `INSERT INTO message (seq, queue, ` + messageColumns + `) VALUES `
	freshBody    = `(?, ?, ?, NULL, NULL, ?, NULL, NULL, 0, 0, NULL, NULL, NULL, ?, ?)`
)

var (
	freshWaitings = freshWaiting + freshRow + strings.Repeat(", "+freshRow, freshRows-1)
	freshMessages = freshMessage + freshBody + strings.Repeat(", "+freshBody, freshRows-1)
)

// isFresh reports whether row and message have nothing but what fresh holds.
func isFresh(r *row, m *redrive.Message) bool {
	return r.lane|r.attempts|r.failures|r.earlier|r.crashes|r.token|r.turn|r.expires|r.born == 0 &&
		m.Headers == nil && m.Key == "" && m.ReplyTo == "" && m.ExpiresAt.IsZero() && m.Lineage == redrive.Lineage{}
}

// hold keeps a fresh message to be stored with others.
func (t *tx) hold(q *queue, r *row, m *redrive.Message) error {
	t.writes++
	t.appears(q, r, int64(m.Size()))
	t.fresh = append(t.fresh, fresh{queue: q.id, class: r.class, due: r.due, seq: r.seq, flags: r.flags,
		published: nanos(m.PublishedAt), kind: r.kind, id: m.ID, checksum: checksumOf(m), body: m.Body})
	if len(t.fresh) < freshRows && !t.careful {
		return nil
	}
	return t.storeFresh()
}

// storeFresh stores what is held.
func (t *tx) storeFresh() error {
	held := t.fresh
	t.fresh = t.fresh[:0] // first, as the statements below would come here again
	for len(held) > 0 {
		n, rows, bodies := 1, freshWaiting+freshRow, freshMessage+freshBody
		if len(held) >= freshRows {
			n, rows, bodies = freshRows, freshWaitings, freshMessages
		}
		s := t.read(rows)
		for i := range held[:n] {
			f := &held[i]
			s.int(f.queue).int(f.class).int(f.due).int(f.seq).int(f.flags).textOrNull(f.kind)
		}
		if err := s.run(); err != nil {
			return err
		}
		s = t.read(bodies)
		for i := range held[:n] {
			f := &held[i]
			s.int(f.seq).int(f.queue).text(f.id).int(f.published).checksum(f.checksum).blob(f.body)
		}
		if err := s.run(); err != nil {
			return err
		}
		held = held[n:]
	}
	return nil
}
