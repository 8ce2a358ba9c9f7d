package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Handler works on one delivery. A nil error means done; any other is classified
// (see [Classifier]) and ends in a retry, a release or a dead letter. The context
// ends with the attempt's timeout, when the lease is lost ([context.Cause] is then
// [ErrLeaseLost]) or when a shutdown runs out of patience.
type Handler interface {
	ServeDelivery(ctx context.Context, d *Delivery) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, d *Delivery) error

// ServeDelivery calls f.
func (f HandlerFunc) ServeDelivery(ctx context.Context, d *Delivery) error { return f(ctx, d) }

// verbError is an error by which a handler says what shall become of the message.
type verbError struct {
	err     error
	outcome Outcome
	reason  Reason
	after   time.Duration
	pause   bool // pause the target for after (0: until it is resumed)
	request bool // no failure, but a wish: repeat, snooze
}

func (e *verbError) Error() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.outcome == OutcomeRepeat:
		return "runs again in " + e.after.String()
	}
	return "snoozed for " + e.after.String()
}

func (e *verbError) Unwrap() error { return e.err }

// Verb says what the error asks for; package driver reads it. A request is no failure.
func (e *verbError) Verb() (o Outcome, r Reason, after time.Duration, request bool) {
	return e.outcome, e.reason, e.after, e.request
}

// ErrorName is empty: a verb says what becomes of the message, not what went wrong.
func (*verbError) ErrorName() string { return "" }

// TargetPause says for how long to pause the target, if it is to be paused; package
// driver reads it.
func (e *verbError) TargetPause() (time.Duration, bool) { return e.after, e.pause }

// given returns err, or an error in its place where a verb was used without one: a nil
// error would complete the message.
func given(err error, verb string) error {
	if err == nil {
		return fmt.Errorf("redrive.%s: no error given", verb)
	}
	return err
}

// Permanent marks an error that retrying cannot mend: the message is dead at once. As
// all verbs that take an error, it never returns nil.
func Permanent(err error) error { return PermanentAs(given(err, "Permanent"), ReasonPermanent) }

// PermanentAs is [Permanent] with another reason.
func PermanentAs(err error, reason Reason) error {
	return &verbError{err: given(err, "PermanentAs"), outcome: OutcomeDead, reason: reason}
}

// RetryAfter marks an error that is retried, no earlier than d from now (a floor
// under the policy's backoff).
func RetryAfter(err error, d time.Duration) error {
	return &verbError{err: given(err, "RetryAfter"), outcome: OutcomeRetry, after: max(d, 0)}
}

// Uncounted marks an error that is retried in d without counting the attempt. It is
// recorded in the failure history.
func Uncounted(err error, d time.Duration) error {
	return &verbError{err: given(err, "Uncounted"), outcome: OutcomeRelease, after: max(d, 0)}
}

// TargetDown retries without counting the attempt, and pauses the message's target
// (see [engine.QueueOptions.Target]) for d, or until it is resumed if d is 0. It is for
// refusals of our own, such as a missing secret: they never make a dead letter.
func TargetDown(err error, d time.Duration) error {
	return &verbError{err: given(err, "TargetDown"), outcome: OutcomeRelease, after: max(d, 0), pause: true}
}

// TargetGone makes the message a dead letter (disabled) and pauses its target until it
// is resumed: the target said that it wants no more.
func TargetGone(err error) error {
	return &verbError{err: given(err, "TargetGone"), outcome: OutcomeDead, reason: ReasonDisabled, pause: true}
}

// Snooze makes the message due again in d. That is no failure: nothing is recorded, and
// the attempt does not count.
func Snooze(d time.Duration) error {
	return &verbError{outcome: OutcomeRelease, after: max(d, 0), request: true}
}

// RepeatAfter ends this generation of the message as done, and makes the same id
// due again in d: a recurring message.
func RepeatAfter(d time.Duration) error {
	return &verbError{outcome: OutcomeRepeat, after: max(d, 0), request: true}
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
