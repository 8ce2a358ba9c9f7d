package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Accepted answers a publish of one message.
type Accepted struct {
	Queue     string `json:"queue"`
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate,omitempty"` // it was there already
	// Result is where the result will be, if the message has a reply-to: ask there
	// with wait=20s.
	Result string `json:"result,omitempty"`
}

// AcceptedBatch answers a publish of several events.
type AcceptedBatch struct {
	Items []Accepted `json:"items"`
}

// The states of a line.
const (
	LineAccepted  = "accepted"
	LineDuplicate = "duplicate"
	LineError     = "error"
)

// LineResult answers one line of a publish with NDJSON.
type LineResult struct {
	Line   int      `json:"line"` // from 1; empty lines count, but are not answered
	ID     string   `json:"id,omitempty"`
	Status string   `json:"status"`
	Error  *Problem `json:"error,omitempty"`
}

// Message is a message as it stands in its store, or what is remembered of one that
// ended: then State is its outcome ("done", "drop"), and EndedAt is set.
type Message struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	Kind  string `json:"kind,omitempty"`
	Key   string `json:"key,omitempty"`
	State string `json:"state"` // waiting, leased, blocked, dead; done or drop when it ended
	Lane  string `json:"lane,omitempty"`

	Attempts int             `json:"attempts"`
	Crashes  int             `json:"crashes,omitempty"`
	Suspect  bool            `json:"suspect,omitempty"`
	Reason   *redrive.Reason `json:"reason,omitempty"` // why it is dead or was dropped

	PublishedAt *time.Time `json:"published_at,omitempty"`
	DueAt       *time.Time `json:"due_at,omitempty"`
	LeasedUntil *time.Time `json:"leased_until,omitempty"`
	DiedAt      *time.Time `json:"died_at,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Instance    string     `json:"instance,omitempty"` // who holds it
	ReplyTo     string     `json:"reply_to,omitempty"`

	Generation int    `json:"generation,omitempty"`
	Redrives   int    `json:"redrives,omitempty"`
	Plan       string `json:"plan,omitempty"`
	Origin     string `json:"origin,omitempty"`
	EditedFrom string `json:"edited_from,omitempty"`

	// Error and Type are of the newest failure; Signature names its cause.
	Error     string `json:"error,omitempty"`
	Type      string `json:"type,omitempty"`
	Signature string `json:"signature,omitempty"`

	// What follows is absent in lists.
	Headers    []Header `json:"headers,omitempty"`
	Size       *int     `json:"size,omitempty"` // of the body, in bytes
	Body       *string  `json:"body,omitempty"` // if it is text
	BodyBase64 []byte   `json:"body_base64,omitempty"`
	// Hidden says that the token may not see bodies and headers.
	Hidden bool `json:"hidden,omitempty"`
	// Version is another when what shows of kind, key, headers or body is; an edit may name it.
	Version string `json:"version,omitempty"`
	// Masked says that parts of the body, of headers or of failures show as ***.
	Masked   bool     `json:"masked,omitempty"`
	History  *History `json:"history,omitempty"`
	Original *Message `json:"original,omitempty"` // before it was edited
}

// Bytes returns the body.
func (m *Message) Bytes() []byte {
	if m.Body != nil {
		return []byte(*m.Body)
	}
	return m.BodyBase64
}

// Lines is the message as lines that people read and compare; JSON is laid out.
func (m *Message) Lines() []string {
	var lines []string
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, name+": "+value)
		}
	}
	add("kind", m.Kind)
	add("key", m.Key)
	for _, h := range m.Headers {
		lines = append(lines, h.Name+": "+string(h.Value))
	}
	body := m.Bytes()
	if body == nil && m.Size != nil && *m.Size > 0 {
		return append(lines, fmt.Sprintf("(a body of %d bytes)", *m.Size))
	}
	return append(lines, strings.Split(string(Pretty(body)), "\n")...)
}

// maxNested is up to where JSON is laid out: each line of what is within grows with it.
const maxNested = 100

// Pretty lays JSON out, with its numbers and the order of its members as they are. What is not JSON, or
// is nested too deeply to be read, stays as it is.
func Pretty(body []byte) []byte {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > maxNested {
				return body
			}
		case c == '}', c == ']':
			depth--
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return body
	}
	return b.Bytes()
}

// History is what is kept of failures: the first and the last in full, all counted.
type History struct {
	Count int      `json:"count"`
	First *Failure `json:"first,omitempty"`
	Last  *Failure `json:"last,omitempty"`
}

// Failure is one failed attempt.
type Failure struct {
	At          time.Time         `json:"at"`
	Duration    Duration          `json:"duration"`
	Attempt     int               `json:"attempt"`
	Reason      *redrive.Reason   `json:"reason,omitempty"`
	Types       []string          `json:"types"`
	Message     string            `json:"message"`
	Stack       string            `json:"stack,omitempty"`
	Host        string            `json:"host"`
	IP          string            `json:"ip"`
	PID         int               `json:"pid"`
	Service     string            `json:"service"`
	Version     string            `json:"version"`
	Environment string            `json:"environment"`
	Config      FailureConfig     `json:"config"`
	TraceID     string            `json:"trace_id"`
	Details     map[string]string `json:"details,omitempty"`
	Signature   string            `json:"signature,omitempty"`
}

// FailureConfig is the configuration that an attempt ran under.
type FailureConfig struct {
	Target      string   `json:"target,omitempty"`
	Timeout     Duration `json:"timeout"`
	Policy      string   `json:"policy"`
	MaxAttempts int      `json:"max_attempts"`
}

// Summary returns an entry as it stands in a list: without headers, body and
// history.
func Summary(e *redrive.Entry) Message {
	m := Message{
		Queue: e.Queue, ID: e.ID, Kind: e.Kind, Key: e.Key, State: e.State.String(), Lane: e.Lane.String(),
		Attempts: e.Attempts, Crashes: e.Crashes, Suspect: e.Suspect, Reason: reason(e.Reason),
		PublishedAt: moment(e.PublishedAt), ExpiresAt: moment(e.ExpiresAt), ReplyTo: e.ReplyTo,
		Generation: e.Generation, Redrives: e.Redrives, Plan: e.Plan, Origin: e.Origin, EditedFrom: e.EditedFrom,
	}
	switch e.State {
	case redrive.StateDead:
		m.DiedAt = moment(e.DiedAt)
		m.Lane = ""
	case redrive.StateLeased:
		m.LeasedUntil, m.Instance = moment(e.Until), e.Instance
	default:
		m.DueAt = moment(e.Due)
	}
	if f := e.History.Latest(); f != nil {
		m.Error, m.Signature = f.Message, f.Signature
		if len(f.Types) > 0 {
			m.Type = f.Types[0]
		}
	}
	return m
}

// Whole returns an entry with everything that is kept of it. Without payload,
// bodies, headers and what failures quote of them are left out.
func Whole(e *redrive.Entry, payload bool) Message {
	m := Summary(e)
	m.fill(&e.Message, payload)
	m.History = &History{Count: e.History.Count, First: failure(e.History.First, payload), Last: failure(e.History.Last, payload)}
	if e.Original != nil {
		o := Message{Queue: e.Original.Queue, ID: e.Original.ID, Kind: e.Original.Kind, Key: e.Original.Key, State: m.State}
		o.fill(e.Original, payload)
		m.Original = &o
	}
	return m
}

// Plain returns a message alone, with its payload.
func Plain(of *redrive.Message) Message {
	m := Message{Queue: of.Queue, ID: of.ID, Kind: of.Kind, Key: of.Key}
	m.fill(of, true)
	return m
}

// Seen returns the Version of what shows of a message.
func (m *Message) Seen() string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{m.Kind, m.Key, m.Headers, m.Bytes(), m.Hidden, m.Size}) // a hash does not fail
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fill adds what lists leave out.
func (m *Message) fill(from *redrive.Message, payload bool) {
	size := len(from.Body)
	m.Size = &size
	if m.Hidden = !payload; m.Hidden {
		return
	}
	m.Headers = headersOf(from.Headers)
	if isText(from.Body) {
		s := string(from.Body)
		m.Body = &s
		return
	}
	m.BodyBase64 = from.Body
}

// Ended returns what is remembered of a message that is no longer there.
func Ended(r *driver.Remembered) Message {
	return Message{Queue: r.Queue, ID: r.ID, State: r.Outcome.String(), Reason: reason(r.Reason), EndedAt: moment(r.At)}
}

func failure(f *redrive.Failure, payload bool) *Failure {
	if f == nil {
		return nil
	}
	out := &Failure{
		At: f.At.UTC(), Duration: Duration(f.Duration), Attempt: f.Attempt, Reason: reason(f.Reason), Types: f.Types, Message: f.Message,
		Stack: f.Stack, Host: f.Host, IP: f.IP, PID: f.PID, Service: f.Service, Version: f.Version, Environment: f.Env,
		Config: FailureConfig{
			Target: f.Config.Target, Timeout: Duration(f.Config.Timeout), Policy: f.Config.Policy, MaxAttempts: f.Config.MaxAttempts,
		},
		TraceID: f.TraceID, Signature: f.Signature,
	}
	if payload {
		out.Details = f.Details
	}
	return out
}

func reason(r redrive.Reason) *redrive.Reason {
	if r == 0 {
		return nil
	}
	return &r
}

// isText reports bytes that survive JSON as a string.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// Edit replaces parts of a message; what is absent stays as it is.
type Edit struct {
	Body       *string   `json:"body,omitempty"`
	BodyBase64 []byte    `json:"body_base64,omitempty"`
	Headers    *[]Header `json:"headers,omitempty"`
	Kind       *string   `json:"kind,omitempty"`
	Key        *string   `json:"key,omitempty"`

	Version string `json:"version,omitempty"`  // of the message that was looked at: if it is another by now, the answer is 409
	NotJSON bool   `json:"not_json,omitempty"` // a body that was JSON may become one that is not
}

// Std returns the edit as the root package has it.
func (e *Edit) Std() *redrive.Edit {
	out := &redrive.Edit{Kind: e.Kind, Key: e.Key, Body: e.BodyBase64}
	if e.Body != nil {
		out.Body = []byte(*e.Body)
	}
	if e.Headers != nil {
		h := StdHeaders(*e.Headers)
		out.Headers = &h
	}
	return out
}

// Changed answers a change of one message.
type Changed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	Done  string `json:"done"` // "dropped", "edited"
}
