package redrive

import (
	"context"
	"errors"
	"time"
)

// Handler works on one delivery. A nil error means done; any other is classified
// (see [Classifier]) and ends in a retry, a release or a dead letter. The context
// ends with the attempt's timeout, when the lease is lost ([context.Cause] is then
// [ErrLeaseLost]) or when a shutdown runs out of patience.
type Handler interface {
	Handle(ctx context.Context, d *Delivery) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, d *Delivery) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, d *Delivery) error { return f(ctx, d) }

// verbError is an error by which a handler says what shall become of the message.
type verbError struct {
	err    error
	class  Class
	reason Reason
	after  time.Duration
	pause  bool // pause the target for after (0: until it is resumed)
}

func (e *verbError) Error() string {
	if e.err == nil {
		return e.class.String()
	}
	return e.err.Error()
}

func (e *verbError) Unwrap() error { return e.err }

// ErrorName is empty: a verb says what becomes of the message, not what went wrong.
func (*verbError) ErrorName() string { return "" }

// TargetPause says for how long to pause the target, if it is to be paused; package
// driver reads it.
func (e *verbError) TargetPause() (time.Duration, bool) { return e.after, e.pause }

// Permanent marks an error that retrying cannot mend: the message is dead at once.
// It returns nil for nil.
func Permanent(err error) error { return DeadLetter(err, ReasonPermanent) }

// DeadLetter is Permanent with another reason. It returns nil for nil.
func DeadLetter(err error, reason Reason) error {
	if err == nil {
		return nil
	}
	return &verbError{err: err, class: ClassPermanent, reason: reason}
}

// RetryAfter marks an error that is retried, no earlier than d from now (a floor
// under the policy's backoff). It returns nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &verbError{err: err, class: ClassTransient, after: max(d, 0)}
}

// Release gives the message back without counting the attempt, due again in d. It
// returns nil for nil.
func Release(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &verbError{err: err, class: ClassRelease, after: max(d, 0)}
}

// Pause gives the message back without counting the attempt, and pauses its target
// (see [engine.QueueOptions.Target]) for d, or until it is resumed if d is 0. It is for
// refusals of our own, such as a missing secret: they never make a dead letter.
func Pause(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &verbError{err: err, class: ClassRelease, after: max(d, 0), pause: true}
}

// Disable makes the message a dead letter (disabled) and pauses its target until it
// is resumed: the target said that it wants no more. It returns nil for nil.
func Disable(err error) error {
	if err == nil {
		return nil
	}
	return &verbError{err: err, class: ClassPermanent, reason: ReasonDisabled, pause: true}
}

// RepeatAfter ends this generation of the message as done, and makes the same id
// due again in d: a recurring message.
func RepeatAfter(d time.Duration) error {
	return &verbError{class: ClassRepeat, after: max(d, 0)}
}

// ErrSettled is returned by a handler that settled the delivery itself, in a
// transaction of its own. The engine does not settle it again.
var ErrSettled = errors.New("settled by the handler")

// StatusError is an error that knows the HTTP status behind it.
type StatusError interface {
	error
	HTTPStatus() int
}

// NamedError is an error whose name in failures and [Table] matchers does not depend on
// its Go type, so that it may be renamed or moved and its failures stay one cause. Other
// errors have the name of their type with its package's name, "*shop.StockError". An
// error that names itself "" only wraps another and is left out of the chain.
type NamedError interface {
	error
	ErrorName() string
}

// DetailedError is an error that adds details to a [Failure], such as the status
// and an excerpt of a response.
type DetailedError interface {
	error
	FailureDetails() map[string]string
}
