package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wsproto"
)

const (
	maxNumber   = 1<<53 - 1
	maxPingData = 125
)

// Hello is the first frame of a connection.
type Hello struct {
	Session string `json:"session"`
	Token   string `json:"token"`
	Seen    uint64 `json:"seen"`
	Result  uint64 `json:"result"`
	Window  int    `json:"window"`
	Attempt uint64 `json:"attempt"`
}

// publish is a message with its number, or the refusal of one.
type publish struct {
	seq     uint64
	message redrive.Message
	refusal *problem.Problem
	mute    bool // no result is wanted
}

func (p *publish) size() int { return p.message.Size() + 256 }

// frame is a frame of the client that is not a publish.
type frame struct {
	Type   string  `json:"type"`
	Seq    *uint64 `json:"seq"`
	Number *uint64 `json:"number"`
	Data   string  `json:"data"`
	Hello
}

func badFrame(format string, args ...any) *Close {
	return NewClose(wsproto.CodeFrame, "frame", format, args...)
}

// readFrame decodes a frame; publish is not nil if it is one.
func readFrame(text []byte) (*frame, *publish, error) {
	if bytes.HasPrefix(text, []byte(`{"type":"publish"`)) { // as clients write it; any other way is slower
		p, err := readPublish(text)
		return nil, p, err
	}
	f := new(frame)
	if err := json.Unmarshal(text, f); err != nil {
		var head struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(text, &head) == nil && head.Type == wsproto.TypePublish {
			p, err := readPublish(text)
			return nil, p, err
		}
		return nil, nil, badFrame("it cannot be read: %v", err)
	}
	if err := gateway.Strict(text); err != nil && f.Type != wsproto.TypePublish { // whose parser is strict
		return nil, nil, badFrame("%v", err)
	}
	if f.Type == wsproto.TypePublish {
		p, err := readPublish(text)
		return nil, p, err
	}
	return f, nil, nil
}

// ReadHello decodes the first frame.
func ReadHello(text []byte) (*Hello, error) {
	f, _, err := readFrame(text)
	if err != nil {
		return nil, err
	}
	if f == nil || f.Type != wsproto.TypeHello {
		return nil, NewClose(wsproto.CodeFrame, "hello", "the first frame must be a hello")
	}
	h := f.Hello
	if f.Seq != nil || f.Number != nil || h.Window < 0 || h.Window > wsproto.MaxWindow || h.Seen > maxNumber || h.Result > maxNumber || h.Attempt > maxNumber || (h.Session == "") != (h.Token == "") || len(h.Session) > redrive.MaxIDLength {
		return nil, NewClose(wsproto.CodeFrame, "hello", "session comes with token, window is 1-%d", wsproto.MaxWindow)
	}
	if h.Window == 0 {
		h.Window = wsproto.DefaultWindow
	}
	return &h, nil
}

// readPublish decodes a publish frame. A message that cannot be is a refusal; a frame
// whose number cannot be read is an error.
func readPublish(text []byte) (*publish, error) {
	p := new(publish)
	var event json.RawMessage
	m, err := gateway.ParseMessage(text, func(name string, value []byte) (bool, error) {
		var err error
		switch name {
		case "type":
		case "seq":
			p.seq, err = strconv.ParseUint(string(value), 10, 64)
		case "queue":
			err = json.Unmarshal(value, &p.message.Queue)
		case "result":
			var wanted bool
			err = json.Unmarshal(value, &wanted)
			p.mute = !wanted
		case "cloudevent":
			event = value
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return refusedFrame(text, err)
	}
	if p.seq == 0 || p.seq > maxNumber {
		return nil, NewClose(wsproto.CodeFrame, "number", "a publish frame needs a seq, from 1")
	}
	m.Queue = p.message.Queue
	if event != nil {
		err = eventMessage(&m, event)
	}
	if err == nil {
		err = checkMessage(&m)
	}
	if err != nil {
		p.refusal = refusal(err)
		return p, nil
	}
	p.message = m
	if !p.mute {
		p.message.ReplyTo = driver.SessionReply // the machine adds its name and the number
	}
	return p, nil
}

var errReplyTo = errors.New("reply_to: the session gets the result")

func checkMessage(m *redrive.Message) error {
	if m.ReplyTo != "" {
		return errReplyTo
	}
	if err := driver.CheckQueue(m.Queue); err != nil {
		return err
	}
	if m.Queue[0] == '_' {
		return problem.New(403, "system-queue", "The queue belongs to the system", m.Queue, "choose a name that does not begin with an underscore")
	}
	return m.Validate()
}

// refusedFrame makes a refusal of a frame that is no message, if it has a number.
func refusedFrame(text []byte, cause error) (*publish, error) {
	var head struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(text, &head); err != nil || head.Seq == 0 || head.Seq > maxNumber {
		return nil, badFrame("%v", cause)
	}
	return &publish{seq: head.Seq, refusal: refusal(cause)}, nil
}

// refusal is an error of one message. Its texts are bounded, as it is kept.
func refusal(err error) *problem.Problem {
	var own *problem.Problem
	var p problem.Problem
	switch {
	case errors.As(err, &own):
		p = *own
	case errors.Is(err, redrive.ErrInvalid):
		p = *problem.Of(err)
	default:
		p = *problem.New(400, "invalid", "The message is not valid", err.Error(), "")
	}
	p.Detail, p.Hint, p.Queues = short(p.Detail), short(p.Hint), nil
	return &p
}

const maxRefusalText = 160 // bytes of a refusal's detail and hint

func short(s string) string {
	if len(s) <= maxRefusalText {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:maxRefusalText]), nil)) + "…"
}

func (p *publish) named(session string) {
	if p.message.ReplyTo != "" {
		p.message.ReplyTo = fmt.Sprintf("%s%s/%d", driver.SessionReply, session, p.seq)
	}
}
