package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
)

// Settlement tells a Source what became of a delivery. Times are durations so that
// the store's clock decides.
type Settlement struct {
	Receipt redrive.Receipt
	Outcome redrive.Outcome
	// After postpones a Retry, Release or Repeat.
	After time.Duration
	// Reason says why, for Dead and Drop.
	Reason redrive.Reason
	// Failure is the failed attempt, if it failed. With Retry and Dead it is
	// recorded and counted; with Release it is recorded as the last, not counted.
	Failure *redrive.Failure
	// Emit holds messages that become durable in the same atomic step.
	Emit []redrive.Message
	// Edit changes a dead letter that is settled Repeat (redriven) or Dead (kept).
	Edit *redrive.Edit
}

// Validate reports a settlement that no backend can carry out, with an error that wraps
// [redrive.ErrInvalid].
func (s *Settlement) Validate() error {
	switch {
	case s.Outcome < redrive.OutcomeDone || s.Outcome > redrive.OutcomeDrop:
		return fmt.Errorf("%w settlement: outcome %d", redrive.ErrInvalid, s.Outcome)
	case (s.Outcome == redrive.OutcomeDead || s.Outcome == redrive.OutcomeDrop) && (s.Reason == 0 || s.Reason > LastReason):
		return fmt.Errorf("%w settlement: %w", redrive.ErrInvalid, errNoReason)
	case s.After < 0:
		return fmt.Errorf("%w settlement: a negative delay", redrive.ErrInvalid)
	}
	for i := range s.Emit {
		if err := s.Emit[i].Validate(); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
	}
	return s.Edit.Validate()
}

// errNoReason is returned for a dead letter without a reason.
var errNoReason = errors.New("a dead letter needs a reason")
