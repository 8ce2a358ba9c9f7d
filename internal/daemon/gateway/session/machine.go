// Package session is the protocol redrive.v1.json of the WebSocket gateway as a pure
// state machine: it is fed with frames, with what the store answered and with the time,
// and tells what to write to the store and what to send. It has no goroutines, no clock
// and does no I/O. The protocol is described in docs/websocket.md.
package session

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wsproto"
)

// Options are the limits of sessions. A field that is zero has its default.
type Options struct {
	Window         int           // numbers beyond the acknowledged ones; 256
	MaxBatch       int           // messages of one step; 512
	MaxBatchBytes  int           // of one step, and read ahead of one; 1 MiB
	MaxOutstanding int           // messages without an acknowledged result; 10,000
	MaxFrame       int           // bytes of a frame; 1 MiB
	Idle           time.Duration // after which a silent connection is closed; 75 s
	Expires        time.Duration // how long a session is kept without a connection; 24 h
	Instance       string        // of this process
	Server         string        // name and version, for the welcome
	Masks          *driver.Masks // by which the store tells messages apart; nil: it has none
}

// SetDefaults fills in what is zero.
func (o *Options) SetDefaults() {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.Window, 256)
	def(&o.MaxBatch, 512)
	def(&o.MaxBatchBytes, 1<<20)
	def(&o.MaxOutstanding, 10_000)
	def(&o.MaxFrame, 1<<20)
	if o.Idle <= 0 {
		o.Idle = 75 * time.Second
	}
	if o.Expires <= 0 {
		o.Expires = 24 * time.Hour
	}
	if o.Server == "" {
		o.Server = "redrive"
	}
}

const (
	maxRefused = 64  // refusals that are kept for a client that does not confirm them
	maxRefusal = 640 // bytes of one
)

// Machine is one connection's hold on a session. It is not safe for concurrent use.
type Machine struct {
	o       *Options
	name    string
	token   string // as the client has it; empty after the welcome
	rec     Record
	version int64 // of the record in the store; -1: to be read
	opened  bool
	allow   func(queue string) error // nil: every queue

	queue    []publish // read and not decided, in order of their numbers
	bytes    int       // of these
	last     uint64    // the highest number read or decided
	limit    uint64    // the highest number that the client may send
	seen     uint64    // the highest ack that the client has seen, as far as we know
	announce []Refusal // decided, and in no ack yet
	late     bool      // some of these are not in the store's record yet
	doubtful bool      // rec.Doubts are to be resolved
	ackDue   bool

	window int                // results that may be pushed and not acknowledged
	acked  uint64             // results that the client acknowledged, in the record or not
	repush int                // results of rec.Pushed that are to be pushed again from here on; -1: none
	found  []*redrive.Message // to get numbers
	stale  bool               // there may be results that were not found yet

	flight    *Step
	batch     int       // messages of the next step at most; it falls when there is little room
	hold      time.Time // until then no messages are written
	wait      time.Duration
	level     level // of the queues, as it was reported to us
	announced level // as the client knows it
	touch     bool  // the record is to be written, whatever else
	bye       bool
	pings     int // answered since the output was taken
	out       [][]byte
}

// level is how full the queues of the session are.
type level struct {
	queue string
	level driver.Level
	after time.Duration
}

// Step is what is to be done in the store in one atomic step.
type Step struct {
	Batch   driver.Batch
	record  Record
	at      []int // of each message of Batch.Publish, its place in the machine's queue
	taken   int   // how many of that are decided by the step
	refused int   // of these, how many are refused
	found   int   // how many results get numbers
	end     bool  // the session ends with it
}

// Open begins a connection for a client that said hello, as owner of the token with
// that name. rec is the record of the session that it wants to resume, with its version,
// or nil if there is none. The first step that [Machine.Next] returns opens the session;
// the welcome follows it. If that step does not happen, begin again with Open.
func Open(o *Options, h *Hello, owner string, rec *Record, version int64, now time.Time) (*Machine, error) {
	o.SetDefaults()
	ok := level{level: driver.LevelOK}
	m := &Machine{o: o, window: max(h.Window, 1), batch: o.MaxBatch, level: ok, announced: ok, repush: -1, touch: true}
	if h.Session != "" && rec != nil && rec.opens(h.Token) {
		if rec.Owner != owner {
			return nil, NewClose(wsproto.CodeForbidden, "session", "it belongs to another token")
		}
		if h.Attempt != 0 && h.Attempt <= rec.Attempt {
			return nil, NewClose(wsproto.CodeSuperseded, "superseded", "the session was resumed by a newer connection")
		}
		m.name, m.token, m.rec, m.version = h.Session, h.Token, rec.clone(), version
		m.rec.Doubts, m.doubtful = rec.Doubts, len(rec.Doubts) > 0
		m.last, m.acked, m.repush, m.stale = rec.Seq, rec.Result, 0, true
		m.confirm(min(h.Seen, rec.Seq))
		if err := m.ackResults(h.Result); err != nil {
			return nil, err
		}
	} else {
		if h.Session != "" {
			m.out = append(m.out, gapFrame("session_unknown", 0))
		}
		m.name = redrive.NewID()
		m.rec = Record{Owner: owner, Created: now}
		m.token, m.rec.Hash = newToken()
	}
	m.rec.Epoch++
	m.rec.Attempt = h.Attempt
	m.rec.Attached, m.rec.Instance, m.rec.Connection = now, o.Instance, redrive.NewID()
	return m, nil
}

// Allow lets f refuse queues, best with a [problem.Problem].
func (m *Machine) Allow(f func(queue string) error) { m.allow = f }

// Name returns the session's name.
func (m *Machine) Name() string { return m.name }

// Record returns the session as the store has it, as far as this connection knows.
func (m *Machine) Record() *Record { return &m.rec }

// Limit returns the highest number that the client may send.
func (m *Machine) Limit() uint64 { return m.limit }

// Pending returns how many messages were read and are not decided.
func (m *Machine) Pending() int { return len(m.queue) }

// Full reports that no frame should be read until something that was read is decided.
func (m *Machine) Full() bool { return m.bytes >= m.o.MaxBatchBytes }

// Frame takes a frame of the client. The error is a [Close].
func (m *Machine) Frame(text []byte) error {
	f, p, err := readFrame(text)
	if err != nil {
		return err
	}
	if m.bye {
		return badFrame("nothing may follow a bye")
	}
	if p != nil {
		return m.publish(p)
	}
	switch f.Type {
	case wsproto.TypeSeen:
		if f.Seq == nil || *f.Seq > m.rec.Seq {
			return NewClose(wsproto.CodeFrame, "number", "seen needs the seq of an ack")
		}
		m.confirm(*f.Seq)
	case wsproto.TypeResultAck:
		if f.Number == nil {
			return NewClose(wsproto.CodeFrame, "number", "result_ack needs the number of a result")
		}
		return m.ackResults(*f.Number)
	case wsproto.TypePing:
		if len(f.Data) > maxPingData {
			return badFrame("data of a ping is at most %d bytes", maxPingData)
		}
		if m.pings++; m.pings > m.o.Window {
			return NewClose(wsproto.CodeTooMany, "credit", "pings come faster than their answers are read")
		}
		m.out = append(m.out, pongFrame(f.Data))
	case wsproto.TypeBye:
		m.bye = true
	case wsproto.TypeHello:
		return NewClose(wsproto.CodeFrame, "hello", "it was said already")
	default:
		return badFrame("unknown type %.40q", f.Type)
	}
	return nil
}

// publish takes a message. What is decided already is only acknowledged again.
func (m *Machine) publish(p *publish) error {
	switch {
	case p.seq > m.limit:
		return NewClose(wsproto.CodeTooMany, "credit", "seq %d is above the limit %d", p.seq, m.limit)
	case p.seq <= m.rec.Seq:
		m.ackDue = true
		return nil
	case p.seq <= m.last:
		return nil // it is being decided
	case p.seq != m.last+1:
		return NewClose(wsproto.CodeFrame, "number", "seq %d follows %d", p.seq, m.last)
	}
	if p.refusal == nil && m.allow != nil {
		if err := m.allow(p.message.Queue); err != nil {
			*p = publish{seq: p.seq, refusal: refusal(problem.Of(err))}
		}
	}
	p.named(m.name)
	m.last = p.seq
	m.queue = append(m.queue, *p)
	m.bytes += p.size()
	return nil
}

// confirm forgets refusals that the client has seen. The store learns of it with the
// next step: until then a new connection would only hear of them again.
func (m *Machine) confirm(seen uint64) {
	m.seen = max(m.seen, seen)
	n := 0
	for n < len(m.rec.Refused) && m.rec.Refused[n].Seq <= m.seen {
		n++
	}
	m.rec.Refused = m.rec.Refused[n:]
}

func (m *Machine) ackResults(number uint64) error {
	if number > m.rec.Result+uint64(len(m.rec.Pushed)) {
		return NewClose(wsproto.CodeFrame, "number", "result %d was never pushed", number)
	}
	m.acked = max(m.acked, number)
	return nil
}

// Touch makes the next step write the record, so that it does not expire.
func (m *Machine) Touch() { m.touch = true }

// Take returns the frames to send, in order.
func (m *Machine) Take() [][]byte {
	if m.ackDue && !m.late && m.opened {
		m.out = append(m.out, ackFrame(m.rec.Seq, m.limit, m.announce))
		m.announce, m.ackDue = nil, false
	}
	out := m.out
	m.out, m.pings = nil, 0
	return out
}
