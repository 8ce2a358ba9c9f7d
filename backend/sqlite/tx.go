package sqlite

import (
	"errors"

	"github.com/redrive/redrive/driver"
)

// tx is the transaction of one group.
type tx struct {
	s       *Store
	now     int64
	careful bool   // every item has its own savepoint
	began   bool   // the transaction is open
	durable bool   // its commit is synced
	writes  int    // statements that changed something
	failure error  // the group cannot be committed like this
	undo    []undo // what to take back in memory
	touched []*queue
	fresh   []fresh // not stored yet
	tallies map[tallied]*tally
}

// undo is one change in memory: of a counter, a lease, or a claim's open leases.
type undo struct {
	queue   *queue
	n       int64
	counter counter
	added   bool // the lease was added, else it was removed
	lease   *lease
	before  *lease
	claim   *claim
	made    *queue // got its number
	row     *row   // what the row of the lease was
	tally   *tallyStep

	settings *formerSettings
}

// formerSettings is what the settings of a queue were.
type formerSettings struct {
	queue    *queue
	settings driver.QueueSettings
}

// run works through a group.
func (t *tx) run(group []operation) {
	t.s.leaseMu.Lock()
	defer t.s.leaseMu.Unlock()
	t.check(t.lapse())
	for _, o := range group {
		if t.failure == nil {
			o.run(t)
		}
	}
}

// read returns a statement that changes nothing.
func (t *tx) read(sql string) *stmt {
	if !t.began {
		t.check(t.begin())
	}
	if len(t.fresh) > 0 {
		t.check(t.storeFresh())
	}
	return t.s.w.stmt(sql)
}

// write returns a statement that changes something.
func (t *tx) write(sql string) *stmt {
	t.writes++
	return t.read(sql)
}

func (t *tx) begin() error {
	t.began = true
	return t.s.w.stmt("BEGIN IMMEDIATE").run()
}

func (t *tx) check(err error) {
	if err != nil && t.failure == nil {
		t.failure = err
	}
}

// item runs fn for one item of an operation. What fn wrote before it failed is
// taken back, without its neighbours.
func (t *tx) item(fn func() error) error {
	if t.failure != nil {
		return t.failure
	}
	if t.careful {
		return t.carefulItem(fn)
	}
	writes := t.writes
	err := fn()
	var broken *sqlError
	if err != nil && (t.writes != writes || errors.As(err, &broken)) {
		t.check(err)
	}
	return err
}

func (t *tx) carefulItem(fn func() error) error {
	if err := t.read("SAVEPOINT item").run(); err != nil {
		t.check(err)
		return err
	}
	since := len(t.undo)
	err := fn()
	if err == nil {
		t.check(t.s.w.stmt("RELEASE item").run())
		return nil
	}
	if !t.s.w.inTx() || isFull(err) || isFatal(err) || isCorrupt(err) {
		t.check(err)
		return err
	}
	t.takeBack(since)
	t.check(t.s.w.stmt("ROLLBACK TO item").run())
	t.check(t.s.w.stmt("RELEASE item").run())
	return err
}

// touch notes that a queue's state changed.
func (t *tx) touch(q *queue) {
	if !q.changed {
		q.changed = true
		t.touched = append(t.touched, q)
	}
}

// bump notes that something became claimable.
func (t *tx) bump(q *queue) {
	t.touch(q)
	q.bumped = true
}

// count changes a counter of a queue.
func (t *tx) count(q *queue, c counter, n int64) {
	if n == 0 {
		return
	}
	t.touch(q)
	q.counted = true
	q.state.counts[c] += n
	t.undo = append(t.undo, undo{queue: q, counter: c, n: n})
}

// addLease claims a message.
func (t *tx) addLease(l *lease) {
	before := t.s.leases.bySeq[l.seq] // lapsed
	if before != nil {
		t.endLease(before, false)
	}
	t.s.leases.add(l)
	t.undo = append(t.undo, undo{lease: l, added: true})
	t.countLease(l, 1)
	l.queue.leaseEnd.Store(min(l.until, l.queue.leaseEnd.Load()))
}

// countLease counts a lease of a waiting message: a dead letter in flight
// is dead.
func (t *tx) countLease(l *lease, n int64) {
	if !l.dead {
		l.queue.state.leased += n
	}
	t.touch(l.queue)
}

// endLease ends a lease. A lapsed one still settles until somebody claims again.
func (t *tx) endLease(l *lease, lapse bool) {
	copied := *l
	t.undo = append(t.undo, undo{lease: l, before: &copied})
	if !l.lapsed {
		t.countLease(l, -1)
	}
	if !lapse {
		t.s.leases.remove(l)
		return
	}
	t.s.leases.pop(l)
	l.lapsed = true
}

// relocate notes where the row of a lease is now.
func (t *tx) relocate(l *lease, r row) {
	before := l.row
	t.undo = append(t.undo, undo{lease: l, row: &before})
	l.row = r
}

// takeBack undoes the changes in memory since an earlier length of undo.
func (t *tx) takeBack(since int) {
	for i := len(t.undo) - 1; i >= since; i-- {
		u := t.undo[i]
		switch {
		case u.queue != nil:
			u.queue.state.counts[u.counter] -= u.n
		case u.tally != nil:
			u.tally.tally.add(-u.tally.n, u.tally.bucket)
		case u.claim != nil:
			u.claim.open++
		case u.row != nil:
			u.lease.row = *u.row
		case u.settings != nil:
			u.settings.queue.settings = u.settings.settings
		case u.made != nil:
			u.made.id = 0
		case u.added:
			t.s.leases.remove(u.lease)
			t.countLease(u.lease, -1)
		default:
			if u.lease.lapsed && !u.before.lapsed {
				t.s.leases.remove(u.lease)
			}
			*u.lease = *u.before
			u.lease.slot = -1
			t.s.leases.add(u.lease)
			if !u.lease.lapsed {
				t.countLease(u.lease, 1)
			}
		}
	}
	t.undo = t.undo[:since]
	for _, q := range t.touched {
		q.forgetPlaces()
	}
}

// commit makes the group durable and shows its results.
func (t *tx) commit() error {
	if t.failure == nil {
		t.check(t.storeFresh())
	}
	if t.failure == nil && len(t.tallies) > 0 {
		t.check(t.storeTallies())
	}
	err := t.failure
	if err == nil && t.began {
		for _, q := range t.touched {
			if q.counted && err == nil {
				err = t.writeCounts(q)
			}
		}
		if err == nil {
			err = t.s.w.stmt("COMMIT").run()
		}
	}
	if err != nil {
		t.rollback()
		return err
	}
	t.s.publishState(t.touched)
	return nil
}

func (t *tx) rollback() {
	if t.s.w.inTx() {
		_ = t.s.w.stmt("ROLLBACK").run() // if it fails, the next BEGIN does too
	}
	t.s.leaseMu.Lock()
	t.takeBack(0)
	t.s.leaseMu.Unlock()
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for _, q := range t.touched {
		q.changed, q.counted, q.bumped = false, false, false
		q.stamp++ // somebody may have seen the leases that were taken back
	}
}

// writeCounts stores the numbers of a queue.
func (t *tx) writeCounts(q *queue) error {
	s := t.write(countsUpdate)
	s.ints(q.state.counts[:]...)
	return s.int(q.id).run()
}

// publishState shows what changed to those who are not the writer, and wakes who
// waits for it.
func (s *Store) publishState(touched []*queue) {
	woken := false
	s.mu.Lock()
	for _, q := range touched {
		q.shared = q.state
		q.stamp++
		if q.number == 0 { // never changes again, so that others may read it without the lock
			q.number = q.id
		}
		if q.bumped {
			q.version++
			woken = woken || q.watched
		}
		q.changed, q.counted, q.bumped = false, false, false
	}
	s.mu.Unlock()
	s.showLeaseEnd()
	if woken {
		s.wakeWaiters()
	}
}
