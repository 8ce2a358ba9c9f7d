package client

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrGap says that the session was lost, and with it what the call was waiting for.
var ErrGap = errors.New("session expired: its result is not available")

// ErrTooLarge says that the message is longer than a frame of the server may be.
var ErrTooLarge = errors.New("the message is longer than the server's largest frame")

// ticket is a message on its way.
type ticket struct {
	seq     uint64
	message *Message
	frame   []byte
	decided func(error) // called once: nil when it is durable
}

// machine is the client's side of the protocol. It is pure: fed with frames, it tells
// what to send.
type machine struct {
	session, token string
	window         int
	attempt        uint64 // counts connections

	next    uint64    // number of the next message
	tickets []*ticket // not acknowledged, in order of their numbers
	sent    uint64    // the highest number sent over this connection
	limit   uint64    // the highest that may be sent
	open    bool      // the welcome has come
	resume  bool      // the hello asked for a session
	lost    bool      // and was informed that it is gone

	acked     uint64 // the highest number that is decided
	seen      uint64 // of these, up to where the server knows that the client has them
	errored   bool   // an ack with errors came, which the server wants confirmed
	arrived   uint64 // the highest result that came
	handled   uint64 // the highest result that was handled
	confirmed uint64 // of these, up to where the server knows
	maxFrame  int
}

func newMachine(window int) *machine { return &machine{next: 1, window: window} }

// hello begins a connection.
func (m *machine) hello() []byte {
	m.attempt++
	h := map[string]any{"type": "hello", "attempt": m.attempt}
	if m.window > 0 {
		h["window"] = m.window
	}
	if m.resume = m.session != ""; m.resume {
		h["session"], h["token"], h["seen"], h["result"] = m.session, m.token, m.acked, m.handled
	}
	m.open, m.lost, m.sent, m.limit = false, false, 0, 0
	m.seen, m.confirmed, m.errored = m.acked, m.handled, false
	b, err := json.Marshal(h)
	if err != nil { // it holds strings and numbers
		panic(err)
	}
	return b
}

// add takes a message.
func (m *machine) add(msg *Message, decided func(error)) (*ticket, error) {
	frame, err := msg.frame(m.next)
	if err != nil {
		return nil, err
	}
	if m.maxFrame > 0 && len(frame) > m.maxFrame {
		return nil, fmt.Errorf("%w (%d bytes)", ErrTooLarge, m.maxFrame)
	}
	t := &ticket{seq: m.next, message: msg, frame: frame, decided: decided}
	m.next++
	m.tickets = append(m.tickets, t)
	return t, nil
}

// room reports whether another message may be sent at once.
func (m *machine) room() bool { return m.open && m.next <= m.limit }

// due returns the frames to send, at most max of them.
func (m *machine) due(limit int) (frames [][]byte) {
	if !m.open {
		return nil
	}
	if m.errored && m.seen < m.acked {
		frames = append(frames, fmt.Appendf(nil, `{"type":"seen","seq":%d}`, m.acked))
		m.seen, m.errored = m.acked, false
	}
	if m.confirmed < m.handled {
		frames = append(frames, fmt.Appendf(nil, `{"type":"result_ack","number":%d}`, m.handled))
		m.confirmed = m.handled
	}
	if len(m.tickets) == 0 || m.sent >= m.tickets[len(m.tickets)-1].seq {
		return frames
	}
	first := m.tickets[0].seq
	for at := max(m.sent+1, first); at-first < uint64(len(m.tickets)) && at <= m.limit && len(frames) < limit; at++ {
		frames = append(frames, m.tickets[at-first].frame)
		m.sent = at
	}
	return frames
}

// gap is what a frame tells of lost things.
type gap struct {
	session bool // the whole session; else lost results
	lost    uint64
}

// incoming is what a frame means for the application.
type incoming struct {
	result   *Result
	gap      *gap
	slow     *SlowDown
	welcomed bool
}

// take takes a frame of the server.
func (m *machine) take(text []byte) (in incoming, err error) {
	var f serverFrame
	if err := json.Unmarshal(text, &f); err != nil {
		return in, fmt.Errorf("a frame of the server cannot be read: %w", err)
	}
	switch f.Type {
	case "welcome":
		in.welcomed = true
		return in, m.welcome(&f)
	case "ack":
		m.limit = max(m.limit, f.Limit)
		m.refuse(&f)
		m.decide(f.Seq)
	case "credit":
		m.limit = max(m.limit, f.Limit)
	case "slow_down":
		in.slow = &SlowDown{Queue: f.Queue, Level: f.Level, RetryAfter: f.RetryAfter}
	case "gap":
		in.gap = &gap{session: f.Reason == "session_unknown", lost: f.Lost}
		m.lost = m.lost || in.gap.session
	case "result":
		if f.Number > m.arrived {
			m.arrived = f.Number
			r := f.result()
			in.result = &r
		}
	}
	return in, nil
}

// welcome begins the session, or goes on with it.
func (m *machine) welcome(f *serverFrame) error {
	if m.resume && !f.Resumed && !m.lost {
		return errors.New("the server began a new session without saying that the old one is lost")
	}
	m.open, m.limit, m.maxFrame = true, f.Limit, f.MaxFrame
	if m.session != f.Session {
		if err := m.renumber(); err != nil {
			return err
		}
	}
	m.session, m.token = f.Session, f.Token
	m.refuse(f)
	m.decide(f.Seq)
	m.sent = f.Seq
	m.next = max(m.next, m.acked+1) // more was accepted of an earlier process than it knew
	return nil
}

// renumber gives the messages that were not acknowledged numbers of a new session.
func (m *machine) renumber() error {
	m.acked, m.seen, m.arrived, m.handled, m.confirmed = 0, 0, 0, 0, 0
	m.next = 1
	for _, t := range m.tickets {
		frame, err := t.message.frame(m.next)
		if err != nil {
			return err
		}
		t.seq, t.frame = m.next, frame
		m.next++
	}
	return nil
}

// refuse ends the messages that were not accepted.
func (m *machine) refuse(f *serverFrame) {
	for i := range f.Errors {
		m.errored = true
		if len(m.tickets) == 0 || f.Errors[i].Seq < m.tickets[0].seq {
			continue
		}
		at := f.Errors[i].Seq - m.tickets[0].seq
		if at >= uint64(len(m.tickets)) {
			continue
		}
		err := error(f.Errors[i].Error)
		if f.Errors[i].Error == nil {
			err = errors.New("refused")
		}
		if t := m.tickets[at]; t.decided != nil {
			t.decided(err)
			t.decided = nil
		}
	}
}

// decide ends the messages up to a number.
func (m *machine) decide(seq uint64) {
	m.acked = max(m.acked, seq)
	n := 0
	for n < len(m.tickets) && m.tickets[n].seq <= seq {
		if d := m.tickets[n].decided; d != nil {
			d(nil)
		}
		n++
	}
	clear(m.tickets[:n])
	if m.tickets = m.tickets[n:]; len(m.tickets) == 0 {
		m.tickets = nil
	}
	m.sent = max(m.sent, seq)
}

// handle notes that the application has handled a result.
func (m *machine) handle(number uint64) { m.handled = max(m.handled, number) }

// SlowDown is the server's word that it is busy.
type SlowDown struct {
	Queue      string // empty: not because of one queue
	Level      string // "warn", "refused", or "ok": it is over
	RetryAfter int    // seconds, if refused
}
