package driver

import (
	"errors"
	"time"

	"github.com/redrive/redrive"
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

// Asked returns what the error of a handler asks for where it is no failure:
// [redrive.OutcomeRepeat] of a message that runs again, [redrive.OutcomeRelease] of one
// that is put off without a reason, 0 of [redrive.ErrSettled], as the handler settled it
// itself. It reports false for nil and for what failed.
func Asked(err error) (redrive.Outcome, bool) {
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, redrive.ErrSettled):
		return 0, true
	}
	switch redrive.Classify(nil, err).Class {
	case redrive.ClassRepeat:
		return redrive.OutcomeRepeat, true
	case redrive.ClassRelease:
		return redrive.OutcomeRelease, errors.Unwrap(err) == nil
	case redrive.ClassTransient, redrive.ClassPermanent:
	}
	return 0, false
}

// PauseOf returns for how long an error asks to pause the target ([redrive.Pause], [redrive.Disable]; 0:
// until it is resumed), and whether it does.
func PauseOf(err error) (time.Duration, bool) {
	var v interface{ TargetPause() (time.Duration, bool) }
	if errors.As(err, &v) {
		return v.TargetPause()
	}
	return 0, false
}
