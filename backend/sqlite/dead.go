package sqlite

import (
	"fmt"

	"github.com/redrive/redrive"
)

// deadRow is a dead letter's row without its queue.
type deadRow struct {
	row
	died      int64
	due       int64 // when a processor of dead letters may claim it
	reason    redrive.Reason
	signature string
	text      int64 // noText, textApart, or the row in table text
}

const deadColumns = `seq, died, due, reason, signature, lane, attempts, failures, earlier, crashes, flags, token, turn, kind, text`

const deadWidth = 15

// scanDead reads deadColumns from column i on.
func scanDead(s *stmt, i int32) deadRow {
	return deadRow{
		row: row{
			seq: s.colInt(i), lane: s.colInt(i + 5), attempts: s.colInt(i + 6), failures: s.colInt(i + 7), earlier: s.colInt(i + 8),
			crashes: s.colInt(i + 9), flags: s.colInt(i + 10), token: s.colInt(i + 11), turn: s.colInt(i + 12), kind: s.colText(i + 13),
		},
		died: s.colInt(i + 1), due: s.colInt(i + 2), reason: redrive.Reason(s.colInt(i + 3)), signature: s.colText(i + 4), //nolint:gosec // a reason
		text: s.colTextRef(i + 14),
	}
}

// bury stores the row of a message that died. In a queue whose dead letters let go,
// it leaves the order of its key.
func (t *tx) bury(q *queue, d *deadRow, id, key string) error {
	t.countDead(q, d, 1, bucketOf(t.now, d.died))
	t.bump(q) // for processors of dead letters
	if d.turn != 0 && q.settings.DeadRelease {
		if err := t.letGo(q, key, d.turn, d.seq); err != nil {
			return err
		}
		d.turn = 0
	}
	if err := t.became(q, id, d.flags, redrive.OutcomeDead, d.reason); err != nil {
		return err
	}
	var err error
	if d.text, err = t.textOf(q, &d.row); err != nil {
		return err
	}
	s := t.write(`INSERT INTO dead (` + deadColumns + `, queue) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	s.int(d.seq).int(d.died).int(d.due).int(int64(d.reason)).text(d.signature).int(d.lane).int(d.attempts).int(d.failures)
	s.int(d.earlier).int(d.crashes).int(d.flags).int(d.token).int(d.turn).textOrNull(d.kind)
	return s.textRef(d.text).int(q.id).run()
}

// deadRow reads a dead letter.
func (t *tx) deadRow(q *queue, seq int64) (d deadRow, m stored, err error) {
	s := t.read(`SELECT ` + prefixed("d", deadColumns) + `, ` + prefixed("m", messageColumns) +
		` FROM dead d JOIN message m ON m.seq = d.seq WHERE d.seq = ? AND d.queue = ?`).int(seq).int(q.id)
	if !s.next() {
		if err = s.done(); err == nil {
			err = &sqlError{code: corruptCode, text: fmt.Sprintf("a dead letter of queue %s has no body", q.name)}
		}
		return d, m, err
	}
	d = scanDead(s, 0)
	m = scanMessage(s, deadWidth)
	m.Queue, m.Kind = q.name, d.kind
	return d, m, s.done()
}

// exhume removes a dead letter for good.
func (t *tx) exhume(q *queue, d *deadRow, m *stored, o redrive.Outcome, reason redrive.Reason) error {
	if err := t.unbury(q, d); err != nil {
		return err
	}
	if err := t.leaveKey(q, m.Key, d.turn, d.seq); err != nil {
		return err
	}
	if err := t.ended(q, m.ID, d.flags, o, reason); err != nil {
		return err
	}
	return t.deleteMessage(d.seq, d.flags)
}

// unbury removes the row of a dead letter.
func (t *tx) unbury(q *queue, d *deadRow) error {
	t.countDead(q, d, -1, bucket{})
	if err := t.write(`DELETE FROM dead WHERE seq = ?`).int(d.seq).run(); err != nil {
		return err
	}
	return t.dropText(q, d.text)
}
