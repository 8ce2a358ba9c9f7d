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
	// Rate is how many messages a second may leave the queue at most, where that is known,
	// such as its target's rate. It is what [Limiter.Level] reckons with as long as fewer
	// than 20 were seen to leave. Defaults to 0: not known.
	Rate float64
}

const (
	defaultSoft = 0.8
	minReset    = time.Second
	maxReset    = time.Minute
	firstReset  = 5 * time.Second // at most, while it is not known how fast the queue drains
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
// to 60 s; where that is not known yet, by [Limits.Rate] or, without one, at most 5 s.
func (l *Limiter) Level(queue string) (level driver.Level, retryAfter time.Duration) {
	l.refresh(context.Background(), false, queue)
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

// Wait tells how long it takes until what waits in a queue now has left it, by the same
// reckoning and within the same bounds as the time of Level, also for a queue without limits.
func (l *Limiter) Wait(queue string) time.Duration {
	l.refresh(context.Background(), true, queue)
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record(queue)
	return r.after(float64(r.now().count), l.limits(queue))
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
	drain   drain
}

// drain is how fast messages leave a queue, by stretches of time in which enough of them did.
type drain struct {
	gone   float64 // messages that left in this stretch
	spent  float64 // seconds of it
	before float64 // messages a second in the one before; 0: there was none
}

// A stretch has so many messages and seconds; a queue of which drainSlack more than expected
// stay out is taken to be slower than before.
const (
	drainCount   = 20
	drainSeconds = 5
	drainSlack   = 4
)

func (d *drain) add(gone, seconds float64) {
	d.gone += gone
	d.spent += seconds
	if d.gone >= drainCount && d.spent >= drainSeconds {
		*d = drain{before: d.gone / d.spent}
	}
}

// rate is how many messages leave a second; 0: not known.
func (d *drain) rate() float64 {
	switch {
	case d.before > 0:
		return min(d.before, (d.gone+drainSlack)/d.spent)
	case d.gone >= drainCount:
		return d.gone / d.spent
	}
	return 0
}

// learn takes a reading. What was published while it was read counts on: it may or may not
// be in it. Of a long time at whose beginning or end nothing waited it is not known how much of
// it the queue had something to drain.
func (r *record) learn(read reading, now time.Time) {
	waited := r.last.waiting.count > 0 && read.waiting.count > 0
	if elapsed := now.Sub(r.at); !r.at.IsZero() && elapsed > 0 && (waited || elapsed <= firstReset) {
		left := r.last.waiting.count + read.entered - r.last.entered - read.waiting.count
		r.drain.add(float64(max(left, 0)), elapsed.Seconds())
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

// reset is how long it takes until the queue is below the soft limit.
func (r *record) reset(l Limits) time.Duration {
	return r.after(float64(r.now().count)*(1-l.soft()/r.share(l)), l)
}

// after is how long some messages take to leave, at the rate observed or else the one that is
// configured.
func (r *record) after(excess float64, l Limits) time.Duration {
	rate, most := r.drain.rate(), maxReset
	if rate == 0 {
		if rate = l.Rate; rate <= 0 {
			most = firstReset
		}
	}
	return min(max(text.Duration(excess/rate*float64(time.Second)), minReset), most)
}
