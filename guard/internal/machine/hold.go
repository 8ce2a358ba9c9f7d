package machine

import (
	"fmt"
	"time"
)

// backlogFirst is how long a probe waits for a message of the backlog, which risks
// no caller, before a live call may be it.
const backlogFirst = 250 * time.Millisecond

// probeClaim is how long a probe that was reserved may take to begin.
const probeClaim = 2 * time.Second

// probeLongest is how long a probe may take where no threshold says what slow is.
const probeLongest = 5 * time.Second

// hold is the time for which a provider that is down gets no calls, and its probes.
type hold struct {
	until    time.Duration
	length   time.Duration // without jitter
	good     int           // probes that succeeded in a row
	probing  bool
	probeEnd time.Duration // then the probe has failed, or was never made
	reserved bool          // for the backlog, not begun
	askedAt  time.Duration // when the backlog asked last
}

// begin starts a hold. again says that the provider failed soon after it came back.
func (h *hold) begin(m *Machine, again bool) {
	x := &m.cfg.Preset
	length := x.Hold
	if again {
		length = min(max(2*h.length, x.Hold), x.MaxHold)
	}
	*h = hold{length: length, until: m.now + m.jitter(length), askedAt: h.askedAt}
	if m.cfg.After > 0 {
		h.until = m.now + m.cfg.After
	}
}

// longer is the next hold, after a probe that failed.
func (h *hold) longer(m *Machine, reason string) {
	h.length = min(2*h.length, m.cfg.Preset.MaxHold)
	h.until = m.now + m.jitter(h.length)
	h.good, h.probing, h.reserved = 0, false, false
	m.reason = reason
	m.changes = append(m.changes, Transition{From: Down, To: Down, At: m.now, Reason: reason})
	m.afresh()
}

func (h *hold) advance(m *Machine) {
	switch {
	case m.cfg.After > 0 && m.now >= h.until:
		m.restore(fmt.Sprintf("%s have passed", m.cfg.After))
	case !h.probing || m.now < h.probeEnd:
	case h.reserved:
		m.giveReserved(1)
	default:
		h.longer(m, "a probe has not ended in time")
	}
}

// probeFree reports whether a probe may be made now.
func (m *Machine) probeFree() bool {
	h := &m.hold
	return m.state == Down && m.cfg.After <= 0 && !h.probing && m.now >= h.until &&
		(!m.cfg.Shared || m.now < m.lentTo)
}

// takeProbe makes a call that was not reserved the probe, if one is due.
func (m *Machine) takeProbe(background bool) bool {
	h := &m.hold
	if background {
		h.askedAt = m.now
	}
	if !m.probeFree() {
		return false
	}
	if !background && h.askedAt > 0 && h.askedAt >= m.since-probeClaim && m.now < h.until+backlogFirst {
		return false // the backlog asks again when the hold ends
	}
	m.beginProbe()
	return true
}

func (m *Machine) beginProbe() {
	m.hold.probing, m.hold.reserved = true, false
	m.hold.probeEnd = m.now + m.probeTime()
}

func (m *Machine) probeTime() time.Duration {
	if m.cfg.Health.SlowAfter > 0 {
		return m.cfg.Health.SlowAfter
	}
	return probeLongest
}

// probeEnded judges a probe.
func (m *Machine) probeEnded(v Outcome, slow bool) {
	h := &m.hold
	h.probing = false
	switch {
	case v.Class == ClassIgnored:
		return
	case v.Class == ClassLimited:
		m.refused(v.RetryAfter)
		return
	case slow:
		h.longer(m, "a probe was slow")
		return
	case v.Class != ClassSuccess && v.Class != ClassPermanent:
		h.longer(m, "a probe failed")
		return
	}
	m.traffic.accept(m.now)
	m.quota.inRow = 0
	if h.good++; h.good < m.cfg.Preset.Canaries {
		return
	}
	m.recover(fmt.Sprintf("%d probes succeeded", h.good))
}

// recover begins to let a share of the calls through.
func (m *Machine) recover(reason string) {
	m.transition(Recovering, reason)
	m.ramp = ramp{share: m.cfg.Start, knee: 1, began: m.now, floor: bucket{tokens: 1, at: m.now}}
	m.drain.rate = drainStart
	m.drain.bucket = bucket{at: m.now}
}

// Lend allows probes until a time, where the configuration says that they are shared.
func (m *Machine) Lend(until time.Duration) { m.lentTo = until }

// ProbeDue returns when the next probe may be made, and false if the provider is not
// down or is probed.
func (m *Machine) ProbeDue(now time.Duration) (time.Duration, bool) {
	m.advance(now)
	return m.hold.until, m.state == Down && m.cfg.After <= 0 && !m.hold.probing
}
