package redrive

import (
	"errors"
)

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
