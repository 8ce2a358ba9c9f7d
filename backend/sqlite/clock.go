package sqlite

import "time"

// A message that nobody delayed is due when it is stored. If its due lies ahead of the clock,
// the clock went back while the store was closed, and the message is due now.

// aheadLeast is how far ahead of the clock a row must be; what is nearer waits for it.
const aheadLeast = int64(time.Second)

// catchUpRows is how many rows one claim makes due.
const catchUpRows = 500

// isAhead reports whether a row is ahead of the clock though nobody delayed it.
func isAhead(now, due, flags int64) bool { return due-now > aheadLeast && flags&flagDelayed == 0 }

// findAhead looks whether the clock went back behind the newest message. Then there may be
// rows ahead of it behind those that were delayed.
func (s *Store) findAhead() error {
	newest, err := s.w.stmt("SELECT published FROM message ORDER BY seq DESC LIMIT 1").one()
	if err != nil || newest-s.now() <= aheadLeast {
		return err
	}
	for _, q := range s.queues {
		for class := range q.state.ahead {
			q.state.ahead[class] = true
		}
		q.shared = q.state
	}
	return nil
}

// catchUp makes rows of a class due that nobody delayed and that are ahead of the clock: behind
// those that are due, in the order that they have.
func (t *tx) catchUp(q *queue, class int64) error {
	s := t.read(`SELECT due FROM waiting WHERE queue = ? AND class = ? AND due <= ? ORDER BY due DESC LIMIT 1`)
	last, err := s.int(q.id).int(class).int(t.now).one()
	if err != nil {
		return err
	}
	if last == 0 {
		last = t.now - catchUpRows
	}
	var rows []row
	s = t.read(`SELECT ` + rowColumns + ` FROM waiting WHERE queue = ? AND class = ? AND due > ? AND NOT flags & 32 ORDER BY due, seq LIMIT ?`)
	s.int(q.id).int(class).int(t.now).int(catchUpRows)
	for s.next() {
		rows = append(rows, scanRow(s, 0))
	}
	if err := s.done(); err != nil {
		return err
	}
	t.touch(q)
	q.state.ahead[class] = len(rows) == catchUpRows
	for i := range rows {
		due := rows[i]
		due.due = min(last+int64(i)+1, t.now)
		if l := t.s.leases.bySeq[due.seq]; l != nil { // claimed as expired
			t.relocate(l, due)
		}
		if err := t.moveWaiting(q, &rows[i], &due); err != nil {
			return err
		}
	}
	return nil
}
