package redrive

import "strconv"

// reply is what a handler set for the result of its message.
type reply struct {
	body    []byte
	headers Headers
}

// Delivery implements Attempt.
func (a *attempt) Delivery() *Delivery { return a.d }

// Emit implements Attempt.
func (a *attempt) Emit(m Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if w := a.c.e.opts.Backlog; w != nil {
		if level, after := w.Level(m.Queue); level == LevelRefused {
			return RetryAfter(&Error{Op: "emit", Queue: m.Queue, Err: ErrBacklogged}, after)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return &Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: ErrNotHandling, Hint: "the handler has returned, or was given up"}
	}
	if m.ID == "" {
		m.ID = DeriveID("emit", a.d.Queue, a.d.ID, strconv.Itoa(a.d.Generation), strconv.Itoa(len(a.emits)))
	}
	a.emits = append(a.emits, m)
	return nil
}

// Reply implements Attempt.
func (a *attempt) Reply(body []byte, headers Headers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = &reply{body: body, headers: headers}
}
