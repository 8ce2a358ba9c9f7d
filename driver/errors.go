package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/redrive/redrive"
)

// TypeBodyGone is the error type of dead letters with [redrive.HeaderBodyGone], by which their
// causes are distinguished from others.
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
// that is snoozed, 0 of [redrive.ErrSettled], as the handler settled it itself. It reports
// false for nil and for what failed.
func Asked(err error) (redrive.Outcome, bool) {
	if errors.Is(err, redrive.ErrSettled) {
		return 0, true
	}
	if c, ok := verbOf(err); ok && c.Request {
		return c.Outcome, true
	}
	return 0, false
}

// PauseOf returns for how long an error asks to pause the target ([redrive.TargetDown], [redrive.TargetGone]; 0:
// until it is resumed), and whether it does.
func PauseOf(err error) (time.Duration, bool) {
	if err == nil {
		return 0, false // no allocation for what went well
	}
	var v interface{ TargetPause() (time.Duration, bool) }
	if errors.As(err, &v) {
		return v.TargetPause()
	}
	return 0, false
}

// errorNames name errors. Of an error that is several the first in this order counts.
var errorNames = []struct {
	err  error
	name string
}{
	{redrive.ErrBacklogged, "backlogged"},
	{redrive.ErrConflict, "conflict"},
	{redrive.ErrDuplicate, "duplicate"},
	{redrive.ErrFull, "store-full"},
	{redrive.ErrClosed, "shutting-down"},
	{redrive.ErrUnknown, "outcome-unknown"},
	{redrive.ErrBodyCorrupt, "body-corrupt"},
	{redrive.ErrInUse, "in-use"},
	{redrive.ErrInvalid, "invalid"},
	{redrive.ErrNotFound, "not-found"},
	{redrive.ErrLoop, "loop"},
	{redrive.ErrUncertain, "uncertain"},
	{redrive.ErrBodyGone, "body-gone"},
	{redrive.ErrCorrupt, "corrupt"},
	{redrive.ErrState, "state"},
	{redrive.ErrLeaseLost, "lease-lost"},
	{redrive.ErrVersion, "version"},
	{redrive.ErrUnsupported, "unsupported"},
	{redrive.ErrUnavailable, "store-unavailable"}, // before the timeouts, which a connection's error may be, too
	{redrive.ErrNoHandler, "no-handler"},
	{redrive.ErrSettled, "settled"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "cancelled"},
}

// ErrorName is the one name of an error, wherever errors are counted or distinguished:
// types of problems, refusals of a plan, results over a WebSocket. It is "" for errors
// that are not the root package's.
func ErrorName(err error) string {
	for i := range errorNames {
		if errors.Is(err, errorNames[i].err) {
			return errorNames[i].name
		}
	}
	return ""
}

// ErrorNamed is the error of the root package with a name, or nil: the way back from
// [ErrorName]. A timeout elsewhere is none of the caller's context.
func ErrorNamed(name string) error {
	for i := range errorNames {
		if errorNames[i].name == name && name != "timeout" && name != "cancelled" {
			return errorNames[i].err
		}
	}
	return nil
}

// Unavailable makes [redrive.ErrUnavailable] of what a client says when its server cannot be
// reached. Other errors, such as one that has a name already, it returns as they are. A
// backend calls it where a failed call has changed nothing.
func Unavailable(err error) error {
	if !disconnected(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if name := ErrorName(err); name != "" && name != "timeout" { // a dial that took too long is a timeout, too
		return err
	}
	return fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
}

// disconnected reports an error of a connection.
func disconnected(err error) bool {
	var op *net.OpError
	var number syscall.Errno
	return errors.As(err, &op) || errors.As(err, &number) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
