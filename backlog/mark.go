package backlog

import (
	"math"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// usage is a number of messages and their size.
type usage struct{ count, bytes int64 }

func (u *usage) add(size int64) {
	u.count++
	u.bytes += size
}

// reading is what the store said about a queue.
type reading struct {
	waiting usage
	entered int64
	age     time.Duration
}

func newReading(c *driver.Counts, clock time.Time) reading {
	r := reading{waiting: usage{count: c.AllWaiting(), bytes: c.Bytes}, entered: c.Ledger.Entered()}
	if oldest := c.Oldest(); !oldest.IsZero() {
		r.age = max(clock.Sub(oldest), 0)
	}
	return r
}

func (r *reading) add(o *reading) {
	r.waiting.count += o.waiting.count
	r.waiting.bytes += o.waiting.bytes
	r.entered += o.entered
	r.age = max(r.age, o.age)
}

// mark is what is known of a queue: what was read, and what was published here since.
type mark struct {
	known   bool
	at      time.Time // of the reading
	read    reading
	added   usage // published since
	earlier usage // of these, what was so when the refresh of that round began
	round   uint64
	flight  usage // being published
	doubt   usage // of added and flight, what may be in the reading too
	unsure  bool  // whether there is room: read anew
	refused bool  // until it is below the soft mark

	rate   float64 // messages that leave a second
	rateAt time.Time
	last   reading // at rateAt
}

// settle ends the flight of a message.
func (m *mark) settle(round uint64, size int64, published bool) {
	m.flight.count = max(m.flight.count-1, 0)
	m.flight.bytes = max(m.flight.bytes-size, 0)
	if !published {
		return
	}
	if m.round != round {
		m.round, m.earlier = round, m.added
	}
	m.added.add(size)
}

// learn takes a reading. What was published while it was read counts on: it may or
// may not be in it.
func (m *mark) learn(round uint64, r *reading, now time.Time) {
	if elapsed := now.Sub(m.rateAt); !m.known || elapsed >= minDrainInterval {
		if m.known {
			left := float64(m.last.waiting.count + r.entered - m.last.entered - r.waiting.count)
			share := 1 - math.Exp(-elapsed.Seconds()/drainMemory.Seconds())
			m.rate += share * (max(left, 0)/elapsed.Seconds() - m.rate)
		}
		m.rateAt, m.last = now, *r
	}
	m.known, m.at, m.read = true, now, *r
	if m.round != round { // nothing since the refresh began
		m.earlier = m.added
	}
	m.added.count -= m.earlier.count
	m.added.bytes -= m.earlier.bytes
	m.earlier = usage{}
	m.unsure, m.doubt = false, usage{count: m.added.count + m.flight.count, bytes: m.added.bytes + m.flight.bytes}
}

// trust takes what is known as it stands, because nothing better can be read.
func (m *mark) trust() { m.unsure, m.doubt = false, usage{} }

// now returns what waits as far as we know, and that is at most: what is published
// while the store is read counts twice until the next reading.
func (m *mark) now() usage {
	return usage{
		count: m.read.waiting.count + m.added.count + m.flight.count,
		bytes: m.read.waiting.bytes + m.added.bytes + m.flight.bytes,
	}
}

// fits reports whether a message of a size has room. When it surely has not, nothing
// has until the queue is below the soft mark. It is not sure where only what may count
// twice stands in the way.
func (m *mark) fits(l Limits, size int64) (room, sure bool) {
	most := m.now()
	if m.refused && !l.none() && !m.below(l, most) {
		return false, true
	}
	m.refused = m.full(l, usage{count: most.count - m.doubt.count, bytes: most.bytes - m.doubt.bytes}, size)
	room = !m.full(l, most, size)
	return room, room || m.refused
}

// full reports whether a message of a size has no room above what waits.
func (m *mark) full(l Limits, u usage, size int64) bool {
	return l.Depth > 0 && u.count >= l.Depth ||
		l.Bytes > 0 && u.bytes+size > l.Bytes && u.count > 0 || // the first one fits always
		l.Age > 0 && m.read.age >= l.Age
}

// below reports whether all is below the soft mark.
func (m *mark) below(l Limits, u usage) bool {
	soft := l.soft()
	return !(l.Depth > 0 && float64(u.count) >= soft*float64(l.Depth) ||
		l.Bytes > 0 && float64(u.bytes) >= soft*float64(l.Bytes) ||
		l.Age > 0 && float64(m.read.age) >= soft*float64(l.Age))
}

func (m *mark) level(l Limits) (driver.Level, time.Duration) {
	if l.none() {
		return driver.LevelOK, 0
	}
	switch room, sure := m.fits(l, 1); {
	case !room && sure:
		return driver.LevelRefused, m.retryAfter(l)
	case !m.below(l, m.now()):
		return driver.LevelWarn, 0
	}
	return driver.LevelOK, 0
}

// retryAfter is how long it takes, at the rate observed, until the queue is below the
// soft mark.
func (m *mark) retryAfter(l Limits) time.Duration {
	u, soft := m.now(), l.soft()
	var excess float64 // messages
	if l.Depth > 0 {
		excess = float64(u.count) - soft*float64(l.Depth)
	}
	if l.Bytes > 0 && u.bytes > 0 {
		excess = max(excess, (float64(u.bytes)-soft*float64(l.Bytes))/float64(u.bytes)*float64(u.count))
	}
	var wait time.Duration
	if l.Age > 0 {
		wait = m.read.age - text.Duration(soft*float64(l.Age))
	}
	if excess > 0 {
		wait = max(wait, text.Duration(excess/m.rate*float64(time.Second))) // a rate of 0 makes it endless
	}
	return min(max(wait, minRetryAfter), maxRetryAfter)
}
