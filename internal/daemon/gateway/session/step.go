package session

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wsproto"
)

// Next returns the next step for the store, or nil if there is nothing to do, or a step
// is under way, or the version of the record is not known (see [Machine.Reread]).
func (m *Machine) Next(now time.Time) *Step {
	if m.flight != nil || m.version < 0 || m.doubtful {
		return nil
	}
	s := &Step{record: m.rec.clone()}
	if m.opened && !now.Before(m.hold) {
		m.takeMessages(s)
	}
	m.numberResults(s)
	m.deleteResults(s)
	s.end = m.bye && len(m.queue) == s.taken && !m.late
	if s.taken == 0 && s.found == 0 && s.Batch.Delete == nil && !m.touch && !s.end {
		return nil
	}
	s.record.Step++
	w := driver.RecordWrite{Space: Space, Key: m.name, Version: m.version}
	if !s.end {
		w.Value, w.Expires = s.record.Encode(), m.o.Expires
	}
	s.Batch.Records = []driver.RecordWrite{w}
	m.flight = s
	return s
}

// Ready reports whether [Machine.Next] would return a step, or wants to receive levels.
func (m *Machine) Ready(now time.Time) bool {
	if m.flight != nil || m.version < 0 || m.doubtful {
		return false
	}
	if m.opened && len(m.queue) > 0 && !now.Before(m.hold) && !(m.queue[0].mayBeRefused() && len(m.rec.Refused) >= maxRefused) {
		return true
	}
	return m.touch || len(m.found) > 0 || m.acked > m.rec.Result || m.bye && len(m.queue) == 0 && !m.late
}

// Refused returns how many messages of the step are refused before the store sees them.
func (s *Step) Refused() int { return s.refused }

// Pushed returns how many results get numbers with the step.
func (s *Step) Pushed() int { return s.found }

// takeMessages moves the session's number over what can be decided in one step.
func (m *Machine) takeMessages(s *Step) {
	bytes, doubtful := 0, len(s.record.Refused) // refusals, and messages that may become some
	for i := range m.queue {
		p := &m.queue[i]
		if p.mayBeRefused() {
			if doubtful == maxRefused {
				return
			}
			doubtful++
		}
		if p.refusal == nil {
			if len(s.at) == m.batch || bytes > 0 && bytes+p.size() > m.o.MaxBatchBytes {
				return
			}
			bytes += p.size()
			if p.message.ID != "" {
				s.record.Doubts = append(s.record.Doubts, Doubt{Seq: p.seq, Queue: p.message.Queue, ID: p.message.ID, Hash: m.o.Masks.BodyHash(&p.message), Mute: p.mute})
			}
			s.at = append(s.at, i)
			s.Batch.Publish = append(s.Batch.Publish, p.message)
			if !p.mute {
				s.record.Wanted++
			}
		} else {
			s.record.Refused = append(s.record.Refused, refused(p.seq, p.refusal))
			s.refused++
		}
		s.record.Seq = p.seq
		s.taken++
	}
}

// mayBeRefused reports whether the message is refused, or may be by the store: because
// of an id that the client chose.
func (p *publish) mayBeRefused() bool { return p.refusal != nil || p.message.ID != "" }

// refused makes what is kept of a refusal. A text that grows much by its encoding is
// left out, since a record is small.
func refused(seq uint64, p *problem.Problem) Refusal {
	b := p.AppendJSON(nil)
	if len(b) > maxRefusal {
		q := *p
		q.Detail, q.Hint = "", ""
		b = q.AppendJSON(nil)
	}
	return Refusal{Seq: seq, Error: b}
}

// Overfull is why the connection must end: the client has left so many errors unconfirmed
// that no more can be kept. It is nil if all is well. The client may resume.
func (m *Machine) Overfull() error {
	if len(m.rec.Refused) >= maxRefused && len(m.queue) > 0 && m.queue[0].mayBeRefused() && m.flight == nil {
		return NewClose(wsproto.CodeTooMany, "unseen", "%d errors were not confirmed with seen", len(m.rec.Refused))
	}
	return nil
}

// Unsure reports that the record must be read before the next step.
func (m *Machine) Unsure() bool { return m.version < 0 }

// Applied takes the outcome of the step under way, as Apply returned it. The error is a
// [Close]. After a fault of the store the record, once it is read again, tells whether
// the step happened.
func (m *Machine) Applied(items []error, err error, now time.Time) error {
	s := m.flight
	switch {
	case err == nil:
		m.version = -1
		return m.done(s, items)
	case errors.Is(err, redrive.ErrBacklogged), errors.Is(err, redrive.ErrFull):
		m.flight = nil // nothing was done, the version stands
		switch {
		case len(s.at) > 1:
			m.batch = len(s.at) / 2
		case len(s.at) == 1:
			m.held(now)
			if m.level.level != driver.LevelRefused {
				m.level = level{queue: m.queue[s.at[0]].message.Queue, level: driver.LevelRefused, after: maxHold}
				m.tellLevel()
			}
		}
		return nil
	case errors.Is(err, redrive.ErrClosed):
		return NewClose(wsproto.CodeRestart, "restart", "reconnect and resume")
	}
	m.version = -1
	return nil
}

// ErrReopen says that the step that opens a session did not happen: begin again with
// [Open].
var ErrReopen = errors.New("the session's record was changed: open it again")

// Reread takes the record as the store has it, nil if it is not there. The error is a
// [Close], or [ErrReopen].
func (m *Machine) Reread(rec *Record, version int64) error {
	s := m.flight
	if s != nil && rec == nil && s.end {
		return NewClose(wsproto.CodeBye, "bye", "")
	}
	if s != nil && rec != nil && rec.Connection == s.record.Connection && rec.Step == s.record.Step {
		if err := m.done(s, nil); err != nil { // its answer was lost
			return err
		}
		if len(m.rec.Doubts) > 0 {
			m.doubtful, m.late = true, true
		}
	}
	m.flight = nil
	switch {
	case !m.opened:
		return ErrReopen
	case rec == nil:
		return NewClose(wsproto.CodeSuperseded, "superseded", "the session was ended elsewhere")
	case rec.Connection != m.rec.Connection:
		return NewClose(wsproto.CodeSuperseded, "superseded", "the session was resumed by another connection")
	}
	m.version = version
	m.rec.Lost = rec.Lost
	m.tellLost()
	return nil
}

// done carries on after a step that is durable. items are the errors of its messages.
func (m *Machine) done(s *Step, items []error) error {
	deleted := s.record.Result - m.rec.Result
	m.flight, m.touch, m.late = nil, false, false
	m.rec = s.record
	m.announce = append(m.announce, m.rec.Refused[len(m.rec.Refused)-s.refused:]...)
	m.confirm(m.seen)
	if s.taken > 0 {
		m.decided(s, items)
	}
	switch {
	case s.end:
		return NewClose(wsproto.CodeBye, "bye", "")
	case !m.opened:
		m.opened = true
		m.grant()
		m.out = append(m.out, m.welcomeFrame())
		m.token = ""
		m.tellLost()
		return nil
	case s.taken > 0:
		m.grant()
	case deleted > 0:
		m.credit()
	}
	m.pushed(s.found, int(deleted)) //nolint:gosec // at most MaxWindow
	return nil
}

// decided takes messages out of the queue that are in the store, or refused for good.
func (m *Machine) decided(s *Step, items []error) {
	for i, at := range s.at {
		if items == nil || items[i] == nil {
			continue
		}
		p := &m.queue[at]
		if p.mute && errors.Is(items[i], redrive.ErrDuplicate) {
			continue
		}
		m.refuseLate(p.seq, p.mute, items[i])
	}
	for i := range m.queue[:s.taken] {
		m.bytes -= m.queue[i].size()
	}
	rest := copy(m.queue, m.queue[s.taken:])
	clear(m.queue[rest:])
	if m.queue = m.queue[:rest]; rest == 0 {
		m.queue = nil // an idle connection holds nothing
	}
	m.ackDue = true
	m.hold, m.wait, m.batch = time.Time{}, 0, min(2*m.batch, m.o.MaxBatch)
}

// refuseLate takes a refusal by the store. The ack waits until it is in the record: a new
// connection would else not hear of it.
func (m *Machine) refuseLate(seq uint64, mute bool, err error) {
	if !mute {
		m.rec.Wanted--
	}
	r := refused(seq, storeRefusal(err))
	m.rec.Refused = append(m.rec.Refused, r)
	slices.SortFunc(m.rec.Refused, bySeq)
	if m.opened { // else the welcome has them all
		m.announce = append(m.announce, r)
		slices.SortFunc(m.announce, bySeq)
		m.late, m.touch = true, true
	}
}

// Doubts names the messages of which it is not known whether the store refused them, as
// the answer to their step was lost. There is no next step before [Machine.Resolve].
func (m *Machine) Doubts() []redrive.Ref {
	if !m.doubtful {
		return nil
	}
	return m.rec.refs()
}

// Resolve takes what the store remembers of the ids that Doubts named. What it does not
// remember any more was accepted.
func (m *Machine) Resolve(remembered []*driver.Remembered) {
	doubts := m.rec.Doubts
	m.doubtful, m.late, m.rec.Doubts = false, false, nil
	for i := range doubts {
		if r := remembered[i]; r != nil && r.Hash != doubts[i].Hash && doubts[i].Seq > m.seen {
			m.refuseLate(doubts[i].Seq, doubts[i].Mute, redrive.ErrConflict)
		}
	}
}

func bySeq(a, b Refusal) int { return cmp.Compare(a.Seq, b.Seq) }

// storeRefusal is why the store did not take a message, or why its result does not come
// to this session.
func storeRefusal(err error) *problem.Problem {
	return refusal(problem.Of(err))
}
