package backlog

import (
	"context"
	"math"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Limits bounds what waits in a queue, or in all queues together. A zero field does
// not bound.
type Limits struct {
	Depth int64         // waiting messages, leased ones included
	Bytes int64         // their size
	Age   time.Duration // how long the oldest message has been due
	// Soft is the share of a limit at which it begins to warn, and below which a queue
	// that was refused is open again. Defaults to 0.8.
	Soft float64
}

const (
	defaultSoft = 0.8
	minReset    = time.Second
	maxReset    = time.Minute
	rateMemory  = 5 * time.Second // over which the drain rate is smoothed
)

func (l Limits) none() bool { return l.Depth <= 0 && l.Bytes <= 0 && l.Age <= 0 }

func (l Limits) soft() float64 {
	if l.Soft > 0 && l.Soft <= 1 {
		return l.Soft
	}
	return defaultSoft
}

// Level tells how full a queue is, or the store if that is worse: [driver.LevelOK],
// [driver.LevelWarn] above the soft limit, [driver.LevelRefused] when publishes are refused. In the
// last case retryAfter says when to try again, by how fast the queue drains: from 1 s
// to 60 s.
func (l *Limiter) Level(queue string) (level driver.Level, retryAfter time.Duration) {
	l.refresh(context.Background(), queue)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r, limits, fullness := l.worse(queue); {
	case math.IsInf(fullness, 1):
		return driver.LevelRefused, r.reset(limits)
	case fullness >= 1:
		return driver.LevelWarn, 0
	}
	return driver.LevelOK, 0
}

// Room tells how many messages still have room, and what the limit is, in messages,
// while a queue or the store is above its soft limit; below it, limit is 0. left falls to 0
// at the hard limit and stays there until publishes are taken again. Without a limit of
// depth, the others are counted in messages such as wait now. reset is how long it takes to
// be below the soft limit, by how fast the queue drains: from 1 s to 60 s. Room goes by
// what [Limiter.Publish] and [Limiter.Level] have learnt, and reads nothing.
func (l *Limiter) Room(queue string) (left, limit int64, reset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, limits, fullness := l.worse(queue)
	if fullness < 1 {
		return 0, 0, 0
	}
	share, of := r.share(limits), float64(limits.Depth)
	if limits.Depth <= 0 {
		of = float64(max(r.now().count, 1)) / share
	}
	const rounding = 1e-6
	if !math.IsInf(fullness, 1) {
		left = int64(max(of*(1-share)+rounding, 0))
	}
	return left, int64(math.Ceil(of - rounding)), r.reset(limits)
}

// worse returns the record of a queue or of the store, whichever is nearer to its limits,
// and how near: from 1 on it is above its soft limit, and it is infinite where publishes are
// refused. l.mu is held.
func (l *Limiter) worse(queue string) (worst *record, limits Limits, fullness float64) {
	for i, of := range []Limits{l.limits(queue), l.o.Total} {
		r := l.record([]string{queue, ""}[i])
		f := r.share(of) / of.soft()
		if !r.fits(of, 1) {
			f = math.Inf(1)
		}
		if worst == nil || f > fullness {
			worst, limits, fullness = r, of, f
		}
	}
	return worst, limits, fullness
}

// usage is a number of messages and their size.
type usage struct{ count, bytes int64 }

func (u *usage) add(count, bytes int64) {
	u.count += count
	u.bytes += bytes
	if u.count <= 0 {
		*u = usage{}
	}
}

// reading is what the store said about a queue.
type reading struct {
	waiting usage
	entered int64
	age     time.Duration
}

func (r *reading) add(c *driver.Counts, clock time.Time) {
	r.waiting.add(c.AllWaiting(), c.Bytes)
	r.entered += c.Ledger.Entered()
	if oldest := c.Oldest(); !oldest.IsZero() {
		r.age = max(r.age, clock.Sub(oldest))
	}
}

// record is what is known of a queue.
type record struct {
	last    reading
	at      time.Time // of last; zero: never
	next    time.Time // when it is read again
	reading bool      // now
	known   usage     // that was read, and what was published here until the next reading began
	added   usage     // what was published here since
	unsure  usage     // what was published here while it was read, which may count twice
	closed  bool      // until it is below the soft limit
	rate    float64   // messages that leave a second
}

// learn takes a reading. What was published while it was read counts on: it may or may not
// be in it.
func (r *record) learn(read reading, now time.Time) {
	if elapsed := now.Sub(r.at).Seconds(); !r.at.IsZero() && elapsed > 0 {
		left := r.last.waiting.count + read.entered - r.last.entered - read.waiting.count
		r.rate += (1 - math.Exp(-elapsed/rateMemory.Seconds())) * (float64(max(left, 0))/elapsed - r.rate)
	}
	r.last, r.at, r.known, r.unsure = read, now, read.waiting, r.added
}

// now is what waits as far as we know.
func (r *record) now() usage {
	return usage{r.known.count + r.added.count, r.known.bytes + r.added.bytes}
}

// share is how much of the limits is used: 1 is full.
func (r *record) share(l Limits) (share float64) {
	u := r.now()
	if l.Depth > 0 {
		share = float64(u.count) / float64(l.Depth)
	}
	if l.Bytes > 0 {
		share = max(share, float64(u.bytes)/float64(l.Bytes))
	}
	if l.Age > 0 {
		share = max(share, float64(r.last.age)/float64(l.Age))
	}
	return share
}

// fits reports whether a message of a size has room. When it has not, nothing has until
// the queue is below the soft limit; where the counts may hold some messages twice, until
// they are read again.
func (r *record) fits(l Limits, size int64) bool {
	u, share := r.now(), r.share(l)
	if r.closed && share >= l.soft() {
		return false
	}
	full := share >= 1 || l.Bytes > 0 && u.bytes+size > l.Bytes && u.count > 0 // the first one fits always
	r.closed = full && r.unsure == usage{}
	return !full
}

// reset is how long it takes, at the rate observed, until the queue is below the soft
// limit.
func (r *record) reset(l Limits) time.Duration {
	excess := float64(r.now().count) * (1 - l.soft()/r.share(l))
	return min(max(text.Duration(excess/r.rate*float64(time.Second)), minReset), maxReset)
}
