package sqlite

// Order by key. Every message with a key has a row in keyed; of those that take
// part in the order of their key, the one with the lowest turn is the head.

// enterKey gives a new message of a queue its place in its key, and reports
// whether it is the head of it. turn is 0 where the queue has no order.
func (t *tx) enterKey(q *queue, key string, seq int64) (turn int64, head bool, err error) {
	if key == "" {
		return 0, true, nil
	}
	if !q.settings.OrderByKey {
		return 0, true, t.insertKeyed(q, key, 0, seq, seq)
	}
	first, err := t.headOf(q, key)
	if err != nil {
		return 0, false, err
	}
	turn = seq
	if first != 0 { // after a redrive, the last turn may be later than seq
		last, err := t.lastTurn(q, key)
		if err != nil {
			return 0, false, err
		}
		turn = max(turn, last+1)
	}
	return turn, first == 0, t.insertKeyed(q, key, 1, turn, seq)
}

func (t *tx) insertKeyed(q *queue, key string, ordered, turn, seq int64) error {
	return t.write(`INSERT INTO keyed (queue, key, ordered, turn, seq) VALUES (?, ?, ?, ?, ?)`).
		int(q.id).text(key).int(ordered).int(turn).int(seq).run()
}

// headOf returns the turn of the head of a key, or 0.
func (t *tx) headOf(q *queue, key string) (int64, error) {
	s := t.read(`SELECT turn FROM keyed WHERE queue = ? AND key = ? AND ordered = 1 ORDER BY turn LIMIT 1`)
	s.int(q.id).text(key)
	var turn int64
	if s.next() {
		turn = s.colInt(0)
	}
	return turn, s.done()
}

func (t *tx) lastTurn(q *queue, key string) (int64, error) {
	s := t.read(`SELECT turn FROM keyed WHERE queue = ? AND key = ? AND ordered = 1 ORDER BY turn DESC LIMIT 1`)
	s.int(q.id).text(key)
	var turn int64
	if s.next() {
		turn = s.colInt(0)
	}
	return turn, s.done()
}

// leaveKey takes a message out of its key, and frees the next if it was the head.
func (t *tx) leaveKey(q *queue, key string, turn, seq int64) error {
	if key == "" {
		return nil
	}
	ordered := int64(1)
	if turn == 0 {
		ordered, turn = 0, seq
	}
	if err := t.deleteKeyed(q, key, ordered, turn, seq); err != nil || ordered == 0 {
		return err
	}
	return t.freeHead(q, key)
}

func (t *tx) deleteKeyed(q *queue, key string, ordered, turn, seq int64) error {
	return t.write(`DELETE FROM keyed WHERE queue = ? AND key = ? AND ordered = ? AND turn = ? AND seq = ?`).
		int(q.id).text(key).int(ordered).int(turn).int(seq).run()
}

// letGo takes a dead letter out of the order of its key, where it can still be
// found, and frees the next.
func (t *tx) letGo(q *queue, key string, turn, seq int64) error {
	if err := t.deleteKeyed(q, key, 1, turn, seq); err != nil {
		return err
	}
	if err := t.insertKeyed(q, key, 0, seq, seq); err != nil {
		return err
	}
	return t.freeHead(q, key)
}

// freeHead makes the head of a key claimable if it is blocked. A head that is dead
// or leased stays what it is.
func (t *tx) freeHead(q *queue, key string) error {
	s := t.read(`SELECT seq FROM keyed WHERE queue = ? AND key = ? AND ordered = 1 ORDER BY turn LIMIT 1`)
	s.int(q.id).text(key)
	var seq int64
	if s.next() {
		seq = s.colInt(0)
	}
	if err := s.done(); err != nil || seq == 0 {
		return err
	}
	r, ok, err := t.waitingRow(q, seq)
	if err != nil || !ok || r.class != classBlocked {
		return err
	}
	free := r
	free.class = free.openClass()
	if free.flags&flagDelayed == 0 {
		free.due = min(free.due, t.now) // the clock may have gone back
	}
	if l := t.s.leases.bySeq[seq]; l != nil { // claimed as expired while it was blocked
		t.relocate(l, free)
	}
	return t.moveWaiting(q, &r, &free)
}

// openClass is the class of a row that nothing blocks.
func (r *row) openClass() int64 {
	if r.flags&flagSuspect != 0 {
		return classSuspect
	}
	return r.lane
}

// waitingRow reads the row of a waiting message.
func (t *tx) waitingRow(q *queue, seq int64) (r row, ok bool, err error) {
	s := t.read(`SELECT ` + rowColumns + ` FROM waiting INDEXED BY waiting_seq WHERE queue = ? AND seq = ?`).int(q.id).int(seq)
	if s.next() {
		r, ok = scanRow(s, 0), true
	}
	return r, ok, s.done()
}
