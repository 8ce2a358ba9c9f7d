package session

import (
	"time"

	"github.com/redrive/redrive/driver"
)

const (
	tightWindow = 16 // numbers beyond the acknowledged ones above a soft limit
	maxLevels   = 8  // queues that are looked at for one step
)

// Queues returns the queues that the next step publishes to: [Machine.SetLevel] is to be
// asked how full the fullest of them is.
func (m *Machine) Queues() (queues []string) {
	if m.flight != nil || !m.opened {
		return nil
	}
	results := false
	for i := range m.queue {
		p := &m.queue[i]
		if p.refusal != nil || len(queues) > 0 && queues[len(queues)-1] == p.message.Queue {
			continue
		}
		if len(queues) == maxLevels {
			break
		}
		queues = append(queues, p.message.Queue)
		results = results || !p.mute
	}
	if results {
		queues = append(queues, driver.ResultQueue)
	}
	return queues
}

// SetLevel tells how full the fullest of [Machine.Queues] is. While one is refused, no
// messages are written.
func (m *Machine) SetLevel(queue string, l driver.Level, after time.Duration, now time.Time) {
	if queue == driver.ResultQueue {
		queue = ""
	}
	m.level = level{queue: queue, level: l, after: after}
	if l == driver.LevelRefused {
		m.held(now)
	}
	m.tellLevel()
}

// Bounds of how long messages wait before it is tried again to write them.
const (
	minHold = 50 * time.Millisecond
	maxHold = time.Second
)

func (m *Machine) held(now time.Time) {
	m.wait = min(max(2*m.wait, minHold), maxHold)
	m.hold = now.Add(m.wait)
}

// HeldUntil returns when [Machine.Next] should be asked again although nothing happened;
// zero: never.
func (m *Machine) HeldUntil() time.Time {
	if len(m.queue) == 0 {
		return time.Time{}
	}
	return m.hold
}

// exhausted reports that the session has as many messages without an acknowledged result
// as it may.
func (m *Machine) exhausted() bool { return m.rec.Outstanding() >= m.o.MaxOutstanding }

// tellLevel tells the client when what it should know about levels has changed.
func (m *Machine) tellLevel() {
	l := m.level
	if m.exhausted() {
		l = level{level: driver.LevelRefused, after: time.Second}
	}
	if l.level == driver.LevelOK {
		l.queue = ""
	}
	if l.level == m.announced.level && l.queue == m.announced.queue || !m.opened {
		return
	}
	frame := l
	if l.level == driver.LevelOK {
		frame.queue = m.announced.queue
	}
	m.announced = l
	m.out = append(m.out, slowDownFrame(frame))
}

// grant raises the limit as far as there is room, and reports whether it rose.
func (m *Machine) grant() bool {
	m.tellLevel()
	n := m.o.Window
	switch m.level.level {
	case driver.LevelWarn:
		n = tightWindow
	case driver.LevelRefused:
		n = 1 // never none: who may not send would not hear that there is room again
	}
	n = min(n, m.o.MaxOutstanding-m.rec.Outstanding())
	if n <= 0 {
		return false
	}
	limit := m.rec.Seq + uint64(n)
	if limit <= m.limit {
		return false
	}
	m.limit = limit
	return true
}

// credit grants, and tells the client.
func (m *Machine) credit() {
	if m.grant() && !m.ackDue {
		m.out = append(m.out, creditFrame(m.limit))
	}
}
