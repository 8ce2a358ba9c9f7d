package machine

import (
	"math"
	"time"
)

// drainBurst is how much of a second's drain may come at once.
const drainBurst = 0.1

// waitingFor is how long after it asked the backlog is taken to be there.
const waitingFor = 2 * time.Second

// drain is the pace at which the backlog is worked off.
type drain struct {
	rate      float64 // what the provider was seen to bear
	bucket    bucket
	reserved  int // granted before the claim, not begun
	askedAt   time.Duration
	asked     bool
	good, bad bool // in this second
}

// second lets the rate grow after a good second and halves it after a bad one.
func (d *drain) second(m *Machine) {
	switch {
	case d.bad:
		d.rate = max(d.rate/2, drainStart)
	case d.good:
		d.rate = min(2*d.rate, max(m.drainLimit(), drainStart))
	}
	d.good, d.bad = false, false
}

// drainLimit keeps drain and live calls together at what is usual plus MaxShare of it.
func (m *Machine) drainLimit() float64 {
	t := &m.traffic
	switch {
	case m.cfg.Fixed > 0:
		return m.cfg.Fixed
	case t.usual == 0:
		return drainMost
	}
	return max(m.cfg.Preset.MaxShare*t.usual+max(t.usual-t.demand, 0), drainStart)
}

// drainRate is how many calls of the backlog a second may be made now.
func (m *Machine) drainRate() float64 {
	d := &m.drain
	rate := min(d.rate, m.drainLimit())
	if m.cfg.Fixed > 0 {
		rate = m.cfg.Fixed
	}
	switch m.state {
	case Limited:
		if m.now < m.quota.pausedUntil {
			return 0
		}
		return m.backlogRate()
	case Recovering:
		return max(min(rate, m.ramp.share*m.drainLimit()), drainStart)
	case Healthy:
		return rate
	}
	return 0
}

// backlogRate is the part of a rate cap that the backlog gets: its reserve, and what
// the live calls leave. Without a backlog it is nothing.
func (m *Machine) backlogRate() float64 {
	if m.state != Limited || !m.drain.asked || m.now-m.drain.askedAt > waitingFor {
		return 0
	}
	q := m.quota.cap
	return min(max(q*reserved, q-m.traffic.demand), m.drainLimit())
}

// drainRoom is how many calls of the backlog may begin now without making this second
// busier than usual plus MaxShare. Where a second has few calls, the live ones come in
// bursts that are peaks by themselves: the backlog keeps out of their way, by their
// standard deviation.
func (m *Machine) drainRoom() float64 {
	t := &m.traffic
	if m.state == Limited || m.cfg.Fixed > 0 || t.usual == 0 {
		return math.Inf(1)
	}
	busy := max((1+m.cfg.Preset.MaxShare)*t.usual-math.Sqrt(t.usual), drainStart) + 1
	return busy - t.acceptedRate(m.now) - float64(m.inUse+m.drain.reserved)
}

// takeDrain lets a call of the backlog through that was not reserved, if there is room.
func (m *Machine) takeDrain() bool {
	d := &m.drain
	switch m.state {
	case Isolated:
		return false
	case Down:
		return m.takeProbe(true)
	}
	d.asked, d.askedAt = true, m.now
	if m.drainRoom() < 1 {
		return false
	}
	rate := m.drainRate()
	return m.drainBucket().take(m.now, rate, max(1, rate*drainBurst))
}

func (m *Machine) drainBucket() *bucket {
	if m.state == Limited {
		return &m.quota.bg
	}
	return &m.drain.bucket
}

// Reserve grants up to n calls of the backlog, before its messages are claimed. If it
// grants less, wait says when to ask again. Each is used up by an Acquire or given back
// by Return.
func (m *Machine) Reserve(now time.Duration, n int) (granted int, wait time.Duration) {
	m.advance(now)
	d := &m.drain
	d.asked, d.askedAt = true, m.now
	if m.cfg.MaxInUse > 0 {
		if room := m.cfg.MaxInUse - m.inUse - d.reserved; room < n {
			n, wait = max(room, 0), time.Second
		}
	}
	if n == 0 {
		return 0, wait
	}
	limited, turn := m.limitRoom()
	switch m.state {
	case Down:
		m.hold.askedAt = m.now
		if limited < 1 {
			return 0, turn
		}
		return m.reserveProbe()
	case Isolated:
		return 0, min(max(m.hold.until-m.now, time.Millisecond), time.Second)
	case Limited:
		if m.now < m.quota.pausedUntil {
			return 0, m.quota.pausedUntil - m.now
		}
	}
	rate := m.drainRate()
	b := m.drainBucket()
	b.fill(m.now, rate, max(1, rate*drainBurst))
	room := max(m.drainRoom(), 0)
	granted = min(n, int(min(b.tokens, room, limited)))
	b.tokens -= float64(granted)
	m.takeLimit(granted)
	d.reserved += granted
	switch {
	case granted == n:
	case room < 1:
		wait = acceptedSlot
	case limited < b.tokens+float64(granted):
		_, wait = m.limitRoom()
	default:
		wait = max(b.wait(rate), 10*time.Millisecond)
	}
	return granted, wait
}

func (m *Machine) reserveProbe() (granted int, wait time.Duration) {
	h := &m.hold
	switch {
	case m.probeFree():
		h.probing, h.reserved = true, true
		h.probeEnd = m.now + probeClaim
		m.takeLimit(1)
		return 1, time.Second
	case h.probing:
		wait = h.probeEnd - m.now
	case m.now < h.until:
		wait = h.until - m.now
	default:
		wait = time.Second
	}
	return 0, min(max(wait, time.Millisecond), time.Second)
}

// Reserved is how many calls were reserved and have neither begun nor been given back.
func (m *Machine) Reserved() int {
	if m.hold.reserved {
		return 1
	}
	return m.drain.reserved
}

// Return gives back what Reserve granted and nobody uses, and returns how much of it
// was this machine's.
func (m *Machine) Return(now time.Duration, n int) int {
	m.advance(now)
	n = min(n, m.Reserved())
	if n > 0 && m.state == Down {
		m.hold.askedAt = 0 // there is no backlog to wait for
	}
	m.giveReserved(n)
	return n
}

// giveReserved undoes n reservations, with all that each of them took.
func (m *Machine) giveReserved(n int) {
	switch {
	case n == 0:
		return
	case m.hold.reserved:
		m.hold.probing, m.hold.reserved = false, false
	default:
		m.drain.reserved -= n
		m.drainBucket().tokens += float64(n)
	}
	m.limit.give(n)
}

// lapse ends all reservations, because what they were granted by has changed: what was
// claimed for them asks anew.
func (m *Machine) lapse() {
	m.limit.give(m.Reserved())
	m.drain.reserved = 0
	if m.hold.reserved {
		m.hold.probing, m.hold.reserved = false, false
	}
}
