package wire

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Filter selects messages. The same names are parameters of the lists, where Since
// and Until may also be a duration before now ("1h").
type Filter struct {
	Queue     string `json:"queue,omitempty"`
	State     string `json:"state,omitempty"` // of messages: waiting, leased, blocked or dead
	Reason    string `json:"reason,omitempty"`
	Signature string `json:"signature,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Key       string `json:"key,omitempty"`
	Since     string `json:"since,omitempty"`
	Until     string `json:"until,omitempty"`
	// Text is in the body or the last error, and Header, NAME or NAME=VALUE, among the
	// headers, as the token may see them: see docs/http.md.
	Text   string `json:"text,omitempty"`
	Header string `json:"header,omitempty"`
	Plan   string `json:"plan,omitempty"` // redriven last by this plan
}

// Group counts dead letters of one cause.
type Group struct {
	Queue     string         `json:"queue"`
	Reason    redrive.Reason `json:"reason"`
	Signature string         `json:"signature"`
	Count     int64          `json:"count"`
	First     time.Time      `json:"first"`   // when the first of them died
	Last      time.Time      `json:"last"`    // when the last of them died
	Example   string         `json:"example"` // "queue/id" of the newest
	Type      string         `json:"type,omitempty"`
	Message   string         `json:"message,omitempty"`
}

// GroupOf returns a group as it goes over the wire.
func GroupOf(g *driver.Cause) Group {
	return Group{
		Queue: g.Queue, Reason: g.Reason, Signature: g.Signature, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(),
		Example: g.Example.String(), Type: g.Type, Message: g.Message,
	}
}

// Imported answers an import of dead letters.
type Imported struct {
	Imported   int64        `json:"imported"`
	Duplicates int64        `json:"duplicates"` // were there already, and left alone
	Failed     int64        `json:"failed"`
	Problems   []LineResult `json:"problems,omitempty"` // the first of those that failed
	// Lines are all lines, with lines=true in the query, in the order in which they were
	// decided.
	Lines []LineResult `json:"lines,omitempty"`
}
