package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
)

// lineHint names what a line may hold.
const lineHint = `a line is a JSON object with any of id, kind, key, deliver_at, delay, expires_at, reply_to, headers, and body or body_base64`

// ParseLine reads one line of NDJSON into a message. Its queue is not in the line.
// Names of fields are exact, unknown and repeated ones are refused; null stands for
// absent except as the body. The message shares no memory with the line.
func ParseLine(line []byte) (redrive.Message, error) {
	m, err := ParseMessage(line, nil)
	if err != nil {
		return m, badLine(err.Error())
	}
	return m, nil
}

// ParseMessage is ParseLine for an object that holds other fields too: other is given
// the name and the text of each, and reports whether it knows it. The text is that of
// the object and must not be kept. The error is plain.
func ParseMessage(text []byte, other func(name string, value []byte) (known bool, err error)) (redrive.Message, error) {
	var m redrive.Message
	if !json.Valid(text) {
		var raw json.RawMessage
		err := json.Unmarshal(text, &raw)
		return m, fmt.Errorf("not JSON: %w", err)
	}
	w := walker{b: text}
	if w.next() != '{' {
		return m, errors.New("not a JSON object")
	}
	p := lineParser{walker: &w, m: &m, other: other}
	if err := w.object(p.field); err != nil {
		return m, err
	}
	if p.hasBody && !hasHeader(m.Headers, "content-type") {
		m.Headers.Add("content-type", "application/json")
	}
	return m, nil
}

func badLine(detail string) *problem.Problem {
	return problem.New(http.StatusBadRequest, "invalid-line", "The line is not a message", detail, lineHint)
}

func hasHeader(h redrive.Headers, name string) bool {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return true
		}
	}
	return false
}

// lineParser fills a message field by field.
type lineParser struct {
	*walker
	m                *redrive.Message
	hasBody, hasData bool
	other            func(name string, value []byte) (known bool, err error) // nil: no other fields
}

func (p *lineParser) field(name string) (err error) {
	switch name {
	case "id":
		p.m.ID, err = p.str(name)
	case "kind":
		p.m.Kind, err = p.str(name)
	case "key":
		p.m.Key, err = p.str(name)
	case "reply_to":
		p.m.ReplyTo, err = p.str(name)
	case "delay":
		p.m.Delay, err = p.duration(name)
	case "deliver_at":
		p.m.DeliverAt, err = p.time(name)
	case "expires_at":
		p.m.ExpiresAt, err = p.time(name)
	case "headers":
		err = p.headers()
	case "body":
		var raw []byte
		raw, err = p.value()
		p.m.Body, p.hasBody = bytes.Clone(raw), true
	case "body_base64":
		err = p.data()
	default:
		err = p.foreign(name)
	}
	if err == nil && p.hasBody && p.hasData {
		return fmt.Errorf("both body and body_base64")
	}
	return err
}

// foreign is a field that is not the message's.
func (p *lineParser) foreign(name string) error {
	value, err := p.value()
	if err != nil {
		return err
	}
	if p.other == nil {
		return fmt.Errorf("unknown field %q", name)
	}
	known, err := p.other(name, value)
	if err == nil && !known {
		err = fmt.Errorf("unknown field %q", name)
	}
	return err
}

func (p *lineParser) data() error {
	s, err := p.str("body_base64")
	if err != nil || s == "" {
		return err
	}
	p.hasData = true
	if p.m.Body, err = base64.StdEncoding.DecodeString(s); err != nil {
		return fmt.Errorf("body_base64: %w", err)
	}
	return nil
}

func (p *lineParser) duration(name string) (time.Duration, error) {
	s, err := p.str(name)
	if err != nil || s == "" {
		return 0, err
	}
	return parseDelay(name, s)
}

func (p *lineParser) time(name string) (time.Time, error) {
	s, err := p.str(name)
	if err != nil || s == "" {
		return time.Time{}, err
	}
	return parseTime(name, s)
}

// headers takes {"name":"value"}, or [["name","value"],…] where names repeat.
func (p *lineParser) headers() error {
	switch p.next() {
	case '{':
		return p.object(func(name string) error {
			value, err := p.str("header " + name)
			if err != nil {
				return err
			}
			return addHeader(p.m, name, value)
		})
	case '[':
		return p.array(p.pair)
	case 'n':
		_, err := p.value()
		return err
	}
	return fmt.Errorf("headers must be an object or a list of [name, value]")
}

func (p *lineParser) pair() error {
	if p.next() != '[' {
		return fmt.Errorf("a header in a list must be [name, value]")
	}
	var pair []string
	err := p.array(func() error {
		s, err := p.str("header")
		pair = append(pair, s)
		return err
	})
	if err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a header in a list must be [name, value]")
	}
	return addHeader(p.m, pair[0], pair[1])
}

// addHeader adds a header of the message; names of ours are refused.
func addHeader(m *redrive.Message, name, value string) error {
	if len(name) >= len(reserved) && strings.EqualFold(name[:len(reserved)], reserved) {
		return fmt.Errorf("header %q: names that begin with %s are reserved", name, reserved)
	}
	if len(m.Headers) == redrive.MaxHeaders { // here and not by Validate: it also bounds the search for repeated names
		return fmt.Errorf("more than %d headers", redrive.MaxHeaders)
	}
	m.Headers.Add(name, value)
	return nil
}

// reserved begins the names of headers that are Redrive's own.
const reserved = headername.Prefix

func parseDelay(name, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s %q: use a duration such as 1.5s, 10m or 24h", name, s)
	}
	return d, nil
}

func parseTime(name, s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("%s %q: use a time such as 2026-01-31T08:00:00Z (RFC 3339)", name, s)
	}
	return t, nil
}
