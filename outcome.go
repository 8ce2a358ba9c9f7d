package redrive

import (
	"github.com/redrive/redrive/internal/text"
)

// Outcome is what becomes of a delivery.
type Outcome uint8

// The outcomes.
const (
	OutcomeDone    Outcome = iota + 1 // handled; the message ends
	OutcomeRetry                      // failed; due again after a while, in the retry lane
	OutcomeRelease                    // given back; the attempt does not count
	OutcomeDead                       // dead-lettered with a reason
	OutcomeRepeat                     // handled; the same id is due again in the next generation
	OutcomeDrop                       // removed with a reason, counted as dropped, not kept
)

var outcomeNames = []string{"", "done", "retry", "release", "dead", "repeat", "drop"}

// String returns the outcome in lower case.
func (o Outcome) String() string { return text.Enum(outcomeNames, o) }

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Outcome) UnmarshalText(b []byte) (err error) {
	*o, err = text.ParseEnum[Outcome](ErrInvalid, outcomeNames, string(b), "outcome")
	return err
}

// Terminal reports whether the outcome ends this generation of the message.
func (o Outcome) Terminal() bool { return o != OutcomeRetry && o != OutcomeRelease }
