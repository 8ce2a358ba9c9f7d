package sqlstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive/driver"
)

// A claim reads a class of a queue from its oldest message on. While an old transaction
// elsewhere keeps the server from removing dead rows, those of all messages that were
// claimed since lie before the oldest one, and each claim would step over all of them.
// So a claim begins where the class began when it was last looked at as a whole, less a
// margin for statements that are slow to commit; and the whole is looked at again, beside
// the claims, after a time that grows with what that costs. A message that was committed
// later than the margin after its due time is found by then.
const (
	FloorMargin = time.Second
	// FloorWorth is what a whole must cost to get a floor: a cheaper one is always read.
	FloorWorth = 5 * time.Millisecond

	floorShare  = 100                    // wholes are looked at for at most a hundredth of the time,
	floorLeast  = 100 * time.Millisecond // at most this often,
	floorMost   = 10 * time.Second       // and at least this often,
	floorShort  = 10                     // unless it takes a tenth of that; sooner, while too little is found
	floorsMost  = 10_000                 // classes that are kept in mind
	peekWorth   = 4 * FloorWorth         // a look at several classes
	floorsPause = 50 * time.Millisecond  // between looks at what is to be looked at
)

// Floors is where classes of queues begin. The zero value is ready; it is safe for
// concurrent use.
type Floors struct {
	mu   sync.Mutex
	of   map[part]*floor
	gone map[part]struct{} // had a floor, which others may know
}

// part is a class of a queue, or the kinds of it that a handler takes.
type part struct {
	queue string
	class int
	kinds string
}

// Part names the messages whose beginning is looked for.
type Part struct {
	Queue              string
	Class              int
	Kinds, ExceptKinds []string
}

type floor struct {
	Part
	from      time.Time // nothing is due before; zero: unknown as yet
	next      time.Time // when the whole is looked at again
	soon      time.Time // when it is, if too little was found
	published time.Time // from, as other processes know it
}

func partOf(req *driver.ClaimRequest, class int) part {
	p := part{queue: req.Queue, class: class}
	if len(req.Kinds)+len(req.ExceptKinds) > 0 {
		kinds, except := slices.Sorted(slices.Values(req.Kinds)), slices.Sorted(slices.Values(req.ExceptKinds))
		p.kinds = strings.Join(kinds, "\x00") + "\x01" + strings.Join(except, "\x00")
	}
	return p
}

// From returns the due time at which a claim begins to read a class; zero: at its
// beginning.
func (f *Floors) From(req *driver.ClaimRequest, class int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.of[partOf(req, class)]; at != nil {
		return at.from
	}
	return time.Time{}
}

// OfQueue returns where a look at a class of a queue begins; zero: at its beginning.
func (f *Floors) OfQueue(queue string, class int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.of[part{queue: queue, class: class}]; at != nil {
		return at.from
	}
	return time.Time{}
}

// Claimed takes in what a claim found that began at from: n messages, the oldest due at
// first, after a reading that took so long.
func (f *Floors) Claimed(req *driver.ClaimRequest, class int, from time.Time, took time.Duration, first time.Time, n int) {
	whole := from.IsZero()
	if whole && took < FloorWorth {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[partOf(req, class)]
	if whole {
		if at == nil {
			at = f.add(partOf(req, class), Part{req.Queue, class, slices.Clone(req.Kinds), slices.Clone(req.ExceptKinds)})
			if at != nil && n > 0 && len(req.ExceptIDs) == 0 { // ids that are excluded may lie before
				at.from = first.Add(-FloorMargin)
				at.after(took)
			}
		}
		return
	}
	if at == nil {
		return
	}
	if next := first.Add(-FloorMargin); n > 0 && len(req.ExceptIDs) == 0 && next.After(at.from) && !at.from.IsZero() {
		at.from = next
	}
	if n < req.Max && at.soon.Before(at.next) {
		at.next = at.soon // one may have been passed over because of a lock
	}
}

// Beginning is where a class of a queue was seen to begin.
type Beginning struct {
	Queue string
	Class int
	First time.Time // zero: nothing is there
}

// Peeked takes in what a look at the given classes as wholes found that took so long:
// where they begin, by the store's clock.
func (f *Floors) Peeked(seen []Beginning, took time.Duration, now time.Time) {
	if took < peekWorth {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range seen {
		key := part{queue: b.Queue, class: b.Class}
		if f.of[key] != nil {
			continue
		}
		if at := f.add(key, Part{Queue: b.Queue, Class: b.Class}); at != nil {
			at.from = beginning(b.First, now)
			at.after(took)
		}
	}
}

// beginning is the floor of what begins at first: what comes later is due from now on.
func beginning(first, now time.Time) time.Time {
	if first.IsZero() || first.After(now) {
		first = now
	}
	return first.Add(-FloorMargin)
}

// add makes a floor that is looked at next. mu is held.
func (f *Floors) add(key part, p Part) *floor {
	if f.of == nil {
		f.of = make(map[part]*floor)
	}
	if len(f.of) >= floorsMost {
		return nil
	}
	at := &floor{Part: p}
	f.of[key] = at
	return at
}

// after sets when the whole is looked at again, if that took so long.
func (at *floor) after(took time.Duration) {
	now := time.Now()
	at.next = now.Add(max(min(max(took*floorShare, floorLeast), floorMost), took*floorShort))
	at.soon = now.Add(max(took*floorShort, floorLeast))
}

// Forget has the classes of a queue read as wholes, because something may have come
// that was due before.
func (f *Floors) Forget(queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.of {
		if key.queue == queue {
			f.drop(key)
		}
	}
}

// Run looks at wholes until ctx ends. look tells where a part begins, zero if nothing is
// there, and what the store's clock was before it looked.
func (f *Floors) Run(ctx context.Context, look func(ctx context.Context, p Part) (first, now time.Time, err error)) {
	for ctx.Err() == nil {
		pause := time.NewTimer(floorsPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		for _, key := range f.stale() {
			f.look(ctx, key, look)
		}
	}
}

// stale returns the parts that are to be looked at.
func (f *Floors) stale() []part {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []part
	now := time.Now()
	for key, at := range f.of {
		if !now.Before(at.next) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (f *Floors) look(ctx context.Context, key part, look func(ctx context.Context, p Part) (first, now time.Time, err error)) {
	f.mu.Lock()
	at := f.of[key]
	f.mu.Unlock()
	if at == nil || ctx.Err() != nil {
		return
	}
	began := time.Now()
	first, now, err := look(ctx, at.Part)
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[key] != at { // forgotten meanwhile
		return
	}
	if err == nil && took < FloorWorth {
		f.drop(key) // the whole is cheap to read again
		return
	}
	if err == nil {
		at.from = beginning(first, now)
	}
	at.after(took)
}
