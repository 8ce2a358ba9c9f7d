package client

import (
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/problem"
)

// Message is what is published. The zero value of every field but Queue is usable.
type Message struct {
	// ID makes the message recognised beyond the session: by whoever and however often
	// it is published, it is accepted once. Without it the server makes one.
	ID    string
	Queue string
	Kind  string
	Key   string
	// ContentType of the body. Defaults to application/json if the body is JSON, else
	// application/octet-stream.
	ContentType string
	Headers     [][2]string
	Body        []byte
	Delay       time.Duration
	DeliverAt   time.Time
	ExpiresAt   time.Time
	// NoResult says that the client does not want to hear how the message ended.
	NoResult bool
}

// wireMessage is a message in a publish frame.
type wireMessage struct {
	Type      string          `json:"type"` // stands first: the server looks for it there
	Seq       uint64          `json:"seq"`
	Queue     string          `json:"queue"`
	ID        string          `json:"id,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Key       string          `json:"key,omitempty"`
	Delay     string          `json:"delay,omitempty"`
	DeliverAt *time.Time      `json:"deliver_at,omitempty"`
	ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	Result    *bool           `json:"result,omitempty"`
	Headers   [][2]string     `json:"headers,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
	Base64    []byte          `json:"body_base64,omitempty"`
}

// frame encodes the message under a number.
func (m *Message) frame(seq uint64) ([]byte, error) {
	w := wireMessage{Type: "publish", Seq: seq, Queue: m.Queue, ID: m.ID, Kind: m.Kind, Key: m.Key, Headers: m.Headers}
	if m.Delay != 0 {
		w.Delay = m.Delay.String()
	}
	if !m.DeliverAt.IsZero() {
		w.DeliverAt = &m.DeliverAt
	}
	if !m.ExpiresAt.IsZero() {
		w.ExpiresAt = &m.ExpiresAt
	}
	if m.NoResult {
		w.Result = new(bool)
	}
	contentType := m.ContentType
	if isJSON := utf8.Valid(m.Body) && json.Valid(m.Body) && compact(m.Body); isJSON && (contentType == "" || jsonType(contentType)) {
		w.Body = m.Body
	} else {
		w.Base64 = m.Body
		if contentType == "" && len(m.Body) > 0 {
			contentType = "application/octet-stream"
		}
	}
	if contentType != "" {
		w.Headers = append([][2]string{{"content-type", contentType}}, m.Headers...)
	}
	b, err := json.Marshal(&w)
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	return b, nil
}

// compact reports whether encoding/json leaves the bytes of a body as they are: it
// removes space and escapes what is dangerous in HTML.
func compact(body []byte) bool {
	if strings.ContainsAny(string(body), "<>&\u2028\u2029") {
		return false
	}
	c, err := json.Marshal(json.RawMessage(body))
	return err == nil && string(c) == string(body)
}

func jsonType(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// Result is how a message ended.
type Result struct {
	Number  uint64 // of the result: 1 is the session's first
	Seq     uint64 // under which the message was published; see [Ticket.Seq]
	Queue   string
	ID      string
	Outcome string // "done", "dead" or "drop"
	Reason  string // why it is dead or was dropped
	Error   string // excerpt of its last error
	Status  int    // of the target's answer; 0: there was none

	ContentType     string
	ContentEncoding string
	Truncated       bool // the answer was longer than the server keeps
	Body            []byte
}

// Done reports whether the message was delivered.
func (r *Result) Done() bool { return r.Outcome == "done" }

// serverFrame is any frame of the server.
type serverFrame struct {
	Type    string `json:"type"`
	Session string `json:"session"`
	Token   string `json:"token"`
	Resumed bool   `json:"resumed"`
	Seq     uint64 `json:"seq"`
	Limit   uint64 `json:"limit"`
	Errors  []struct {
		Seq   uint64           `json:"seq"`
		Error *problem.Problem `json:"error"`
	} `json:"errors"`
	MaxFrame int `json:"max_frame"`
	Idle     int `json:"idle"`

	Level      string `json:"level"`
	RetryAfter int    `json:"retry_after"`
	Lost       uint64 `json:"lost"`

	Number          uint64          `json:"number"`
	Queue           string          `json:"queue"`
	ID              string          `json:"id"`
	Outcome         string          `json:"outcome"`
	Reason          string          `json:"reason"` // of a result, and of a gap
	Error           string          `json:"error"`
	Status          int             `json:"status"`
	ContentType     string          `json:"content_type"`
	ContentEncoding string          `json:"content_encoding"`
	Truncated       bool            `json:"truncated"`
	Body            json.RawMessage `json:"body"`
	Base64          []byte          `json:"body_base64"`
}

func (f *serverFrame) result() Result {
	r := Result{
		Number: f.Number, Seq: f.Seq, Queue: f.Queue, ID: f.ID, Outcome: f.Outcome, Reason: f.Reason, Error: f.Error, Status: f.Status,
		ContentType: f.ContentType, ContentEncoding: f.ContentEncoding, Truncated: f.Truncated, Body: f.Base64,
	}
	if f.Body != nil {
		r.Body = f.Body
	}
	return r
}
