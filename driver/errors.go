package driver

import (
	"errors"
	"time"
)

// TypeBodyGone is the error type of dead letters with [redrive.HeaderBodyGone], by which their
// causes are told from others.
const TypeBodyGone = "redrive.BodyGone"

// FirstError returns the first error of a result an item, or nil. A nil slice
// means that every item succeeded.
func FirstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// PauseOf returns for how long an error asks to pause the target ([redrive.TargetDown], [redrive.TargetGone]; 0:
// until it is resumed), and whether it does.
func PauseOf(err error) (time.Duration, bool) {
	var v interface{ TargetPause() (time.Duration, bool) }
	if errors.As(err, &v) {
		return v.TargetPause()
	}
	return 0, false
}
