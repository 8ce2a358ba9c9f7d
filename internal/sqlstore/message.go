package sqlstore

import (
	"encoding/json"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

// Message is a whole row of a waiting message or a dead letter.
type Message struct {
	redrive.Message
	Dead bool

	Seq, Token, Nonce, Turn              int64
	Due, Died                            time.Time
	Attempts, Failures, Earlier, Crashes int
	Bytes                                int
	Class                                int
	Lane                                 redrive.Lane
	Reason                               redrive.Reason
	Suspect, Chosen, Isolated, Leased    bool
	Delayed                              bool // it was asked to be due later
	Instance, Signature                  string
	First, Last, Original                []byte  // JSON
	Sum                                  *uint32 // checksum of the message; nil: unchecked
	Text                                 *int64  // of a dead letter, as Texts.Of returns it
}

// Held reports whether somebody has the message under a lease.
func (m *Message) Held(now time.Time) bool {
	return (m.Leased || m.Class >= ClassLeased) && m.Due.After(now)
}

// Lapse carries out what a lease that ran out means, before the message is changed.
func (m *Message) Lapse() {
	m.Leased, m.Instance = false, ""
	if m.Class < ClassLeased {
		return
	}
	if m.Isolated {
		m.Crashes++
	}
	m.Suspect, m.Isolated = true, false
	if m.Class == ClassLeased {
		m.Class = ClassSuspect
	} else {
		m.Class = ClassBlocked
	}
}

// OpenClass is the class of a message that nothing blocks.
func (m *Message) OpenClass() int {
	if m.Suspect {
		return ClassSuspect
	}
	return int(m.Lane)
}

// Entry is what a look into the store shows.
func (m *Message) Entry(now time.Time, parts bool) (*redrive.Entry, error) {
	e := &redrive.Entry{Message: m.Message, Lane: m.Lane, Due: m.Due}
	switch {
	case m.Dead:
		e.State, e.Reason, e.DiedAt, e.Due = redrive.StateDead, m.Reason, m.Died, time.Time{}
	case m.Held(now):
		e.State, e.Until, e.Instance, e.Token = redrive.StateLeased, m.Due, m.Instance, uint64(m.Token) //nolint:gosec // counts from 0
		e.Due = time.Time{}
	default:
		m.Lapse()
		e.State = redrive.StateWaiting
		if m.Class == ClassBlocked {
			e.State = redrive.StateBlocked
		}
	}
	e.Attempts, e.Crashes, e.Suspect = m.Attempts, m.Crashes, m.Suspect
	e.History.Count = m.Failures + m.Earlier
	if !parts {
		return e, nil
	}
	e.Checksum = m.Sum
	e.History.First, e.History.Last = driver.DecodeFailure(m.First), driver.DecodeFailure(m.Last)
	if m.Original == nil {
		return e, nil
	}
	var o original
	if err := json.Unmarshal(m.Original, &o); err != nil {
		return nil, err
	}
	before := m.Message
	before.Kind, before.Key, before.Body, before.Headers = o.Kind, o.Key, o.Body, o.headers()
	e.Original, e.OriginalChecksum = &before, o.Sum
	return e, nil
}

// original is a message as it was before it was edited in place.
type original struct {
	Sum     *uint32     `json:"crc,omitempty"`
	Kind    string      `json:"kind,omitempty"`
	Key     string      `json:"key,omitempty"`
	Headers [][2][]byte `json:"headers,omitempty"`
	Body    []byte      `json:"body"`
}

func (o *original) headers() redrive.Headers {
	var h redrive.Headers
	for _, p := range o.Headers {
		h = append(h, redrive.Header{Name: string(p[0]), Value: p[1]})
	}
	return h
}

// KeepOriginal keeps a message as it was before its first edit, with its checksum.
func (m *Message) KeepOriginal(was *redrive.Message, sum *uint32) {
	if m.Original != nil {
		return
	}
	o := original{Sum: sum, Kind: was.Kind, Key: was.Key, Body: was.Body}
	for _, h := range was.Headers {
		o.Headers = append(o.Headers, [2][]byte{[]byte(h.Name), h.Value})
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // bytes can always be encoded
	}
	m.Original = text
}

// RecordFailure keeps a failure as the first, or else as the last.
func (m *Message) RecordFailure(f *redrive.Failure, counted bool) {
	if f == nil {
		return
	}
	if counted {
		m.Failures++
	}
	if m.First == nil {
		m.First = driver.EncodeFailure(f)
	} else {
		m.Last = driver.EncodeFailure(f)
	}
}

// LatestFailure returns the newest failure, or nil.
func (m *Message) LatestFailure() *redrive.Failure {
	if m.Last != nil {
		return driver.DecodeFailure(m.Last)
	}
	return driver.DecodeFailure(m.First)
}

// NextGeneration makes a dead letter a message of the redrive lane.
func (m *Message) NextGeneration(c *driver.Change, now, due time.Time) {
	m.Generation++
	m.Redrives++
	m.Plan = c.Plan
	if !m.ExpiresAt.After(now) {
		m.ExpiresAt = time.Time{} // it was redriven although it had expired
	}
	m.Due, m.Delayed, m.Lane = due, due.After(now), redrive.LaneRedrive
	m.Earlier += m.Failures
	m.Attempts, m.Failures, m.Crashes, m.Suspect = 0, 0, 0, false
}

// Fit makes of the names of a foreign message what the columns hold; headers keep what was
// lost of its key and kind.
func (m *Message) Fit(storable func(string) string) {
	for _, part := range []struct {
		text   *string
		header string
	}{{&m.Key, headername.NativeKey}, {&m.Kind, headername.NativeKind}, {&m.ReplyTo, ""}, {&m.EditedFrom, ""}, {&m.Plan, ""}} {
		fit := storable(*part.text)
		if fit != *part.text && part.header != "" {
			m.Headers = m.Headers.Clone()
			m.Headers.Add(part.header, *part.text)
		}
		*part.text = fit
	}
}
