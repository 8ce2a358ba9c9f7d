package mysql

import (
	"encoding/json"
	"strings"
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
	var due, published int64
	var died, expires *int64
	var headers []byte
	var lane, reason int
	err := r.Scan(&m.Queue, &m.ID, &m.seq, &due, &died, &published, &expires, &m.token, &m.nonce, &m.turn, &m.attempts, &m.failures,
		&m.earlier, &m.crashes, &m.Generation, &m.Redrives, &m.size, &m.class, &lane, &reason, &m.suspect, &m.chosen, &m.alone, &m.leased,
		&m.Kind, &m.Key, &m.instance, &m.ReplyTo, &m.Plan, &m.Origin, &m.EditedFrom, &m.signature,
		&headers, &m.first, &m.last, &m.original, &m.Body)
	if err != nil {
		return nil, err
	}
	m.due, m.PublishedAt, m.died, m.ExpiresAt = timeAt(due), timeAt(published), timeOf(died), timeOf(expires)
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

// insertMessages writes messages as waiting.
func insertMessages(sql *statements, list []*message) []step {
	return insertRows(sql, "insert_messages", list, func(m *message) []any {
		var seq any
		if m.seq != 0 {
			seq = m.seq
		}
		return []any{seq, []byte(m.Queue), []byte(m.ID), micros(m.due), micros(m.PublishedAt), microsOrNull(m.ExpiresAt), m.token, m.nonce, m.turn,
			m.attempts, m.failures, m.earlier, m.crashes, m.Generation, m.Redrives, m.size, m.class, int(m.lane), m.suspect, m.chosen,
			[]byte(m.Kind), []byte(m.Key), []byte(m.ReplyTo), []byte(m.Plan), []byte(m.Origin), []byte(m.EditedFrom),
			encodeHeaders(m.Headers), m.first, m.last, m.original, body(m.Body)}
	})
}

// insertDead writes messages as dead.
func insertDead(sql *statements, list []*message) []step {
	return insertRows(sql, "insert_dead", list, func(m *message) []any {
		return []any{[]byte(m.Queue), []byte(m.ID), m.seq, micros(m.died), micros(m.due), micros(m.PublishedAt), microsOrNull(m.ExpiresAt),
			m.token, m.nonce, m.turn, m.attempts, m.failures, m.earlier, m.crashes, m.Generation, m.Redrives, m.size, int(m.reason), int(m.lane),
			m.chosen, cut(m.signature), []byte(m.Kind), []byte(m.Key), []byte(m.ReplyTo), []byte(m.Plan), []byte(m.Origin),
			[]byte(m.EditedFrom), encodeHeaders(m.Headers), m.first, m.last, m.original, body(m.Body)}
	})
}

// Bounds of one INSERT.
const (
	insertMost  = 500
	insertBytes = 1 << 20
)

// insertRows makes INSERTs of bounded size.
func insertRows(sql *statements, name string, list []*message, columns func(*message) []any) []step {
	var steps []step
	for len(list) > 0 {
		var args []any
		n, size := 0, 0
		for n < len(list) && n < insertMost && (n == 0 || size+list[n].stored() < insertBytes) {
			args = append(args, columns(list[n])...)
			size += list[n].stored()
			n++
		}
		row := "(" + places(len(args)/n) + ")"
		steps = append(steps, step{sql: sql.with(name, ":rows", strings.TrimSuffix(strings.Repeat(row+",", n), ",")), args: args})
		list = list[n:]
	}
	return steps
}

// stored is about how many bytes a message takes.
func (m *message) stored() int {
	return len(m.Body) + m.Headers.Size() + len(m.first) + len(m.last) + len(m.original) + 512
}
