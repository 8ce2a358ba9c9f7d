package sqlite

import (
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func isRepeated(err error) bool {
	return errors.Is(err, redrive.ErrDuplicate) || errors.Is(err, redrive.ErrConflict)
}

// redrive gives a dead letter its next generation, due then. It returns where the
// message is now if it moved.
func (t *tx) redrive(q *queue, d *deadRow, m *stored, c *driver.Change, due int64) (now redrive.Ref, err error) {
	if expires := nanos(m.ExpiresAt); expires != 0 && expires <= t.now {
		m.ExpiresAt = time.Time{} // or it would expire again at once
	}
	if c.NewID || c.To != "" && c.To != q.name {
		return t.redriveAway(q, d, m, c, due)
	}
	if err := t.editDead(q, d, m, c.Edit); err != nil {
		return now, err
	}
	m.confirm(c, d.reason)
	if err := t.unbury(q, d); err != nil {
		return now, err
	}
	if err := t.became(q, m.ID, d.flags, 0, 0); err != nil {
		return now, err
	}
	err = t.write(`UPDATE message SET generation = generation + 1, redrives = redrives + 1, plan = ?, expires = ?, crc = ? WHERE seq = ?`).
		textOrNull(c.Plan).intOrNull(nanos(m.ExpiresAt)).checksum(m.checksum).int(d.seq).run()
	if err != nil {
		return now, err
	}
	r := d.nextGeneration(&m.Message, t.now, due)
	if d.turn != 0 { // it kept its place in its key
		head, err := t.headOf(q, m.Key)
		if err != nil {
			return now, err
		}
		if r.class = r.openClass(); head != d.turn {
			r.class = classBlocked
		}
		return now, t.insertWaiting(q, &r, int64(m.Size()))
	}
	if m.Key != "" {
		if err := t.deleteKeyed(q, m.Key, 0, d.seq, d.seq); err != nil {
			return now, err
		}
	}
	t.count(q, countBytes, int64(m.Size()))
	return now, t.enterAgain(q, &r, m.Key)
}

// nextGeneration is the row of a dead letter that is redriven.
func (d *deadRow) nextGeneration(m *redrive.Message, now, due int64) row {
	r := d.row
	r.setDue(now, due)
	r.lane = int64(redrive.LaneRedrive)
	r.earlier += r.failures
	r.attempts, r.failures, r.crashes = 0, 0, 0
	r.expires, r.born = nanos(m.ExpiresAt), nanos(m.PublishedAt)
	return r
}

// redriveAway redrives into another queue or under another id: the dead letter goes
// here, and a message of the next generation comes there.
func (t *tx) redriveAway(q *queue, d *deadRow, m *stored, c *driver.Change, due int64) (now redrive.Ref, err error) {
	from := m.Ref()
	next := *m
	next.edit(c.Edit)
	next.confirm(c, d.reason)
	to := q
	if c.To != "" && c.To != q.name {
		if to, err = t.queue(c.To); err != nil {
			return now, err
		}
		next.Queue, next.Origin = to.name, from.String()
	}
	next.Generation++
	next.Redrives++
	next.Plan = c.Plan
	if c.NewID {
		next.ID, next.EditedFrom = "", from.String()
	}
	r := d.nextGeneration(&next.Message, t.now, due)
	r.kind = next.Kind // an edit may have changed it
	old := d.flags
	r.flags &^= flagChosen
	r.token = 0
	if err := t.identify(to, &next.Message, &r); err != nil {
		return now, err
	}
	t.count(q, countMovedOut, 1)
	t.count(to, countMovedIn, 1)
	// What stays is the memory of the id; the failure history goes with the message.
	if err := t.moveHistory(d.seq, r.seq, old); err != nil {
		return now, err
	}
	gone := *d
	gone.flags &= flagChosen
	if err := t.exhume(q, &gone, m, 0, 0); err != nil {
		return now, err
	}
	if c.Edit != nil {
		if err := t.keepOriginal(&r, m); err != nil {
			return now, err
		}
	}
	if err := t.forgetOriginal(&r, &next); err != nil {
		return now, err
	}
	turn, head, err := t.enterKey(to, next.Key, r.seq)
	if err != nil {
		return now, err
	}
	r.turn, r.class = turn, r.openClass()
	if !head {
		r.class = classBlocked
	}
	if err := t.insertMessage(to, r.seq, &next); err != nil {
		return now, err
	}
	return next.Ref(), t.insertWaiting(to, &r, int64(next.Size()))
}

// moveHistory gives failures and original to another seq.
func (t *tx) moveHistory(from, to, flags int64) error {
	if flags&(flagFirst|flagLast) != 0 {
		err := t.write(`UPDATE failure SET slot = slot + ? WHERE slot BETWEEN ? AND ?`).int(2 * (to - from)).int(2 * from).int(2*from + 1).run()
		if err != nil {
			return err
		}
	}
	if flags&flagEdited == 0 {
		return nil
	}
	return t.write(`UPDATE original SET seq = ? WHERE seq = ?`).int(to).int(from).run()
}

// editMessage stores an edited message and keeps the original. It returns the
// message as it was.
func (t *tx) editMessage(r *row, m *stored, e *redrive.Edit) (before stored, err error) {
	before = *m
	if err := t.keepOriginal(r, &before); err != nil {
		return before, err
	}
	m.edit(e)
	r.kind = m.Kind
	if err := t.forgetOriginal(r, m); err != nil {
		return before, err
	}
	return before, t.write(`UPDATE message SET key = ?, headers = ?, plan = ?, crc = ?, body = ? WHERE seq = ?`).
		textOrNull(m.Key).blobOrNull(encodeHeaders(m.Headers)).textOrNull(m.Plan).checksum(m.checksum).blob(m.Body).int(r.seq).run()
}

// belong notes the plan that edits a message.
func (m *stored) belong(plan string) {
	if plan != "" {
		m.Plan = plan
	}
}

// forgetOriginal removes the original of a message that is again as it was published, with the
// checksum of then.
func (t *tx) forgetOriginal(r *row, m *stored) error {
	if r.flags&flagEdited == 0 {
		return nil
	}
	var original stored
	st := t.read(`SELECT ` + originalColumns + ` FROM original WHERE seq = ?`).int(r.seq)
	if st.next() {
		original = scanOriginal(st, 0)
	}
	if err := st.done(); err != nil || !driver.Restored(&m.Message, &original.Message) || !original.sound() {
		return err
	}
	m.checksum = original.checksum
	r.flags &^= flagEdited
	return t.write(`DELETE FROM original WHERE seq = ?`).int(r.seq).run()
}

// editDead edits a dead letter in place.
func (t *tx) editDead(q *queue, d *deadRow, m *stored, e *redrive.Edit) error {
	if e == nil {
		return nil
	}
	before, err := t.editMessage(&d.row, m, e)
	if err != nil {
		return err
	}
	if m.Key != before.Key {
		// Under its new key it does not stand in the way of others.
		if err := t.leaveKey(q, before.Key, d.turn, d.seq); err != nil {
			return err
		}
		if d.turn = 0; m.Key != "" {
			if err := t.insertKeyed(q, m.Key, 0, d.seq, d.seq); err != nil {
				return err
			}
		}
	}
	return t.write(`UPDATE dead SET kind = ?, flags = ?, turn = ? WHERE seq = ?`).textOrNull(d.kind).int(d.flags).int(d.turn).int(d.seq).run()
}

// editWaiting edits a waiting message in place. Under another key it lines up at
// the end.
func (t *tx) editWaiting(q *queue, r *row, m *stored, e *redrive.Edit) error {
	t.forgetLease(r.seq)
	next := *r
	next.token = 0 // who handled it as it was before has nothing to settle
	before, err := t.editMessage(&next, m, e)
	if err != nil {
		return err
	}
	t.count(q, countBytes, int64(m.Size()-before.Size()))
	if m.Key == before.Key {
		return t.moveWaiting(q, r, &next)
	}
	if err := t.deleteWaiting(q, r, 0); err != nil {
		return err
	}
	if err := t.leaveKey(q, before.Key, r.turn, r.seq); err != nil {
		return err
	}
	return t.enterAgain(q, &next, m.Key)
}
