package memory

import (
	"github.com/redrive/redrive"
)

// place is where an item stands within its queue.
type place uint8

const (
	nowhere place = iota
	inLane        // in a lane, due or later
	leased        // claimed
	blocked       // behind the head of its key
)

// item is a message with its state. It is used again after its message is gone, so
// nothing keeps a pointer to it beyond the queue's lock; see order.
type item struct {
	msg redrive.Message

	seq   uint64 // order among the waiting, or among the dead; 0: not in use
	due   int64
	until int64 // end of the lease
	died  int64

	prev, next   *item // neighbours in the lane's list of what is due
	kprev, knext *item // neighbours of the same key
	chain        *chain
	idx          int // in the heap of its lane or of the leases; -1: none
	expIdx       int // in the heap of expiries; -1: none
	deadIdx      int // in the heap of deaths, while it is dead

	place    place
	lane     redrive.Lane
	reason   redrive.Reason
	dead     bool
	suspect  bool
	isolated bool // this claim is or was isolated
	lapsed   bool // this claim ran out
	was      bool // suspect before that
	held     bool // the newest claim is neither settled nor claimed over
	ordered  bool

	token    uint64
	attempts int
	failures int // of this generation; the history counts all
	crashes  int
	instance string
	history  redrive.History
	original *redrive.Message
	memory   *remembered
	sum      uint32 // of the message as it was given
	firstSum uint32 // of the original
}

// before is the order of delivery.
func (it *item) before(other *item) bool {
	return it.due < other.due || it.due == other.due && it.seq < other.seq
}

// lane holds what may be claimed from one place: a list of what is due, in order,
// and a heap of what is due later.
type lane struct {
	head, tail *item
	n          int
	later      heap
}

// add takes an item in and reports whether a waiter must know of it.
func (l *lane) add(it *item, now int64) bool {
	it.place = inLane
	if it.due > now {
		l.later.push(it.due, it)
		return it.idx == 0
	}
	l.link(it)
	return true
}

// link puts a due item into its place in the list, which is nearly always the end.
func (l *lane) link(it *item) {
	l.n++
	after := l.tail
	if after != nil && it.before(l.head) {
		after = nil
	}
	for after != nil && it.before(after) {
		after = after.prev
	}
	it.prev = after
	if after == nil {
		it.next, l.head = l.head, it
	} else {
		it.next, after.next = after.next, it
	}
	if it.next == nil {
		l.tail = it
	} else {
		it.next.prev = it
	}
}

// remove takes an item out.
func (l *lane) remove(it *item) {
	it.place = nowhere
	if it.idx >= 0 {
		l.later.remove(it)
		return
	}
	if it.prev == nil {
		l.head = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.tail = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
	l.n--
}

// promote moves what has become due to the list.
func (l *lane) promote(now int64) {
	for l.later.first() <= now {
		it := l.later.entries[0].it
		l.later.remove(it)
		l.link(it)
	}
}

// chain holds the items of one key in order of publication.
type chain struct{ head, tail *item }

// order lists items by seq. Removed ones stay until they are the majority: an item
// whose seq is another than noted is not meant any more.
type order struct {
	slots []slot
	live  int
}

type slot struct {
	seq uint64
	it  *item
}

func (o *order) add(it *item) {
	if len(o.slots) > 2*o.live+64 {
		kept := o.slots[:0]
		for _, s := range o.slots {
			if s.it.seq == s.seq {
				kept = append(kept, s)
			}
		}
		clear(o.slots[len(kept):])
		o.slots = kept
	}
	o.slots = append(o.slots, slot{it.seq, it})
	o.live++
}

// after yields the items whose seq is greater, in order.
func (o *order) after(seq uint64) func(yield func(*item) bool) {
	lo, hi := 0, len(o.slots)
	for lo < hi {
		if mid := (lo + hi) / 2; o.slots[mid].seq > seq {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return func(yield func(*item) bool) {
		for i := lo; i < len(o.slots); i++ {
			if s := o.slots[i]; s.it.seq == s.seq && !yield(s.it) {
				return
			}
		}
	}
}
