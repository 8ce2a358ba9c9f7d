package guard

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// resultSpace holds the results of put-off requests for a while.
const resultSpace = "guard.results"

// Waits between two looks of Ticket.Wait.
const (
	pollFirst = 50 * time.Millisecond
	pollMost  = time.Second
)

// storedResult is a later result as a record.
type storedResult struct {
	Provider string    `json:"provider"`
	Body     []byte    `json:"body"`
	At       time.Time `json:"at"`
}

// Ticket is the handle on the later result of a request that was put off.
type Ticket[Resp any] struct {
	Queue string
	ID    string
	look  func(ctx context.Context) (Status[Resp], error)
}

// Ref names the request's message.
func (t *Ticket[Resp]) Ref() redrive.Ref { return redrive.Ref{Queue: t.Queue, ID: t.ID} }

// Status is how a put-off request stands.
type Status[Resp any] struct {
	// State is StateWaiting, StateLeased, StateBlocked or StateDead; zero when it has
	// ended and nothing but its outcome is known.
	State redrive.State
	// Done says that it was sent; Value and Provider are set if the result is still
	// kept.
	Done     bool
	Kept     bool
	Value    Resp
	Provider string
	// Reason says why it is dead or was dropped.
	Reason redrive.Reason
	Error  string // of its newest failure
}

// Ended reports whether it changes no more by itself.
func (s *Status[Resp]) Ended() bool { return s.Done || s.State == redrive.StateDead || s.State == 0 }

// Ticket returns the ticket of a request by its id, also in another process or after a
// restart.
func (g *Guard[Req, Resp]) Ticket(id string) *Ticket[Resp] {
	return &Ticket[Resp]{Queue: g.cfg.Queue, ID: id, look: func(ctx context.Context) (Status[Resp], error) { return g.status(ctx, id) }}
}

// published is the ticket of a request that this process has put off. In a sink beside
// the store it waits as long as the store knows nothing of it.
func (g *Guard[Req, Resp]) published(id string) *Ticket[Resp] {
	t := g.Ticket(id)
	if g.beside() {
		t.look = func(ctx context.Context) (Status[Resp], error) { return g.statusBeside(ctx, id) }
	}
	return t
}

// beside reports whether requests wait where the store does not see them.
func (g *Guard[Req, Resp]) beside() bool { return g.cfg.Source != nil }

func (g *Guard[Req, Resp]) statusBeside(ctx context.Context, id string) (Status[Resp], error) {
	s, err := g.status(ctx, id)
	if errors.Is(err, redrive.ErrNotFound) {
		return Status[Resp]{State: redrive.StateWaiting}, nil
	}
	return s, err
}

// Poll returns how the request stands now. It returns [redrive.ErrUnsupported] for a
// guard without a store, and [redrive.ErrNotFound] for an id that is not known (any
// more).
func (t *Ticket[Resp]) Poll(ctx context.Context) (Status[Resp], error) { return t.look(ctx) }

// Wait returns when the request has ended, or with the error of ctx.
func (t *Ticket[Resp]) Wait(ctx context.Context) (Status[Resp], error) {
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		s, err := t.look(ctx)
		if err != nil || s.Ended() {
			return s, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return s, ctx.Err()
		case <-timer.C:
		}
	}
}

// status looks for the result, then for the message, then for what is remembered of
// it; then for the result again, as it may have ended in between.
func (g *Guard[Req, Resp]) status(ctx context.Context, id string) (s Status[Resp], err error) {
	if g.cfg.Store == nil {
		return s, &redrive.Error{Op: "poll", Queue: g.cfg.Queue, ID: id, Err: redrive.ErrUnsupported, Hint: "give the guard a store beside its sink"}
	}
	ref := []redrive.Ref{{Queue: g.cfg.Queue, ID: id}}
	if found, err := g.result(ctx, id, &s); found || err != nil {
		return s, err
	}
	entries, err := g.cfg.Store.Get(ctx, ref)
	if err != nil {
		return s, err
	}
	if e := entries[0]; e != nil {
		s.State, s.Reason = e.State, e.Reason
		if f := e.History.Latest(); f != nil {
			s.Error = f.Message
		}
		return s, nil
	}
	if found, err := g.result(ctx, id, &s); found || err != nil {
		return s, err
	}
	known, err := g.cfg.Store.Recall(ctx, ref)
	if err != nil {
		return s, err
	}
	if known[0] == nil {
		hint := ""
		if g.beside() {
			hint = "it may wait in the sink beside the store, which cannot be looked into"
		}
		return s, &redrive.Error{Op: "poll", Queue: g.cfg.Queue, ID: id, Err: redrive.ErrNotFound, Hint: hint}
	}
	s.Done = known[0].Outcome == redrive.OutcomeDone
	s.Reason = known[0].Reason
	return s, nil
}

// result fills in the kept result, if there is one.
func (g *Guard[Req, Resp]) result(ctx context.Context, id string, s *Status[Resp]) (bool, error) {
	r, err := g.cfg.Store.GetRecord(ctx, resultSpace, g.cfg.Name+"/"+id)
	if errors.Is(err, redrive.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var stored storedResult
	if err := json.Unmarshal(r.Value, &stored); err != nil {
		return false, &redrive.Error{Op: "poll", Queue: g.cfg.Queue, ID: id, Err: err}
	}
	s.Done, s.Provider = true, stored.Provider
	if stored.Body != nil {
		if s.Value, err = g.cfg.Responses.Decode(stored.Body); err != nil {
			return false, &redrive.Error{Op: "poll", Queue: g.cfg.Queue, ID: id, Err: err}
		}
		s.Kept = true
	}
	return true, nil
}

// keepResult keeps a result before its message is settled. If it cannot be kept the
// request was carried out nevertheless: it must not be repeated for that.
func (g *Guard[Req, Resp]) keepResult(ctx context.Context, id string, r storedResult) {
	if g.cfg.Store == nil || g.cfg.KeepResults < 0 {
		return
	}
	value, err := json.Marshal(r)
	if err == nil && len(value) > driver.MaxRecordSize {
		r.Body = nil
		value, err = json.Marshal(r)
	}
	if err == nil {
		_, err = g.cfg.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: resultSpace, Key: g.cfg.Name + "/" + id,
			Value: value, Version: driver.AnyVersion, Expires: g.cfg.KeepResults}}})
	}
	if err != nil {
		g.cfg.Logger.Error("a result could not be kept", "guard", g.cfg.Name, "id", id, "error", err)
	}
}
