package engine

import (
	"fmt"
	"strconv"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// reply is what a handler set for the result of its message.
type reply struct {
	body    []byte
	headers redrive.Headers
}

// Delivery answers [redrive.DeliveryFrom].
func (a *attempt) Delivery() *redrive.Delivery { return a.d }

// Emit answers [redrive.Emit].
func (a *attempt) Emit(m redrive.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if w := a.c.e.opts.Backlog; w != nil {
		if level, after := w.Level(m.Queue); level == driver.LevelRefused {
			return redrive.RetryAfter(&redrive.Error{Op: "emit", Queue: m.Queue, Err: redrive.ErrBacklogged}, after)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return &redrive.Error{Op: "emit", Queue: m.Queue, ID: m.ID, Err: fmt.Errorf("%w context: the handler has returned, or was given up", redrive.ErrInvalid)}
	}
	if m.ID == "" {
		m.ID = driver.DeriveID("emit", a.d.Queue, a.d.ID, strconv.Itoa(a.d.Generation), strconv.Itoa(len(a.emits)))
	}
	a.emits = append(a.emits, m)
	return nil
}

// Reply answers [redrive.Reply].
func (a *attempt) Reply(body []byte, headers redrive.Headers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = &reply{body: body, headers: headers}
}
