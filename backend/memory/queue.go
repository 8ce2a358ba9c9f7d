package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Lanes beyond those of the vocabulary.
const (
	laneSuspect = driver.Lanes + iota
	laneDead
	laneCount
)

// queue is the state of one queue. Everything but version is under its lock, or
// under the store's step lock held exclusively.
type queue struct {
	s       *Store
	name    string
	version atomic.Uint64

	mu       sync.Mutex
	known    bool // it was published to or configured, not only watched
	settings driver.QueueSettings
	seq      uint64
	byID     map[string]*item
	waiting  order
	dead     order
	lanes    [laneCount]lane
	leases   heap
	expiries heap
	deaths   heap
	chains   map[string]*chain
	oldest   int64 // nothing that waits was published before
	free     []*item

	remembered map[string]*remembered
	forget     []*remembered // in the order in which their messages ended

	byLane   [driver.Lanes]int64
	leased   int64
	blocked  int64
	byReason [driver.LastReason + 1]int64
	causes   map[cause]int64
	series   map[cause]map[span]int64
	bytes    int64
	ledger   driver.Ledger
}

func newQueue(s *Store, name string) *queue {
	q := &queue{s: s, name: name, oldest: never, byID: make(map[string]*item)}
	q.expiries.by, q.deaths.by = byExpiry, byDeath
	q.version.Store(1)
	return q
}

// maxFree bounds the items that are kept for reuse.
const maxFree = 4096

func (q *queue) newItem() *item {
	if n := len(q.free); n > 0 {
		it := q.free[n-1]
		q.free = q.free[:n-1]
		return it
	}
	return &item{idx: -1, expIdx: -1}
}

func (q *queue) nextSeq() uint64 {
	q.seq++
	return q.seq
}

// bump lets waiters know.
func (q *queue) bump() {
	q.version.Add(1)
	if q.s.waiting.Load() > 0 {
		q.s.notify()
	}
}

func (q *queue) laneOf(it *item) *lane {
	switch {
	case it.dead:
		return &q.lanes[laneDead]
	case it.suspect:
		return &q.lanes[laneSuspect]
	}
	return &q.lanes[it.lane]
}

// refresh ends leases that ran out and moves what became due.
func (q *queue) refresh(now int64) {
	for q.leases.first() <= now {
		it := q.leases.entries[0].it
		q.endLease(it, it.until, now)
	}
	for i := range q.lanes {
		q.lanes[i].promote(now)
	}
}

// endLease makes a suspect of a message whose claim ended without a settlement.
func (q *queue) endLease(it *item, at, now int64) {
	q.detach(it)
	it.due = at
	if !it.dead {
		if it.isolated {
			it.crashes++
		}
		it.lapsed, it.was = true, it.suspect
		it.suspect = true
	}
	q.stand(it, now)
}

// unlapse takes back what a lease that ran out has changed: its holder lives after all.
func (q *queue) unlapse(it *item) {
	q.detach(it)
	if it.isolated {
		it.crashes--
	}
	it.lapsed, it.suspect = false, it.was
}

// crash ends the leases that match as the death of their holder would.
func (q *queue) crash(match func(*item) bool, now int64) {
	q.refresh(now)
	var lost []*item
	for _, e := range q.leases.entries {
		if match(e.it) {
			lost = append(lost, e.it)
		}
	}
	for _, it := range lost {
		q.endLease(it, now, now)
	}
}

// detach takes an item from its place, before anything about it changes.
func (q *queue) detach(it *item) {
	switch it.place {
	case inLane:
		q.laneOf(it).remove(it)
	case leased:
		q.leases.remove(it)
		if !it.dead {
			q.leased--
		}
	case blocked:
		q.blocked--
	case nowhere:
	}
	it.place = nowhere
	if it.expIdx >= 0 {
		q.expiries.remove(it)
	}
}

// stand puts an item that is not leased where it belongs.
func (q *queue) stand(it *item, now int64) {
	if !it.dead && !it.msg.ExpiresAt.IsZero() {
		q.expiries.push(nanos(it.msg.ExpiresAt), it)
	}
	if !it.dead && it.ordered && !it.leads() {
		it.place = blocked
		q.blocked++
		return
	}
	if q.laneOf(it).add(it, now) {
		q.bump()
	}
}

// lease delivers an item.
func (q *queue) lease(it *item, until int64) {
	q.detach(it)
	it.place, it.until = leased, until
	q.leases.push(until, it)
	if !it.dead {
		q.leased++
	}
}

// enter counts an item in among the waiting.
func (q *queue) enter(it *item) {
	q.known = true
	q.waiting.add(it)
	q.byLane[it.lane]++
	q.bytes += int64(it.msg.Size())
	q.oldest = min(q.oldest, nanos(it.msg.PublishedAt))
	q.join(it)
}

// leave is the reverse of enter. The item keeps its place in the chain.
func (q *queue) leave(it *item) {
	q.waiting.live--
	q.byLane[it.lane]--
	q.bytes -= int64(it.msg.Size())
}

// enterDead counts an item in among the dead.
func (q *queue) enterDead(it *item) {
	q.known = true
	it.dead = true
	it.seq = q.nextSeq()
	q.dead.add(it)
	q.deaths.push(it.died, it)
	q.byReason[it.reason]++
	q.count(it, 1)
}

func (q *queue) leaveDead(it *item) {
	q.dead.live--
	q.deaths.remove(it)
	q.byReason[it.reason]--
	q.count(it, -1)
	it.dead = false
}

// setLane changes the lane of a waiting, detached item.
func (q *queue) setLane(it *item, l redrive.Lane) {
	q.byLane[it.lane]--
	q.byLane[l]++
	it.lane = l
}

// die makes a dead letter of a waiting item.
func (q *queue) die(it *item, reason redrive.Reason, now int64) {
	q.detach(it)
	q.leave(it)
	it.reason, it.died, it.due = reason, now, now
	it.suspect, it.held = false, false
	q.enterDead(it)
	q.noteDeath(it, now)
	if !it.ordered || q.settings.DeadRelease {
		q.unchain(it, now)
	}
	it.memory.end(redrive.OutcomeDead, reason, now)
	q.stand(it, now)
}

// revive redrives a dead item within its queue, due after a while.
func (q *queue) revive(it *item, plan string, after time.Duration, now int64) {
	q.detach(it)
	q.leaveDead(it)
	it.redriven(plan, now)
	it.due = later(now, after)
	it.seq = q.nextSeq()
	it.memory.revive(now)
	q.enter(it)
	q.stand(it, now)
}

// redriven gives a message its next generation.
func (it *item) redriven(plan string, now int64) {
	if !it.msg.ExpiresAt.IsZero() && nanos(it.msg.ExpiresAt) <= now {
		it.msg.ExpiresAt = time.Time{} // or it would expire again at once
	}
	it.msg.Generation++
	it.msg.Redrives++
	it.msg.Plan = plan
	it.lane = redrive.LaneRedrive
	it.attempts, it.failures, it.crashes = 0, 0, 0
	it.reason, it.died = 0, 0
	it.suspect, it.held, it.isolated = false, false, false
}

// remove ends an item for good; the caller writes the ledger.
func (q *queue) remove(it *item, now int64) {
	q.detach(it)
	if it.dead {
		q.leaveDead(it)
	} else {
		q.leave(it)
	}
	q.unchain(it, now)
	delete(q.byID, it.msg.ID)
	*it = item{idx: -1, expIdx: -1}
	if len(q.free) < maxFree {
		q.free = append(q.free, it)
	}
}

// join adds an item to the end of its key's chain, if it is not in it.
func (q *queue) join(it *item) {
	if it.msg.Key == "" || it.chain != nil {
		return
	}
	if q.chains == nil {
		q.chains = make(map[string]*chain)
	}
	c := q.chains[it.msg.Key]
	if c == nil {
		c = &chain{head: it}
		q.chains[it.msg.Key] = c
	} else {
		c.tail.knext, it.kprev = it, c.tail
	}
	c.tail, it.chain = it, c
}

// unchain takes an item from its key's chain and lets the next one go, if it held it.
func (q *queue) unchain(it *item, now int64) {
	c := it.chain
	if c == nil {
		return
	}
	if it.kprev == nil {
		c.head = it.knext
	} else {
		it.kprev.knext = it.knext
	}
	if it.knext == nil {
		c.tail = it.kprev
	} else {
		it.knext.kprev = it.kprev
	}
	it.chain, it.kprev, it.knext = nil, nil, nil
	if c.head == nil {
		delete(q.chains, it.msg.Key)
		return
	}
	for next := c.head; next != nil; next = next.knext {
		if next.ordered {
			if next.place == blocked {
				q.detach(next)
				q.stand(next, now)
			}
			return
		}
	}
}

// leads reports whether no ordered item of the key stands before this one.
func (it *item) leads() bool {
	for p := it.kprev; p != nil; p = p.kprev {
		if p.ordered {
			return false
		}
	}
	return true
}

// nextDue is when something may be claimed that is not dead: 0 now.
func (q *queue) nextDue() int64 {
	next := q.leases.first()
	for i := range laneDead {
		if q.lanes[i].n > 0 {
			return 0
		}
		next = min(next, q.lanes[i].later.first())
	}
	return next
}
