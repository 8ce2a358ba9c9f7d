package machine

import (
	"fmt"
	"math"
	"time"
)

// busy is how many times MinCalls the newest part of the window holds where many calls
// are made.
const busy = 5

// Machine is the state of one provider. It is not safe for concurrent use.
type Machine struct {
	cfg    Config
	random func() float64 // 0 to 1, for jitter

	state   State
	gen     uint32 // raised by each change; what began before it is not judged
	reason  string
	since   time.Duration
	changes []Transition
	now     time.Duration
	tick    time.Duration // end of the current second
	inUse   int

	window      window
	hung        hung
	traffic     traffic
	consecutive int
	network     int
	slowRun     int

	hold   hold
	ramp   ramp
	quota  quota
	drain  drain
	limit  limit
	lentTo time.Duration // probes are ours until then, if shared
}

// New returns a machine that takes its provider for healthy. random returns values
// from 0 to 1.
func New(c Config, random func() float64) *Machine {
	c = c.withDefaults()
	return &Machine{
		cfg: c, random: random, state: Healthy, tick: time.Second, drain: drain{rate: drainStart},
		window: window{width: c.Health.Window / windowSlots}, hung: hung{width: max(c.Health.SlowAfter, 0) / slotsPerSlow},
	}
}

// Acquire asks for a permit for a call now. background says that the call is one of
// the backlog; then it uses up a reservation, if there is one, whether the call may
// begin or not. All that a call needs is taken here, or nothing. A permit must be given
// back by Release.
func (m *Machine) Acquire(now time.Duration, background bool) (Permit, bool) {
	m.advance(now)
	if background {
		return m.acquireDrain()
	}
	m.traffic.asked++
	if m.full() || m.limit.left(m.now) < 1 || !m.admitLive() {
		return Permit{}, false
	}
	m.limit.take(1)
	return m.permit(false), true
}

// acquireDrain is Acquire for a call of the backlog.
func (m *Machine) acquireDrain() (Permit, bool) {
	if m.Reserved() > 0 {
		if m.full() {
			m.giveReserved(1)
			return Permit{}, false
		}
		if m.hold.reserved {
			m.hold.askedAt = m.now
			m.beginProbe()
		} else {
			m.drain.reserved--
		}
		return m.permit(true), true
	}
	if room, _ := m.limitRoom(); m.full() || room < 1 || !m.takeDrain() {
		return Permit{}, false
	}
	m.takeLimit(1)
	return m.permit(true), true
}

// full reports whether as many calls are in flight as may be.
func (m *Machine) full() bool { return m.cfg.MaxInUse > 0 && m.inUse >= m.cfg.MaxInUse }

// permit lets a call begin.
func (m *Machine) permit(background bool) Permit {
	m.inUse++
	return Permit{gen: m.gen, began: m.now, drain: background, canary: m.state == Down, slot: m.hung.begin(m.now)}
}

// admitLive decides about a live call.
func (m *Machine) admitLive() bool {
	switch m.state {
	case Down:
		return m.takeProbe(false)
	case Healthy:
		return true
	case Limited:
		return m.quota.admitLive(m)
	case Recovering:
		return m.ramp.admit(m)
	}
	return false
}

// Release gives a permit back and learns from the end of its call.
func (m *Machine) Release(p Permit, now time.Duration, v Outcome) {
	m.advance(now)
	m.End()
	m.Judge(p, now, v)
}

// End ends a call, of which nothing more is learnt. It is in flight until then.
func (m *Machine) End() { m.inUse-- }

// Judge learns, once, from what a call came to, which may still be in flight.
func (m *Machine) Judge(p Permit, now time.Duration, v Outcome) {
	m.advance(now)
	if p.gen != m.gen {
		return
	}
	m.hung.end(p.slot)
	took := m.now - p.began
	slow := m.cfg.Health.SlowAfter > 0 && took > m.cfg.Health.SlowAfter
	if p.canary {
		m.probeEnded(v, slow)
		return
	}
	if slow {
		m.slowRun++
	} else if v.Class != ClassIgnored {
		m.slowRun = 0
	}
	switch v.Class {
	case ClassSuccess, ClassPermanent:
		m.good(p, took)
	case ClassTransient, ClassNetwork:
		m.bad(p, v.Class)
	case ClassLimited:
		m.refused(v.RetryAfter)
		return
	}
	if m.state == Down {
		return
	}
	if n := m.cfg.Health.SlowRun; slow && n > 0 && m.slowRun >= n {
		m.fail(fmt.Sprintf("%d calls in a row took longer than %s", m.slowRun, m.cfg.Health.SlowAfter))
		return
	}
	if m.state == Recovering && v.Class != ClassIgnored {
		m.ramp.count(m, v.Class == ClassTransient || v.Class == ClassNetwork || slow)
	}
}

func (m *Machine) good(p Permit, took time.Duration) {
	m.window.add(m.now, false)
	m.consecutive, m.quota.inRow = 0, 0
	m.network = max(m.network-1, 0)
	m.traffic.accept(m.now)
	m.traffic.answers++
	m.traffic.latency += took
	if p.drain {
		m.drain.good = true
	}
}

// bad counts a failure, and takes the provider down if it is one too many.
func (m *Machine) bad(p Permit, c Class) {
	m.window.add(m.now, true)
	m.consecutive++
	if p.drain {
		m.drain.bad = true
	}
	if c == ClassNetwork {
		m.network++
	}
	h := &m.cfg.Health
	switch {
	case h.Consecutive > 0 && m.consecutive >= m.runNeeded():
		m.fail(fmt.Sprintf("%d failures in a row", m.consecutive))
	case h.NetworkErrors > 0 && m.network >= h.NetworkErrors:
		m.fail(fmt.Sprintf("%d network errors", m.network))
	case h.ErrorRate > 0:
		for _, t := range [...]tally{m.window.short(), m.window.total} {
			if int(t.calls) >= h.MinCalls && float64(t.bad) >= h.ErrorRate*float64(t.calls) {
				m.fail(fmt.Sprintf("%d of %d calls failed", t.bad, t.calls))
				return
			}
		}
	}
}

// runNeeded is how many failures in a row are an outage. Where many calls are made a
// run of them is likelier by chance, and half as many more take no time.
func (m *Machine) runNeeded() int {
	h := &m.cfg.Health
	if int(m.window.short().calls) >= busy*max(h.MinCalls, 1) {
		return h.Consecutive + h.Consecutive/2
	}
	return h.Consecutive
}

// advance moves the machine to now. A time before the newest one is taken for that.
func (m *Machine) advance(now time.Duration) {
	if now <= m.now {
		return
	}
	m.now = now
	if now >= m.tick {
		m.seconds()
	}
	if n, ok := m.hung.overdue(now); ok && m.state != Down && m.state != Isolated &&
		m.cfg.Health.SlowRun > 0 && n >= m.cfg.Health.SlowRun {
		m.fail(fmt.Sprintf("%d calls are in flight for longer than %s", n, m.cfg.Health.SlowAfter))
	}
	switch m.state {
	case Down:
		m.hold.advance(m)
	case Isolated:
		if now >= m.hold.until {
			m.transition(Down, "the isolation has ended")
			m.hold = hold{until: now, length: m.cfg.Preset.Hold, askedAt: m.hold.askedAt}
		}
	}
}

// seconds does what is done once a second, for each that has passed.
func (m *Machine) seconds() {
	passed := int64((m.now-m.tick)/time.Second) + 1
	m.tick += time.Duration(passed) * time.Second
	m.traffic.second()
	m.drain.second(m)
	if passed > 1 {
		m.traffic.quiet(float64(passed - 1))
	}
	switch m.state {
	case Limited:
		m.quota.second(m)
	case Recovering:
		m.ramp.step(m)
	}
	if m.traffic.trend(&m.cfg.Health) && (m.state == Healthy || m.state == Limited) {
		m.fail(fmt.Sprintf("the latency has risen to more than %g times what it was", m.cfg.Health.TrendFactor))
	}
}

// transition changes the state. What is in flight is no longer judged.
func (m *Machine) transition(to State, reason string) {
	m.changes = append(m.changes, Transition{From: m.state, To: to, At: m.now, Reason: reason})
	m.state, m.reason, m.since = to, reason, m.now
	m.afresh()
}

// afresh forgets what the rules have counted, so that what comes is judged by itself.
func (m *Machine) afresh() {
	m.gen++
	m.window.reset()
	m.hung.reset()
	m.consecutive, m.network, m.slowRun = 0, 0, 0
	m.lapse()
	m.drain.good, m.drain.bad = false, false
	m.traffic.rising = 0
}

// fail takes the provider down.
func (m *Machine) fail(reason string) {
	again := m.state == Recovering
	m.transition(Down, reason)
	m.hold.begin(m, again)
}

// refused learns that the provider asks for less. One that takes nothing has no limit that could
// be learnt: it is down.
func (m *Machine) refused(after time.Duration) {
	m.drain.bad = true
	if m.quota.inRow++; m.quota.inRow >= quotaNothing {
		if reason := "it refuses all calls"; m.state == Down {
			m.hold.longer(m, reason)
		} else {
			m.fail(reason)
		}
		m.hold.until = max(m.hold.until, m.now+after)
		return
	}
	m.quota.lower(m, after)
	if m.state == Limited {
		m.afresh()
		return
	}
	m.transition(Limited, fmt.Sprintf("the provider asks for less than %.3g calls a second", m.quota.last))
}

// restore takes the provider for healthy.
func (m *Machine) restore(reason string) {
	m.transition(Healthy, reason)
	m.hold = hold{askedAt: m.hold.askedAt}
}

// Changes returns the transitions since the last call of it; nil if there is none.
func (m *Machine) Changes() []Transition {
	c := m.changes
	m.changes = nil
	return c
}

// Changed reports whether Changes has something.
func (m *Machine) Changed() bool { return len(m.changes) > 0 }

// State returns the state as it was at the newest time that the machine knows.
func (m *Machine) State() State { return m.state }

// jitter returns d, up to a fifth shorter or longer.
func (m *Machine) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*m.random()))
}

// Stats is what a machine shows of itself.
type Stats struct {
	State     State
	Reason    string
	Since     time.Duration
	Until     time.Duration // end of the hold, isolation or pause; 0: none
	Share     float64       // of the live calls that go through
	RateCap   float64       // calls a second; +Inf: none
	DrainRate float64       // calls a second of the backlog, at most
	Demand    float64       // live calls a second, now
	Usual     float64       // live calls a second, usually
	InUse     int
}

// Stats returns what the machine shows of itself now.
func (m *Machine) Stats(now time.Duration) Stats {
	m.advance(now)
	s := Stats{State: m.state, Reason: m.reason, Since: m.since, RateCap: math.Inf(1), Share: 1,
		Demand: m.traffic.demand, Usual: m.traffic.usual, InUse: m.inUse}
	switch m.state {
	case Down, Isolated:
		s.Share, s.Until = 0, m.hold.until
	case Recovering:
		s.Share = m.ramp.share
	case Limited:
		s.RateCap, s.Until = m.quota.cap, m.quota.pausedUntil
	}
	if s.Share > 0 {
		s.DrainRate = m.drainRate()
	}
	if m.limit.rate > 0 {
		s.DrainRate = min(s.DrainRate, m.limit.rate)
	}
	return s
}
