package wire

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Cause counts the dead letters of one cause.
type Cause struct {
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

// CauseOf returns a cause as it goes over the wire.
func CauseOf(c *driver.Cause) Cause {
	return Cause{
		Queue: c.Queue, Reason: c.Reason, Signature: c.Signature, Count: c.Count, First: c.First.UTC(), Last: c.Last.UTC(),
		Example: c.Example.String(), Type: c.Type, Message: c.Message,
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
