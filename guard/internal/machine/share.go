package machine

import "time"

// Force sets a state from outside. Down, Limited and Isolated end after d.
func (m *Machine) Force(now time.Duration, s State, d time.Duration, reason string) {
	m.advance(now)
	switch s {
	case Healthy:
		m.restore(reason)
	case Recovering:
		m.recover(reason)
	case Limited:
		m.quota.lower(m, d)
		m.transition(Limited, reason)
	case Down, Isolated:
		m.transition(s, reason)
		m.hold = hold{length: m.cfg.Preset.Hold, until: m.now + d, askedAt: m.hold.askedAt}
	}
}

// Saved is what a restart must not forget, and what instances tell each other.
type Saved struct {
	State  State         `json:"state"`
	Reason string        `json:"reason"`
	Left   time.Duration `json:"left_ns"` // of the hold, isolation or pause
	Hold   time.Duration `json:"hold_ns"` // its length
	Cap    float64       `json:"cap"`     // calls a second
	Last   float64       `json:"limit"`   // the limit as it was seen last
	Usual  float64       `json:"usual"`   // live calls a second
	Age    time.Duration `json:"age_ns"`  // of the state
	Share  float64       `json:"share"`   // of the live calls, while it recovers
}

// Save returns what Restore takes.
func (m *Machine) Save(now time.Duration) Saved {
	m.advance(now)
	s := Saved{State: m.state, Reason: m.reason, Hold: m.hold.length, Cap: m.quota.cap, Last: m.quota.last,
		Usual: m.traffic.usual, Age: m.now - m.since}
	switch m.state {
	case Down, Isolated:
		s.Left = max(m.hold.until-m.now, 0)
	case Limited:
		s.Left = max(m.quota.pausedUntil-m.now, 0)
	case Recovering:
		s.Share = m.ramp.share
	}
	return s
}

// Restore takes the state that was saved, elapsed ago. What was recovering begins to
// recover anew; a hold gets no shorter.
func (m *Machine) Restore(now time.Duration, s Saved, elapsed time.Duration) {
	m.advance(now)
	m.traffic.usual = max(m.traffic.usual, s.Usual)
	left := max(s.Left-elapsed, 0)
	if s.State != m.state {
		switch s.State {
		case Healthy:
			m.restore(s.Reason)
		case Recovering:
			m.recover(s.Reason)
		case Limited, Down, Isolated:
			m.transition(s.State, s.Reason)
			m.hold = hold{askedAt: m.hold.askedAt}
		default:
			return
		}
	}
	switch s.State {
	case Down, Isolated:
		m.hold.length = max(s.Hold, m.cfg.Preset.Hold)
		m.hold.until = max(m.hold.until, m.now+left)
	case Limited:
		m.quota.cap = max(s.Cap, minRate)
		m.quota.last = max(s.Last, m.quota.cap)
		m.quota.pausedUntil = m.now + left
	}
}
