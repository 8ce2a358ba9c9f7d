package redrive

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Query selects entries. Every field that is set narrows it.
type Query struct {
	Queue     string
	State     State // 0: any
	Reason    Reason
	Signature string
	Kind      string
	Key       string
	Since     time.Time // died (dead) or was published (else) at or after
	Until     time.Time // died or was published before or at: the frozen cutoff of a plan
	Text      string    // contained in the body or in the last error
	Header    string    // NAME or NAME=VALUE
	Plan      string    // was redriven last by this plan
	NotPlan   string    // was not redriven last by this plan

	After  string // the Next of the page before
	Limit  int    // entries (or groups) a page; 0: 100, at most 1000
	Bodies bool   // fill in bodies, headers, histories and originals
}

// Defaults and bounds of Query.Limit, and how many entries one page of a query that
// no index serves examines before it says so.
const (
	DefaultPage = 100
	MaxPage     = 1000
	Examined    = 20_000
)

// PageLimit returns the limit with its default and bound applied.
func (q *Query) PageLimit() int {
	if q.Limit <= 0 {
		return DefaultPage
	}
	return min(q.Limit, MaxPage)
}

// Page is one page of entries.
type Page struct {
	Entries []Entry
	// Next continues after this page; empty when there is nothing more. A page may
	// be short, even empty, and still have a Next.
	Next string
	// Complete is false when the page ended because it had examined [Examined]
	// entries, not because it was full or at the end.
	Complete bool
}

// Group counts dead letters of one cause.
type Group struct {
	Queue     string
	Reason    Reason
	Signature string
	Count     int64
	First     time.Time // when the first of them died
	Last      time.Time // when the last of them died
	Example   Ref       // one of them, the newest
	Type      string    // the example's error type
	Message   string    // the example's error text
}

// Selection is names, or a query, or both: of the named messages those that match the
// query's Queue, State, Since, Until, Plan and NotPlan; the others get [ErrState].
type Selection struct {
	Refs  []Ref
	Query *Query
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
	*a, err = text.ParseEnum[Action](ErrInvalid, actionNames, string(b), "action")
	return err
}

// Change is what Update does to each selected message. A leased message is never
// changed: its result is [ErrState].
type Change struct {
	Action Action
	Reason Reason // of ActKill; 0: manual
	Note   string // who and why: recorded as a failure's message with ActKill

	To               string // ActRedrive: another queue; counted as moved
	NewID            bool   // ActRedrive: under a new id, for receivers that deduplicate; EditedFrom names the old one
	Plan             string // ActRedrive: the plan it belongs to
	MaxRedrives      int    // ActRedrive: refuse with ErrLoop what was redriven so often; 0: no limit
	ConfirmUncertain bool   // ActRedrive: also what is dead as uncertain; else ErrUncertain

	Edit *Edit // ActEdit, or edit and redrive in one step
}

// CheckRedrive reports why a store must not redrive a dead letter: with [ErrBodyGone],
// [ErrUncertain] or [ErrLoop].
func (c *Change) CheckRedrive(m *Message, reason Reason) error {
	switch _, gone := m.Headers.Get(HeaderBodyGone); {
	case gone && (c.Edit == nil || c.Edit.Body == nil):
		return ErrBodyGone
	case reason == ReasonUncertain && !c.ConfirmUncertain:
		return ErrUncertain
	case c.MaxRedrives > 0 && m.Redrives >= c.MaxRedrives:
		return ErrLoop
	}
	return nil
}

// Validate reports what no store carries out, as an [*Error] that wraps [ErrInvalid].
func (c *Change) Validate() error {
	var err error
	switch {
	case c.Action < ActRedrive || c.Action > ActDueNow:
		err = fmt.Errorf("%w change: action %d", ErrInvalid, c.Action)
	case c.Action == ActEdit && c.Edit == nil:
		err = fmt.Errorf("%w change: an edit without what to edit", ErrInvalid)
	case c.Reason > ReasonManual:
		err = fmt.Errorf("%w change: reason %d", ErrInvalid, c.Reason)
	case c.To != "":
		err = CheckQueue(c.To)
	}
	if err == nil {
		err = c.Edit.Validate()
	}
	if err == nil {
		return nil
	}
	refused := &Error{Op: "update", Err: err}
	if edit := (*Error)(nil); errors.As(err, &edit) {
		refused.Err, refused.Hint = edit.Err, edit.Hint
	}
	return refused
}

// Edit replaces parts of a message; nil leaves a part as it is.
type Edit struct {
	Body    []byte
	Headers *Headers
	Kind    *string
	Key     *string
}

// Apply replaces the parts of m that the edit names. A nil edit names none. With a new
// body, [HeaderBodyGone] is taken away.
func (e *Edit) Apply(m *Message) {
	if e == nil {
		return
	}
	if e.Headers != nil {
		why, gone := m.Headers.Get(HeaderBodyGone)
		m.Headers = *e.Headers
		if gone && e.Body == nil { // other headers do not bring the body back
			m.Headers = m.Headers.Clone()
			m.Headers.Set(HeaderBodyGone, why)
		}
	}
	if e.Body != nil {
		m.Body = e.Body
		if _, gone := m.Headers.Get(HeaderBodyGone); gone {
			m.Headers = m.Headers.Clone()
			m.Headers.Del(HeaderBodyGone)
		}
	}
	if e.Kind != nil {
		m.Kind = *e.Kind
	}
	if e.Key != nil {
		m.Key = *e.Key
	}
}

// Validate reports an edit whose result no message may be, with an error that wraps
// [ErrInvalid]. A nil edit is valid.
func (e *Edit) Validate() error {
	if e == nil {
		return nil
	}
	m := Message{Queue: "edit"} // the limits of a message are those of its parts, each for itself
	e.Apply(&m)
	err := m.Validate()
	if part := (*Error)(nil); errors.As(err, &part) {
		return &Error{Op: "edit", Err: part.Err, Hint: part.Hint}
	}
	return err
}

// Updated is what became of one message of an Update.
type Updated struct {
	Ref
	Err error
	New Ref // where the message is now, if it moved or got a new id
}
