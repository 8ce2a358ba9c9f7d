package machine

import (
	"math"
	"time"
)

// How live calls and the backlog share a limit.
const (
	limitShare  = 25                     // a burst is this part of a second's calls, by default
	limitKept   = 4                      // the backlog leaves this part of a burst to live calls
	limitWakeup = 5 * time.Millisecond   // the backlog need not ask more often
	limitLate   = 5 * time.Millisecond   // who asks so much later than he may has lost nothing
	turnShort   = 100 * time.Millisecond // a live call waits so long for its turn
	turnLong    = time.Second            // or for so many turns, up to this
	turns       = 3
)

// limit is the most calls a second that the provider is to get, as a bucket of which a
// permit, a reservation and a booking hold one token each. Live calls go first: they
// may book tokens that are still to come, and the backlog takes what is left over.
type limit struct {
	rate  float64 // 0: no limit
	burst float64
	opens time.Duration // nothing before
	bucket
	share bucket // of the backlog where the live calls by themselves use the limit up
}

// SetLimit sets the most calls a second and how many may come at once; 0 of those is
// the default. There are none before opens.
func (m *Machine) SetLimit(now time.Duration, rate, burst float64, opens time.Duration) {
	m.advance(now)
	l := &m.limit
	if burst <= 0 {
		burst = rate / limitShare
	}
	burst = max(burst, 1) + rate*limitLate.Seconds()
	if l.rate == 0 {
		l.bucket = bucket{tokens: burst, at: m.now}
	}
	l.fill(m.now, l.rate, l.burst)
	l.rate, l.burst, l.opens = rate, burst, opens
	l.tokens = min(l.tokens, burst)
}

// left is how many calls may begin now; less than 0 if some to come are booked.
func (l *limit) left(now time.Duration) float64 {
	switch {
	case l.rate == 0:
		return math.Inf(1)
	case now < l.opens:
		return 0
	}
	l.fill(now, l.rate, l.burst)
	return l.tokens
}

func (l *limit) take(n int) {
	if l.rate > 0 {
		l.tokens -= float64(n)
	}
}

// give takes back what was taken and not used.
func (l *limit) give(n int) { l.tokens = min(l.tokens+float64(n), l.burst) }

// longest is how long a live call waits for its turn at most.
func (l *limit) longest() time.Duration {
	return min(max(time.Duration(turns/l.rate*float64(time.Second)), turnShort), turnLong)
}

// Book gives a live call that Acquire refused its turn under the limit, if it comes
// soon. It is used up by AcquireBooked or given back by Unbook.
func (m *Machine) Book(now time.Duration) (wait time.Duration, ok bool) {
	m.advance(now)
	l := &m.limit
	if l.rate == 0 || m.now < l.opens || m.full() || m.state == Down || m.state == Isolated ||
		m.state == Limited && m.now < m.quota.pausedUntil {
		return 0, false
	}
	if missing := 1 - l.left(m.now); missing > 0 {
		wait = time.Duration(missing/l.rate*float64(time.Second)) + 1
	}
	if wait > l.longest() {
		return 0, false
	}
	l.take(1)
	return wait, true
}

// Unbook gives a turn back.
func (m *Machine) Unbook() { m.limit.give(1) }

// AcquireBooked is Acquire for a live call whose turn has come. It uses the booking up
// in any case.
func (m *Machine) AcquireBooked(now time.Duration) (Permit, bool) {
	m.advance(now)
	if m.full() || !m.admitLive() {
		m.limit.give(1)
		return Permit{}, false
	}
	return m.permit(false), true
}

// limitRoom is how many calls of the backlog the limit has room for, and when to ask
// again if that is too few. Where live calls ask for more than the limit, the backlog
// gets its reserve of it like under a rate cap, else it would wait for ever.
func (m *Machine) limitRoom() (room float64, wait time.Duration) {
	l := &m.limit
	switch {
	case l.rate == 0:
		return math.Inf(1), 0
	case m.now < l.opens:
		return 0, min(l.opens-m.now, turnShort)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s*float64(time.Second)) + 1 }
	kept := math.Floor(l.burst / limitKept)
	room = l.left(m.now) - kept
	wait = max(seconds((1-room)/l.rate), min(limitWakeup, seconds(l.burst/l.rate/2)))
	if m.traffic.demand <= l.rate {
		return max(room, 0), wait
	}
	reserve := l.rate * reserved
	l.share.fill(m.now, reserve, 1)
	return max(room, l.share.tokens), min(wait, max(l.share.wait(reserve), limitWakeup))
}

// takeLimit takes what the backlog was granted.
func (m *Machine) takeLimit(n int) {
	m.limit.take(n)
	m.limit.share.tokens = max(m.limit.share.tokens-float64(n), 0)
}
