package guard

import (
	"context"
	"errors"

	"github.com/redrive/redrive/guard/internal/machine"
)

// call is one request on its way through the providers.
type call[Req, Resp any] struct {
	g   *Guard[Req, Resp]
	req Req
	d   Deferral

	result    Result[Resp]
	err       error  // of the newest attempt
	sentTo    string // the only provider that may see the request again; "": any
	answered  bool
	uncertain bool
	over      bool   // no other provider may be tried
	refused   uint16 // the providers that did not let it through, by index
}

// all tries providers in an order. Only if none of them lets the request through at once
// it waits for its turn with one.
func (t *call[Req, Resp]) all(ctx context.Context, order []uint8) {
	for _, i := range order {
		if t.with(ctx, t.g.providers[i], false); t.over {
			break
		}
	}
	if t.refused == 0 {
		return
	}
	for _, i := range order {
		if t.over || t.result.Attempts > 0 {
			break
		}
		t.with(ctx, t.g.providers[i], true)
	}
	for i, p := range t.g.providers {
		if t.refused&(1<<i) != 0 {
			p.refused.Add(1)
		}
	}
}

// with tries one provider, and again at once as often as the guard allows. With soon the
// first try waits for its turn.
func (t *call[Req, Resp]) with(ctx context.Context, p *provider[Req, Resp], soon bool) {
	for try := 0; ; try++ {
		before := t.result.Attempts
		if before > 0 && (ctx.Err() != nil || !t.g.budget.take(t.g.now())) {
			t.over = true
			return
		}
		v, ok := t.once(ctx, p, soon && try == 0)
		switch {
		case before == 0:
		case t.result.Attempts == before: // it was not called
			t.g.budget.give()
		case try == 0:
			t.g.failovers.add()
		}
		if !ok {
			return
		}
		if t.over || try >= t.g.cfg.Retries || v.Class == ClassLimited || v.Class == ClassIgnored {
			break
		}
	}
	if t.sentTo != "" {
		t.over = true
	}
}

// permit asks a provider for a permit.
func (t *call[Req, Resp]) permit(ctx context.Context, p *provider[Req, Resp], soon bool) (permit machine.Permit, ok bool) {
	if soon {
		permit, ok = p.acquireSoon(ctx, t.g.now)
	} else {
		permit, ok = p.acquire(t.g.now())
	}
	if ok {
		t.refused &^= 1 << p.index
	} else {
		t.refused |= 1 << p.index
	}
	return permit, ok
}

// once makes one attempt, if the provider lets it through, and learns what may follow it.
func (t *call[Req, Resp]) once(ctx context.Context, p *provider[Req, Resp], soon bool) (Outcome, bool) {
	permit, ok := t.permit(ctx, p, soon)
	if !ok {
		return Outcome{}, false
	}
	resp, v, err := t.g.attempt(ctx, p, permit, t.req)
	t.result.Attempts++
	switch v.Class {
	case ClassSuccess, ClassPermanent:
		t.result.Value, t.result.Provider, t.err = resp, p.Name, err
		t.answered, t.over = true, true
		return v, true
	case ClassIgnored:
		t.over = true
	}
	if t.err = err; err == nil {
		t.err = errors.New(v.Reason)
	}
	if v.Effect == EffectUnknown {
		switch t.d.Repeat {
		case RepeatNever:
			t.uncertain, t.over = true, true
			t.sentTo = p.Name
		case RepeatSame:
			t.sentTo = p.Name
		}
	}
	return v, true
}
