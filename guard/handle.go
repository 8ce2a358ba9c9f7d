package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard/internal/machine"
)

// giveBack is how long a message waits that no provider took. It is not counted.
const giveBack = 500 * time.Millisecond

// HeaderProvider tells in a later result which provider answered.
const HeaderProvider = "guard-provider"

var _ redrive.Handler = (*Guard[any, any])(nil)

// Handle works on a put-off request: it is the handler of the guard's queue. What no
// provider takes is given back uncounted.
func (g *Guard[Req, Resp]) Handle(ctx context.Context, d *redrive.Delivery) error {
	req, err := g.cfg.Requests.Decode(d.Body)
	if err != nil {
		return &redrive.DecodeError{Kind: d.Kind, Err: err}
	}
	var how Deferral
	if g.cfg.Deferral != nil {
		how = g.cfg.Deferral(req)
	}
	if how.Repeat == RepeatNever && d.Suspect {
		return redrive.DeadLetter(fmt.Errorf("%w: the process died or lost the message while it was being sent", redrive.ErrUncertain), redrive.ReasonUncertain)
	}
	p, permit, ok := g.backlogPermit(d)
	if !ok {
		return redrive.Release(ErrUnavailable, giveBack)
	}
	resp, v, err := g.attempt(ctx, p, permit, req)
	if err == nil && v.Class != ClassSuccess && v.Class != ClassPermanent {
		err = errors.New(v.Reason)
	}
	switch v.Class {
	case ClassSuccess:
		g.finish(ctx, d, p.Name, resp)
		return nil
	case ClassPermanent:
		if err == nil { // the answer itself is the refusal, and the caller's
			g.finish(ctx, d, p.Name, resp)
			return nil
		}
		return redrive.Permanent(err)
	case ClassLimited:
		return redrive.Release(err, max(v.RetryAfter, giveBack))
	}
	if v.Effect == EffectUnknown && how.Repeat == RepeatNever {
		return redrive.DeadLetter(fmt.Errorf("%w: %w", redrive.ErrUncertain, err), redrive.ReasonUncertain)
	}
	if !permit.Canary() && p.state() == Down {
		return redrive.Release(err, giveBack) // it went down meanwhile: not the message's fault
	}
	return err
}

// backlogPermit finds a provider for a delivery.
func (g *Guard[Req, Resp]) backlogPermit(d *redrive.Delivery) (*provider[Req, Resp], machine.Permit, bool) {
	now := g.now()
	only, pinned := d.Headers.Get(HeaderSentTo)
	if pinned && g.byName[only] == nil { // it is no longer there: then to any
		pinned = false
	}
	for _, p := range g.providers {
		if pinned && p.Name != only {
			continue
		}
		if permit, ok := p.acquire(now, true); ok {
			return p, permit, true
		}
	}
	return nil, machine.Permit{}, false
}

// finish keeps the later result where the ticket finds it, and sends it where the
// request asked for.
func (g *Guard[Req, Resp]) finish(ctx context.Context, d *redrive.Delivery, name string, resp Resp) {
	body, err := g.cfg.Responses.Encode(resp)
	if err != nil {
		g.cfg.Logger.Error("a result cannot be encoded", "guard", g.cfg.Name, "id", d.ID, "error", err)
		body = nil
	}
	var h redrive.Headers
	h.Add(HeaderProvider, name)
	redrive.Reply(ctx, body, h)
	g.keepResult(ctx, d.ID, storedResult{Provider: name, Body: body, At: time.Now()})
	g.waiters.wake(d.ID)
}
