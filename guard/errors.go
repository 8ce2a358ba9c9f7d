package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
)

// Errors of a call.
var (
	// ErrUnavailable says that no provider is available, and that it may not
	// be put off.
	ErrUnavailable = errors.New("no provider available")
	// ErrNotQueued says that no provider is available and that the queue
	// refused it too: nothing was kept.
	ErrNotQueued = errors.New("the request was neither sent nor kept")
)

// RateLimitError is what a call returns whose provider asks for less.
type RateLimitError struct {
	After time.Duration // what it asked for; 0: nothing
	Err   error         // may be nil
}

// Error implements error.
func (e *RateLimitError) Error() string {
	s := "the provider asks for less"
	if e.After > 0 {
		s += fmt.Sprintf(", again in %s", e.After)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// ErrorName implements [redrive.NamedError].
func (*RateLimitError) ErrorName() string { return "guard.RateLimitError" }

// Unwrap returns the cause.
func (e *RateLimitError) Unwrap() error { return e.Err }

// UncertainError says that a request that must not be repeated was sent and that its
// effect is unknown. It wraps [redrive.ErrUncertain] and the cause.
type UncertainError struct {
	Provider string
	// Kept names the dead letter that the request was kept as; its ID is empty if it
	// was not kept, and Err then says why.
	Kept redrive.Ref
	Err  error
}

// Error implements error.
func (e *UncertainError) Error() string {
	s := fmt.Sprintf("%s: sent to %s: %v", redrive.ErrUncertain, e.Provider, e.Err)
	if e.Kept.ID != "" {
		s += "; kept as dead letter " + e.Kept.String()
	}
	return s
}

// ErrorName implements [redrive.NamedError].
func (*UncertainError) ErrorName() string { return "guard.UncertainError" }

// Unwrap returns redrive.ErrUncertain and the cause.
func (e *UncertainError) Unwrap() []error { return []error{redrive.ErrUncertain, e.Err} }

// DeferredError is what [Guard.Func] returns for a request that was put off.
type DeferredError struct{ Ref redrive.Ref }

// Error implements error.
func (e *DeferredError) Error() string { return "accepted for later as " + e.Ref.String() }

// ErrorName implements [redrive.NamedError].
func (*DeferredError) ErrorName() string { return "guard.DeferredError" }
