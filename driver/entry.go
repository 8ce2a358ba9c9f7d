package driver

import (
	"fmt"
	"math"

	"github.com/redrive/redrive"
)

// CheckEntry reports what keeps an entry from being put, as an [*redrive.Error] that wraps
// [redrive.ErrInvalid]: of one that waits all that [redrive.Message.Validate] refuses. A
// dead letter may be larger, and have names, that Publish would refuse: it may be dead for it.
func CheckEntry(e *redrive.Entry) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "put", Queue: e.Queue, ID: e.ID, Err: fmt.Errorf("%w entry: %s", redrive.ErrInvalid, what)}
	}
	if int(e.Lane) >= Lanes {
		return bad(fmt.Sprintf("lane %d", e.Lane))
	}
	for _, n := range [...]int{e.Attempts, e.Crashes, e.History.Count, e.Generation, e.Redrives} {
		if n < 0 || n > math.MaxInt32 {
			return bad(fmt.Sprintf("a number of %d", n))
		}
	}
	if e.State != redrive.StateDead {
		return e.Validate()
	}
	if err := CheckQueue(e.Queue); err != nil {
		return &redrive.Error{Op: "put", Err: err}
	}
	if e.Reason == 0 || e.Reason > LastReason {
		return bad("a dead letter needs a reason")
	}
	if e.ID == "" {
		return nil
	}
	if err := CheckID(e.ID); err != nil {
		return &redrive.Error{Op: "put", Queue: e.Queue, Err: err}
	}
	return nil
}
