package session

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// maxPush is how many results are read and sent at a time: their bodies are what a
// connection holds in memory.
const maxPush = 16

// Stale notes that there may be new results in the store.
func (m *Machine) Stale() { m.stale = true }

// Again returns the ids of the next results that have numbers and are to be pushed again
// to a client that came back; none: there are no more.
func (m *Machine) Again() []string {
	if !m.opened || m.repush < 0 || m.flight != nil {
		return nil
	}
	if skip := int(m.acked - m.rec.Result); skip > m.repush { //nolint:gosec // at most MaxWindow
		m.repush = skip
	}
	ids := m.rec.Pushed[min(m.repush, len(m.rec.Pushed)):]
	if len(ids) == 0 {
		m.repush = -1
	}
	return ids[:min(len(ids), maxPush)]
}

// Repush takes the results that Again named, as the store has them. An element is nil
// where there is none any more.
func (m *Machine) Repush(results []*redrive.Message) {
	for _, r := range results {
		if r != nil {
			m.out = append(m.out, resultFrame(m.rec.Result+1+uint64(m.repush), r)) //nolint:gosec // not negative
		}
		m.repush++
	}
}

// Wants reports whether the shell should look for results in the store: at most limit
// beyond those whose ids are known.
func (m *Machine) Wants() (known []string, limit int, ok bool) {
	if !m.Looks() {
		return nil, 0, false
	}
	limit = min(m.window-len(m.rec.Pushed), maxPush)
	m.stale = false // what comes while the shell looks makes it true again
	return m.rec.Pushed, limit, true
}

// Looks reports whether [Machine.Wants] would want something.
func (m *Machine) Looks() bool {
	return m.stale && m.opened && m.repush < 0 && len(m.found) == 0 && m.flight == nil && len(m.rec.Pushed) < m.window
}

// Found takes the results that the store holds beyond the known ones, in their order,
// and whether there may be more.
func (m *Machine) Found(results []*redrive.Message, more bool) {
	m.found, m.stale = results, m.stale || more
}

// numberResults gives numbers to the results that were found. They are pushed when the
// numbers are durable: a client that comes back finds each under the same number.
func (m *Machine) numberResults(s *Step) {
	for _, r := range m.found {
		s.record.Pushed = append(s.record.Pushed, r.ID)
	}
	s.found = len(m.found)
}

// deleteResults removes what the client acknowledged, each by its name: in the order of
// the store, one that another instance has committed since may stand before them.
func (m *Machine) deleteResults(s *Step) {
	n := int(m.acked - s.record.Result) //nolint:gosec // at most MaxWindow
	if n == 0 {
		return
	}
	for _, id := range s.record.Pushed[:n] {
		s.Batch.Delete = append(s.Batch.Delete, driver.Range{Queue: driver.ResultQueue, Key: m.name, UpTo: id, Single: true})
	}
	s.record.Pushed = s.record.Pushed[n:]
	s.record.Result = m.acked
	s.record.Settled += uint64(n) //nolint:gosec // not negative
}

// pushed sends results whose numbers are durable.
func (m *Machine) pushed(n, deleted int) {
	if m.repush >= 0 {
		m.repush = max(m.repush-deleted, 0)
	}
	first := m.rec.Result + uint64(len(m.rec.Pushed)-n) + 1 //nolint:gosec // not negative
	for i, r := range m.found[:n] {
		m.out = append(m.out, resultFrame(first+uint64(i), r))
	}
	m.found = nil
}

// tellLost tells the client of results that were dropped.
func (m *Machine) tellLost() {
	if !m.opened || m.rec.Reported >= m.rec.Lost {
		return
	}
	lost := m.rec.Lost - m.rec.Reported
	m.out = append(m.out, gapFrame("results_expired", lost))
	m.rec.Reported = m.rec.Lost
	m.rec.Settled += lost
	m.touch = true
	m.credit()
}
