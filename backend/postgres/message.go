package postgres

import (
	"encoding/json"
	"time"

	"github.com/redrive/redrive"
)

// message is a whole row of message or dead.
type message struct {
	redrive.Message
	dead bool

	seq, token, nonce, turn              int64
	due, died                            time.Time
	attempts, failures, earlier, crashes int
	size                                 int
	class                                int
	lane                                 redrive.Lane
	reason                               redrive.Reason
	suspect, chosen, alone, leased       bool
	instance, signature                  string
	first, last, original                []byte // JSON
}

// scanMessage reads the columns of rows.sql.
func scanMessage(r row) (*message, error) {
	m := new(message)
	var died, expires *time.Time
	var headers []byte
	var lane, reason int
	err := r.Scan(&m.Queue, &m.ID, &m.seq, &m.due, &died, &m.PublishedAt, &expires, &m.token, &m.nonce, &m.turn, &m.attempts, &m.failures,
		&m.earlier, &m.crashes, &m.Generation, &m.Redrives, &m.size, &m.class, &lane, &reason, &m.suspect, &m.chosen, &m.alone, &m.leased,
		&m.Kind, &m.Key, &m.instance, &m.ReplyTo, &m.Plan, &m.Origin, &m.EditedFrom, &m.signature,
		&headers, &m.first, &m.last, &m.original, &m.Body)
	if err != nil {
		return nil, err
	}
	m.due, m.died, m.PublishedAt, m.ExpiresAt = m.due.UTC(), timeOf(died), m.PublishedAt.UTC(), timeOf(expires)
	m.dead, m.lane, m.reason = died != nil, redrive.Lane(lane), redrive.Reason(reason) //nolint:gosec // small
	m.Headers, err = decodeHeaders(headers)
	return m, err
}

// held reports whether somebody has the message under a lease.
func (m *message) held(now time.Time) bool {
	return (m.leased || m.class >= classLeased) && m.due.After(now)
}

// lapse carries out what a lease that ran out means, before the message is changed.
func (m *message) lapse() {
	m.leased, m.instance = false, ""
	if m.class < classLeased {
		return
	}
	if m.alone {
		m.crashes++
	}
	m.suspect, m.alone = true, false
	if m.class == classLeased {
		m.class = classSuspect
	} else {
		m.class = classBlocked
	}
}

// openClass is the class of a message that nothing blocks.
func (m *message) openClass() int {
	if m.suspect {
		return classSuspect
	}
	return int(m.lane)
}

// entry is what a look into the store shows.
func (m *message) entry(now time.Time, parts bool) (*redrive.Entry, error) {
	e := &redrive.Entry{Message: m.Message, Lane: m.lane, Due: m.due}
	switch {
	case m.dead:
		e.State, e.Reason, e.DiedAt, e.Due = redrive.StateDead, m.reason, m.died, time.Time{}
	case m.held(now):
		e.State, e.Until, e.Instance, e.Token = redrive.StateLeased, m.due, m.instance, uint64(m.token) //nolint:gosec // counts from 0
		e.Due = time.Time{}
	default:
		m.lapse()
		e.State = redrive.StateWaiting
		if m.class == classBlocked {
			e.State = redrive.StateBlocked
		}
	}
	e.Attempts, e.Crashes, e.Suspect = m.attempts, m.crashes, m.suspect
	e.History.Count = m.failures + m.earlier
	if !parts {
		return e, nil
	}
	e.History.First, e.History.Last = redrive.DecodeFailure(m.first), redrive.DecodeFailure(m.last)
	if m.original == nil {
		return e, nil
	}
	var o original
	if err := json.Unmarshal(m.original, &o); err != nil {
		return nil, err
	}
	before := m.Message
	before.Kind, before.Key, before.Body, before.Headers = o.Kind, o.Key, o.Body, o.headers()
	e.Original = &before
	return e, nil
}

// original is a message as it was before it was edited in place.
type original struct {
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

// keepOriginal keeps a message as it was before its first edit.
func (m *message) keepOriginal(was *redrive.Message) {
	if m.original != nil {
		return
	}
	o := original{Kind: was.Kind, Key: was.Key, Body: was.Body}
	for _, h := range was.Headers {
		o.Headers = append(o.Headers, [2][]byte{[]byte(h.Name), h.Value})
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // bytes can always be encoded
	}
	m.original = text
}

// recordFailure keeps a failure as the first, or else as the last.
func (m *message) recordFailure(f *redrive.Failure, counted bool) {
	if f == nil {
		return
	}
	if counted {
		m.failures++
	}
	if m.first == nil {
		m.first = redrive.EncodeFailure(f)
	} else {
		m.last = redrive.EncodeFailure(f)
	}
}

// latestFailure returns the newest failure, or nil.
func (m *message) latestFailure() *redrive.Failure {
	if m.last != nil {
		return redrive.DecodeFailure(m.last)
	}
	return redrive.DecodeFailure(m.first)
}

// columns makes arrays of the parts of messages.
func column[T any](list []*message, of func(*message) T) []T {
	c := make([]T, len(list))
	for i, m := range list {
		c[i] = of(m)
	}
	return c
}

func jsonText(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// insertMessages are the arguments of insert_messages.
func insertMessages(list []*message) []any {
	return []any{
		column(list, func(m *message) string { return m.Queue }),
		column(list, func(m *message) string { return m.ID }),
		column(list, func(m *message) int64 { return m.seq }),
		column(list, func(m *message) *time.Time { return &m.due }),
		column(list, func(m *message) *time.Time { return &m.PublishedAt }),
		column(list, func(m *message) *time.Time { return timeOrNull(m.ExpiresAt) }),
		column(list, func(m *message) int64 { return m.token }),
		column(list, func(m *message) int64 { return m.nonce }),
		column(list, func(m *message) int64 { return m.turn }),
		column(list, func(m *message) int64 { return int64(m.attempts) }),
		column(list, func(m *message) int64 { return int64(m.failures) }),
		column(list, func(m *message) int64 { return int64(m.earlier) }),
		column(list, func(m *message) int64 { return int64(m.crashes) }),
		column(list, func(m *message) int64 { return int64(m.Generation) }),
		column(list, func(m *message) int64 { return int64(m.Redrives) }),
		column(list, func(m *message) int64 { return int64(m.size) }),
		column(list, func(m *message) int64 { return int64(m.class) }),
		column(list, func(m *message) int64 { return int64(m.lane) }),
		column(list, func(m *message) bool { return m.suspect }),
		column(list, func(m *message) bool { return m.chosen }),
		column(list, func(m *message) string { return m.Kind }),
		column(list, func(m *message) string { return m.Key }),
		column(list, func(m *message) string { return m.ReplyTo }),
		column(list, func(m *message) string { return m.Plan }),
		column(list, func(m *message) string { return m.Origin }),
		column(list, func(m *message) string { return m.EditedFrom }),
		column(list, func(m *message) *string { return encodeHeaders(m.Headers) }),
		column(list, func(m *message) *string { return jsonText(m.first) }),
		column(list, func(m *message) *string { return jsonText(m.last) }),
		column(list, func(m *message) *string { return jsonText(m.original) }),
		column(list, func(m *message) []byte { return body(m.Body) }),
	}
}

// insertDead are the arguments of insert_dead.
func insertDead(list []*message) []any {
	return []any{
		column(list, func(m *message) string { return m.Queue }),
		column(list, func(m *message) string { return m.ID }),
		column(list, func(m *message) int64 { return m.seq }),
		column(list, func(m *message) *time.Time { return &m.died }),
		column(list, func(m *message) *time.Time { return &m.due }),
		column(list, func(m *message) *time.Time { return &m.PublishedAt }),
		column(list, func(m *message) *time.Time { return timeOrNull(m.ExpiresAt) }),
		column(list, func(m *message) int64 { return m.token }),
		column(list, func(m *message) int64 { return m.nonce }),
		column(list, func(m *message) int64 { return m.turn }),
		column(list, func(m *message) int64 { return int64(m.attempts) }),
		column(list, func(m *message) int64 { return int64(m.failures) }),
		column(list, func(m *message) int64 { return int64(m.earlier) }),
		column(list, func(m *message) int64 { return int64(m.crashes) }),
		column(list, func(m *message) int64 { return int64(m.Generation) }),
		column(list, func(m *message) int64 { return int64(m.Redrives) }),
		column(list, func(m *message) int64 { return int64(m.size) }),
		column(list, func(m *message) int64 { return int64(m.reason) }),
		column(list, func(m *message) int64 { return int64(m.lane) }),
		column(list, func(m *message) bool { return m.chosen }),
		column(list, func(m *message) string { return m.signature }),
		column(list, func(m *message) string { return m.Kind }),
		column(list, func(m *message) string { return m.Key }),
		column(list, func(m *message) string { return m.ReplyTo }),
		column(list, func(m *message) string { return m.Plan }),
		column(list, func(m *message) string { return m.Origin }),
		column(list, func(m *message) string { return m.EditedFrom }),
		column(list, func(m *message) *string { return encodeHeaders(m.Headers) }),
		column(list, func(m *message) *string { return jsonText(m.first) }),
		column(list, func(m *message) *string { return jsonText(m.last) }),
		column(list, func(m *message) *string { return jsonText(m.original) }),
		column(list, func(m *message) []byte { return body(m.Body) }),
	}
}
