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
// rows ahead of it behind those that were delayed. Dead letters are looked at by queue.
func (s *Store) findAhead() error {
	for _, q := range s.queues {
		if err := s.findDeadAhead(q); err != nil {
			return err
		}
	}
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

// findDeadAhead looks whether the clock went back behind a queue's newest dead letter.
func (s *Store) findDeadAhead(q *queue) error {
	newest, err := s.w.stmt("SELECT died FROM dead WHERE queue = ? ORDER BY died DESC LIMIT 1").int(q.id).one()
	q.state.deadAhead = newest-s.now() > aheadLeast
	q.shared.deadAhead = q.state.deadAhead
	return err
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

// catchUpDead makes dead letters of a queue due that nobody put off, and that are ahead of the
// clock, in their order. Those are due when they died.
func (t *tx) catchUpDead(q *queue) error {
	var seqs []int64
	s := t.read(`SELECT seq FROM dead INDEXED BY dead_due WHERE queue = ? AND due > ? AND due = died ORDER BY due, seq LIMIT ?`)
	s.int(q.id).int(t.now).int(catchUpRows)
	for s.next() {
		seqs = append(seqs, s.colInt(0))
	}
	if err := s.done(); err != nil {
		return err
	}
	t.touch(q)
	q.state.deadAhead = len(seqs) == catchUpRows
	for i, seq := range seqs {
		if err := t.write(`UPDATE dead SET due = ? WHERE seq = ?`).int(t.now - int64(len(seqs)-1-i)).int(seq).run(); err != nil {
			return err
		}
	}
	return nil
}
