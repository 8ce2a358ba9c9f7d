package redrive

import (
	"fmt"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Outcome is what becomes of a delivery.
type Outcome uint8

// The outcomes.
const (
	OutcomeDone    Outcome = iota + 1 // handled; the message ends
	OutcomeRetry                      // failed; due again after a while, in the retry lane
	OutcomeRelease                    // given back; the attempt does not count
	OutcomeDead                       // set aside with a reason
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

// Reason says why a message is dead. The set is closed.
type Reason uint8

// The reasons.
const (
	ReasonExhausted   Reason = iota + 1 // it failed as often as its policy allows
	ReasonPermanent                     // its failure was of a kind that retrying cannot mend
	ReasonCrashed                       // the process died too often while it was alone
	ReasonExpired                       // it was not delivered in time
	ReasonUndecodable                   // its bytes are not what its kind says
	ReasonOversize                      // it is larger than the way it must go
	ReasonUnroutable                    // there is no way for it
	ReasonRejected                      // a broker or a policy refused it
	ReasonLoop                          // it was redriven too often
	ReasonUncertain                     // its effect is unknown and it is not safe to repeat
	ReasonDisabled                      // its target was turned off for good
	ReasonManual                        // a person set it aside
)

var reasonNames = []string{"", "exhausted", "permanent", "crashed", "expired", "undecodable", "oversize",
	"unroutable", "rejected", "loop", "uncertain", "disabled", "manual"}

// Reasons returns all reasons.
func Reasons() []Reason {
	all := make([]Reason, 0, len(reasonNames)-1)
	for r := ReasonExhausted; r <= ReasonManual; r++ {
		all = append(all, r)
	}
	return all
}

// String returns the reason in lower case; the zero Reason is empty.
func (r Reason) String() string { return text.Enum(reasonNames, r) }

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reason) UnmarshalText(b []byte) (err error) {
	*r, err = text.ParseEnum[Reason](ErrInvalid, reasonNames, string(b), "reason")
	return err
}

// Settlement tells a Source what became of a delivery. Times are durations so that
// the store's clock decides.
type Settlement struct {
	Receipt Receipt
	Outcome Outcome
	// After postpones a Retry, Release or Repeat.
	After time.Duration
	// Reason says why, for Dead and Drop.
	Reason Reason
	// Failure is the failed attempt, if it failed. With Retry and Dead it is
	// recorded and counted; with Release it is recorded as the last, not counted.
	Failure *Failure
	// Emit holds messages that become durable in the same atomic step.
	Emit []Message
	// Edit changes a dead letter that is settled Repeat (redriven) or Dead (kept).
	Edit *Edit
}

// Validate reports a settlement that no backend can carry out, with an error that wraps
// [ErrInvalid].
func (s *Settlement) Validate() error {
	switch {
	case s.Outcome < OutcomeDone || s.Outcome > OutcomeDrop:
		return fmt.Errorf("%w settlement: outcome %d", ErrInvalid, s.Outcome)
	case (s.Outcome == OutcomeDead || s.Outcome == OutcomeDrop) && (s.Reason == 0 || s.Reason > ReasonManual):
		return fmt.Errorf("%w settlement: %w", ErrInvalid, errNoReason)
	case s.After < 0:
		return fmt.Errorf("%w settlement: a negative delay", ErrInvalid)
	}
	for i := range s.Emit {
		if err := s.Emit[i].Validate(); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
	}
	return s.Edit.Validate()
}
