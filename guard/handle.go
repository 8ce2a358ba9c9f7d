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

// ServeDelivery works on a put-off request: it is the handler of the guard's queue. What no
// provider takes is given back uncounted.
func (g *Guard[Req, Resp]) ServeDelivery(ctx context.Context, d *redrive.Delivery) error {
	g.claims.begin(d)
	p, permit, req, how, err := g.admitBacklog(d)
	if err != nil {
		return err
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
		return redrive.Uncounted(err, max(v.RetryAfter, giveBack))
	}
	if v.Effect == EffectUnknown && how.Repeat == RepeatNever {
		return redrive.PermanentAs(fmt.Errorf("%w: %w", redrive.ErrUncertain, err), redrive.ReasonUncertain)
	}
	if !permit.Canary() && p.state() == Down {
		return redrive.Uncounted(err, giveBack) // it went down meanwhile: not the message's fault
	}
	return err
}

// admitBacklog decodes a delivery and finds a provider for it. The reservation that the
// gate made for it is used up by the permit, or given back.
func (g *Guard[Req, Resp]) admitBacklog(d *redrive.Delivery) (p *provider[Req, Resp], permit machine.Permit, req Req, how Deferral, err error) {
	used := false
	defer func() {
		if !used {
			g.giveBack(g.now(), 1)
		}
	}()
	if req, err = g.cfg.Requests.Decode(d.Body); err != nil {
		return nil, permit, req, how, &redrive.DecodeError{Kind: d.Kind, Err: err}
	}
	if g.cfg.Deferral != nil {
		how = g.cfg.Deferral(req)
	}
	if how.Repeat == RepeatNever && d.Suspect {
		err = fmt.Errorf("%w: the process died or lost the message while it was being sent", redrive.ErrUncertain)
		return nil, permit, req, how, redrive.PermanentAs(err, redrive.ReasonUncertain)
	}
	only, pinned := d.Headers.Get(HeaderSentTo)
	if pinned && g.byName[only] == nil { // it is no longer there: then to any
		pinned = false
	}
	for _, reserved := range [...]bool{true, false} {
		for _, p := range g.providers {
			if pinned && p.Name != only || reserved && used {
				continue
			}
			permit, ok, one := p.acquireBacklog(g.now(), reserved)
			if used = used || one; ok {
				return p, permit, req, how, nil
			}
		}
	}
	return nil, permit, req, how, redrive.Uncounted(ErrUnavailable, giveBack)
}

// giveBack gives reservations back that nobody uses.
func (g *Guard[Req, Resp]) giveBack(now time.Duration, n int) {
	for _, p := range g.providers {
		if n <= 0 {
			return
		}
		p.mu.Lock()
		n -= p.m.Return(now, n)
		p.unlock()
	}
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
}
