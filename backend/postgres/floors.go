package postgres

import (
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// A claim reads a lane from its oldest message on. While an old transaction elsewhere
// keeps the server from removing dead rows, those of all messages that were claimed
// since lie before the oldest one, and each claim would step over all of them. So a
// claim begins where the lane began when it was last read as a whole, less a margin
// for statements that are slow to commit; and the whole is read again after a time
// that grows with what that costs. A message that was committed later than the margin
// after its due time is found by then, and at once when it was published here.
const (
	floorMargin = time.Second
	floorShare  = 100                    // the whole is read for at most a hundredth of the time
	floorLeast  = 100 * time.Millisecond // and at most this often
	floorMost   = 10 * time.Second       // and at least this often
	floorShort  = 10                     // a tenth of the time, while too little is found
	floorWorth  = 5 * time.Millisecond   // a cheaper whole is always read
)

// floors is where lanes begin.
type floors struct {
	mu sync.Mutex
	of map[floorKey]*floor
}

type floorKey struct {
	queue string
	lane  redrive.Lane
}

type floor struct {
	from time.Time // nothing is due before
	next time.Time // when the whole is read again
	soon time.Time // when it is, if too little was found
}

var wholeLane = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)

// from returns where a claim begins, and whether that is the whole.
func (f *floors) from(req *redrive.ClaimRequest) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[floorKey{req.Queue, req.Lane}]
	if at == nil || at.from.IsZero() || filtered(req) || time.Now().After(at.next) {
		return wholeLane, true
	}
	return at.from, false
}

func filtered(req *redrive.ClaimRequest) bool {
	return len(req.Kinds)+len(req.ExceptKinds)+len(req.ExceptIDs) > 0
}

// learn keeps where a lane began, if reading it as a whole was dear; what was read from
// there on moves it.
func (f *floors) learn(req *redrive.ClaimRequest, whole bool, took time.Duration, got []claimed) {
	if filtered(req) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := floorKey{req.Queue, req.Lane}
	if at := f.of[key]; !whole && at != nil && len(got) < req.Max && at.soon.Before(at.next) {
		at.next = at.soon // a message may have been passed over because of a lock
	}
	if !whole && len(got) == 0 {
		return
	}
	if whole && (took < floorWorth || len(got) == 0) {
		delete(f.of, key)
		return
	}
	from := got[0].due
	for i := range got {
		if got[i].due.Before(from) {
			from = got[i].due
		}
	}
	from = from.Add(-floorMargin)
	at := f.of[key]
	switch {
	case whole:
		if f.of == nil {
			f.of = make(map[floorKey]*floor)
		}
		now := time.Now()
		f.of[key] = &floor{from: from, next: now.Add(min(max(took*floorShare, floorLeast), floorMost)),
			soon: now.Add(min(max(took*floorShort, floorLeast), floorMost))}
	case at != nil && from.After(at.from):
		at.from = from
	}
}

// forget has the lanes of a queue read as a whole, because something may have come
// that was due before.
func (f *floors) forget(queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for lane := range redrive.Lane(redrive.Lanes) {
		delete(f.of, floorKey{queue, lane})
	}
}
