package sqlite

// lease is one message in flight. Leases live in memory, as the process
// has the file for itself; what must outlive it is the record of its claim.
type lease struct {
	row
	queue    *queue
	id       string
	key      string
	size     int64
	token    uint64
	instance string
	until    int64
	suspect  int64  // flagSuspect, if it was one when it was claimed
	dead     bool   // of a dead letter
	lapsed   bool   // ran out; settles until somebody claims again
	claim    *claim // nil for a dead letter
	slot     int    // place in the heap of ends; -1: not in it
}

// claim is what one Claim delivered, for its record.
type claim struct {
	token    uint64 // key of its record
	isolated bool
	open     int // leases that are neither settled nor lapsed
}

// leases is who holds what. The writer changes it under Store.leaseMu.
type leases struct {
	byToken map[uint64]*lease
	bySeq   map[int64]*lease
	ends    []*lease // heap by until
}

func newLeases() leases {
	return leases{byToken: make(map[uint64]*lease), bySeq: make(map[int64]*lease)}
}

func (ls *leases) add(l *lease) {
	ls.byToken[l.token] = l
	ls.bySeq[l.seq] = l
	if !l.lapsed {
		ls.push(l)
	}
}

func (ls *leases) remove(l *lease) {
	delete(ls.byToken, l.token)
	if ls.bySeq[l.seq] == l {
		delete(ls.bySeq, l.seq)
	}
	ls.pop(l)
}

// held returns the lease that keeps a message from being claimed or changed.
func (ls *leases) held(seq int64) *lease {
	if l := ls.bySeq[seq]; l != nil && !l.lapsed {
		return l
	}
	return nil
}

func (ls *leases) push(l *lease) {
	l.slot = len(ls.ends)
	ls.ends = append(ls.ends, l)
	ls.up(l.slot)
}

func (ls *leases) pop(l *lease) {
	i := l.slot
	if i < 0 {
		return
	}
	last := len(ls.ends) - 1
	ls.swap(i, last)
	ls.ends[last] = nil
	ls.ends = ls.ends[:last]
	l.slot = -1
	if i < last {
		ls.fix(i)
	}
}

func (ls *leases) fix(i int) {
	ls.down(i)
	ls.up(i)
}

func (ls *leases) swap(i, j int) {
	ls.ends[i], ls.ends[j] = ls.ends[j], ls.ends[i]
	ls.ends[i].slot, ls.ends[j].slot = i, j
}

func (ls *leases) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if ls.ends[parent].until <= ls.ends[i].until {
			return
		}
		ls.swap(i, parent)
		i = parent
	}
}

func (ls *leases) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(ls.ends); child++ {
			if ls.ends[child].until < ls.ends[least].until {
				least = child
			}
		}
		if least == i {
			return
		}
		ls.swap(i, least)
		i = least
	}
}

// lapse ends the leases that have run out: their messages become suspects whose
// attempt counts, unless they are dead letters.
func (t *tx) lapse() error {
	for len(t.s.leases.ends) > 0 && t.s.leases.ends[0].until <= t.now {
		l := t.s.leases.ends[0]
		t.endLease(l, true)
		if l.dead {
			t.bump(l.queue)
			continue
		}
		r := l.row
		r.attempts++
		if l.claim.isolated {
			r.crashes++
		}
		r.flags |= flagSuspect
		r.token = int64(l.token) //nolint:gosec // epochs are far below 2^31
		if r.class != classBlocked {
			r.class = classSuspect
		}
		r.setDue(t.now, t.now)
		if err := t.moveWaiting(l.queue, &l.row, &r); err != nil {
			return err
		}
		t.relocate(l, r)
		if err := t.settledOne(l); err != nil {
			return err
		}
	}
	return nil
}

// settledOne counts a lease of a claim as ended, and deletes its record with the
// last.
func (t *tx) settledOne(l *lease) error {
	c := l.claim
	if c == nil {
		return nil
	}
	t.undo = append(t.undo, undo{claim: c})
	if c.open--; c.open > 0 {
		return nil
	}
	return t.write(`DELETE FROM claim WHERE token = ?`).int(int64(c.token)).run() //nolint:gosec // see lapse
}

// forgetLease drops the lapsed lease of a message that is changed by other means.
func (t *tx) forgetLease(seq int64) {
	if l := t.s.leases.bySeq[seq]; l != nil {
		t.endLease(l, false)
	}
}
