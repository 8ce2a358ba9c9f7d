package driver

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// Selection is names, or a query, or both: of the named messages those that match the
// query's Queue, State, Since, Until, Plan and NotPlan; the others get [redrive.ErrState].
type Selection struct {
	Refs  []redrive.Ref
	Query *redrive.Query
}

// Action is what a Change does.
type Action uint8

// The actions.
const (
	ActRedrive Action = iota + 1 // dead: waiting again, in the next generation and the redrive lane; an ExpiresAt that has passed is cleared
	ActDrop                      // dead or waiting: removed and counted as dropped
	ActArchive                   // dead: removed and counted as archived
	ActKill                      // waiting: dead with the reason
	ActEdit                      // dead or waiting: body, headers, kind or key replaced, the original kept
	ActDueNow                    // waiting: due at once
)

var actionNames = []string{"", "redrive", "drop", "archive", "kill", "edit", "due-now"}

// String returns the action in lower case.
func (a Action) String() string { return text.Enum(actionNames, a) }

// MarshalText implements encoding.TextMarshaler.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(b []byte) (err error) {
	*a, err = text.ParseEnum[Action](redrive.ErrInvalid, actionNames, string(b), "action")
	return err
}

// Change is what Update does to each selected message. A leased message is never
// changed: its result is [redrive.ErrState].
type Change struct {
	Action Action
	Reason redrive.Reason // of ActKill; 0: manual
	Note   string         // who and why: recorded as a failure's message with ActKill

	To               string // ActRedrive: another queue; counted as moved
	NewID            bool   // ActRedrive: under a new id, for receivers that deduplicate; EditedFrom names the old one
	Plan             string // ActRedrive, ActEdit, ActDueNow: the plan it belongs to
	MaxRedrives      int    // ActRedrive: refuse with ErrLoop what was redriven so often; 0: no limit
	ConfirmUncertain bool   // ActRedrive: also what is dead as uncertain; else ErrUncertain
	ConfirmCorrupt   bool   // ActRedrive: also what is dead as corrupt, and only of that the checksum is made anew; else ErrBodyCorrupt

	Edit *redrive.Edit // ActEdit, or edit and redrive in one step. What is again as it was published has no original any more

	// Edits have for each message of the selection its own edit, instead of Edit.
	Edits map[redrive.Ref]EditOf
}

// EditOf is an edit of a message as it was when somebody looked at it.
type EditOf struct {
	redrive.Edit
	Sum uint32 // the [Checksum] that the message must have, else [redrive.ErrConflict]: it was changed since
}

// For returns the change of one message of the selection, as it is now.
func (c *Change) For(m *redrive.Message) (*Change, error) {
	if c.Edits == nil {
		return c, nil
	}
	e, ok := c.Edits[m.Ref()]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w change: no edit for %s", redrive.ErrInvalid, m.Ref())
	case e.Sum != Checksum(m):
		return nil, redrive.ErrConflict
	}
	one := *c
	one.Edit, one.Edits = &e.Edit, nil
	return &one, nil
}

// Restored reports whether a message is again as it was published: in kind, key, headers and body.
func Restored(m, original *redrive.Message) bool {
	return m.Kind == original.Kind && m.Key == original.Key && bytes.Equal(m.Body, original.Body) &&
		slices.EqualFunc(m.Headers, original.Headers, func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) })
}

// CheckRedrive reports why a store must not redrive a dead letter: with [redrive.ErrBodyGone],
// [redrive.ErrUncertain], [redrive.ErrBodyCorrupt] or [redrive.ErrLoop].
func (c *Change) CheckRedrive(m *redrive.Message, reason redrive.Reason) error {
	switch _, gone := m.Headers.Get(redrive.HeaderBodyGone); {
	case gone && (c.Edit == nil || c.Edit.Body == nil):
		return redrive.ErrBodyGone
	case reason == redrive.ReasonUncertain && !c.ConfirmUncertain:
		return redrive.ErrUncertain
	case reason == redrive.ReasonCorrupt && !c.ConfirmCorrupt && (c.Edit == nil || c.Edit.Body == nil):
		return redrive.ErrBodyCorrupt
	case c.MaxRedrives > 0 && m.Redrives >= c.MaxRedrives:
		return redrive.ErrLoop
	}
	return nil
}

// Validate reports what no store carries out, as an [*redrive.Error] that wraps [redrive.ErrInvalid].
func (c *Change) Validate() error {
	var err error
	switch {
	case c.Action < ActRedrive || c.Action > ActDueNow:
		err = fmt.Errorf("%w change: action %d", redrive.ErrInvalid, c.Action)
	case c.Action == ActEdit && c.Edit == nil && len(c.Edits) == 0:
		err = fmt.Errorf("%w change: an edit without what to edit", redrive.ErrInvalid)
	case c.Reason > LastReason:
		err = fmt.Errorf("%w change: reason %d", redrive.ErrInvalid, c.Reason)
	case c.To != "":
		err = CheckQueue(c.To)
	}
	if err == nil {
		err = c.Edit.Validate()
	}
	for _, e := range c.Edits {
		if err == nil {
			err = e.Validate()
		}
	}
	if err == nil {
		return nil
	}
	refused := &redrive.Error{Op: "update", Err: err}
	if edit := (*redrive.Error)(nil); errors.As(err, &edit) {
		refused.Err, refused.Hint = edit.Err, edit.Hint
	}
	return refused
}

// Updated is what became of one message of an Update.
type Updated struct {
	redrive.Ref
	Err error
	New redrive.Ref // where the message is now, if it moved or got a new id
}
