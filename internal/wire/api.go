// Package wire holds the types of the HTTP API as they go over the wire. The server
// writes them and the command line reads them.
//
// Names are in snake_case, times in RFC 3339, durations as Go writes them ("1.5s").
// Errors are a [Problem].
package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/problem"
)

// Problem is an error (RFC 9457).
type Problem = problem.Problem

// List is one page of a list.
type List[T any] struct {
	Items []T `json:"items"`
	// Next continues after this page as the parameter "after"; absent at the end.
	Next string `json:"next,omitempty"`
	// Complete is false when the search gave up before it had seen everything. A
	// page may then be short, even empty, and still have a Next.
	Complete bool `json:"complete"`
	// How says whether an index led to the items, or entries were looked at one by one for the filter,
	// Examined of them for this page. Of lists of messages.
	How      string `json:"how,omitempty"`
	Examined int    `json:"examined,omitempty"`
}

// What List.How says.
const (
	HowIndex = "index"
	HowScan  = "scan"
)

// Duration is a length of time, in JSON as Go writes it: "1.5s".
type Duration time.Duration

// Std returns the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the duration as Go writes it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: use one such as 1.5s, 10m or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// Header is a header of a message: in JSON ["name","value"], or
// ["name",{"base64":"…"}] where the value is not text.
type Header redrive.Header

// binary is a value that is not text.
type binary struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (h Header) MarshalJSON() ([]byte, error) {
	if isText(h.Value) {
		return json.Marshal([2]string{h.Name, string(h.Value)})
	}
	return json.Marshal([2]any{h.Name, binary{h.Value}})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Header) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("a header is [name, value]")
	}
	if err := json.Unmarshal(pair[0], &h.Name); err != nil {
		return fmt.Errorf("the name of a header is a string")
	}
	var text string
	if err := json.Unmarshal(pair[1], &text); err == nil {
		h.Value = []byte(text)
		return nil
	}
	var value binary
	if err := json.Unmarshal(pair[1], &value); err != nil {
		return fmt.Errorf("the value of header %q is a string or {\"base64\": …}", h.Name)
	}
	h.Value = value.Base64
	return nil
}

// headersOf and Headers.Std convert between the two forms of a header list.
func headersOf(h redrive.Headers) []Header {
	list := make([]Header, len(h))
	for i := range h {
		list[i] = Header(h[i])
	}
	return list
}

// StdHeaders returns the headers as the root package has them.
func StdHeaders(list []Header) redrive.Headers {
	h := make(redrive.Headers, len(list))
	for i := range list {
		h[i] = redrive.Header(list[i])
	}
	return h
}

// moment returns nil for the zero time, so that it is absent in JSON.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
