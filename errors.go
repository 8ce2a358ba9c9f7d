package redrive

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of publishing.
var (
	// ErrDuplicate is a sink's result for a message that is there already: same queue,
	// id, kind, key and body. Nothing was stored. [Publish] makes a success of it.
	ErrDuplicate = errors.New("duplicate: a message with this id was accepted before")
	// ErrConflict says that another message with the same queue and id, but a
	// different body, kind or key, was accepted before.
	ErrConflict = errors.New("conflict: another message with this id was accepted before")
	// ErrBacklogged says that the queue or the store is above its hard backlog limit.
	// Nothing was stored; try again later.
	ErrBacklogged = errors.New("backlogged: the queue is above its limit")
	// ErrInvalid says that a message, name or request cannot be accepted as it is.
	// It is permanent: repeating it does not help.
	ErrInvalid = errors.New("invalid")
	// ErrFull says that the store's disk or memory is full. Nothing was stored.
	ErrFull = errors.New("the store is full")
)

// Errors of settling, extending and changing.
var (
	// ErrLeaseLost says that the receipt's token is not the current one: the lease
	// ran out and the message was claimed again, or it was settled before.
	ErrLeaseLost = errors.New("lease lost: the message was claimed again or settled")
	// ErrNotFound says that there is no such message (any more).
	ErrNotFound = errors.New("not found")
	// ErrUnknown says that the connection died before the answer came: the
	// operation may or may not have happened. Repeat it; it is idempotent.
	ErrUnknown = errors.New("outcome unknown: the connection died before the answer")
	// ErrVersion says that a record has another version than the write expected.
	ErrVersion = errors.New("version conflict: the record was changed by another")
	// ErrLoop says that a message was redriven as often as the limit allows.
	ErrLoop = errors.New("loop: the message was redriven too often")
	// ErrState says that the message is not in a state that allows the change.
	ErrState = errors.New("the message's state does not allow this")
	// ErrUncertain says that the effect of a call is not known and that it is not
	// safe to repeat. A dead letter with this reason is redriven only on demand.
	ErrUncertain = errors.New("uncertain: the effect is unknown and not safe to repeat")
	// ErrBodyGone says that a dead letter has no body, because its broker had only a
	// pointer to a record that is no longer there. It is not redriven until an edit
	// gives it a body.
	ErrBodyGone = errors.New("body gone: the broker no longer has the record")
	// ErrBodyCorrupt says that the bytes of a dead letter do not match the checksum that
	// they were stored with. It is redriven only on demand, or with a new body.
	ErrBodyCorrupt = errors.New("body corrupt: the message does not match its checksum")
)

// Errors of the store as a whole.
var (
	// ErrClosed says that the source, sink or store was closed.
	ErrClosed = errors.New("closed")
	// ErrUnsupported says that the backend has no such ability; see [driver.Caps].
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrCorrupt says that stored data cannot be read back. The store stops.
	ErrCorrupt = errors.New("the store is corrupt")
	// ErrUnavailable says that the server of a store or broker could not be reached, and that
	// nothing was changed. It passes when the server is back: repeat the call later.
	ErrUnavailable = errors.New("unavailable: the server of the store cannot be reached")
	// ErrInUse says that another process owns the store.
	ErrInUse = errors.New("the store is in use by another process")
)

// Error is an error with the place it belongs to and, where there is one, a hint
// that tells the operator what to do. It unwraps to its cause.
type Error struct {
	Op    string // what was attempted: "publish", "open", "settle"
	Queue string // the queue, if one is concerned
	ID    string // the message, if one is concerned
	Err   error  // the cause; never nil
	Hint  string // what to do about it; may be empty
}

// Error joins operation, place, cause and hint into one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Queue != "" || e.ID != "" {
		b.WriteByte(' ')
		b.WriteString(Ref{Queue: e.Queue, ID: e.ID}.String())
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteByte(')')
	}
	return b.String()
}

// ErrorName implements NamedError.
func (*Error) ErrorName() string { return "redrive.Error" }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// PanicError is a panic of a handler, as the error of its attempt.
type PanicError struct {
	Value any
	Stack string
}

// Error shows the value that was panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// ErrorName implements NamedError.
func (*PanicError) ErrorName() string { return "redrive.PanicError" }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// StackTrace returns where it was raised.
func (e *PanicError) StackTrace() string { return e.Stack }
