package guard

import (
	"context"
	"errors"

	"github.com/redrive/redrive/guard/internal/machine"
)

// trial is one request on its way through the providers.
type trial[Req, Resp any] struct {
	g   *Guard[Req, Resp]
	req Req
	d   Deferral

	result    Result[Resp]
	err       error  // of the newest attempt
	sentTo    string // the only provider that may see the request again; "": any
	answered  bool
	uncertain bool
	over      bool // no other provider may be tried
}

// with tries one provider, and again at once as often as the guard allows.
func (t *trial[Req, Resp]) with(ctx context.Context, p *provider[Req, Resp]) {
	for try := 0; ; try++ {
		now := t.g.now()
		if t.result.Attempts > 0 {
			if ctx.Err() != nil || !t.g.budget.take(now) {
				t.over = true
				return
			}
			if try == 0 {
				t.g.failovers.add()
			}
		}
		permit, ok := p.acquire(now, false)
		if !ok {
			return
		}
		if v := t.once(ctx, p, permit); t.over || try >= t.g.cfg.Retries || v.Class == ClassLimited || v.Class == ClassIgnored {
			break
		}
	}
	if t.sentTo != "" {
		t.over = true
	}
}

// once makes one attempt and learns what may follow it.
func (t *trial[Req, Resp]) once(ctx context.Context, p *provider[Req, Resp], permit machine.Permit) Verdict {
	resp, v, err := t.g.attempt(ctx, p, permit, t.req)
	t.result.Attempts++
	switch v.Class {
	case ClassSuccess, ClassPermanent:
		t.result.Value, t.result.Provider, t.err = resp, p.Name, err
		t.answered, t.over = true, true
		return v
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
	return v
}

// attempt makes one call under a permit, which it gives back whatever happens: a panic
// and runtime.Goexit too count as the provider's failure, and go on.
func (g *Guard[Req, Resp]) attempt(ctx context.Context, p *provider[Req, Resp], permit machine.Permit, req Req) (resp Resp, v Verdict, err error) {
	v = Verdict{Class: ClassTransient}
	defer func() { p.release(permit, g.now(), v) }()
	if p.Timeout > 0 {
		inner, cancel := context.WithTimeout(ctx, p.Timeout)
		defer cancel()
		resp, err = p.Call(inner, req)
	} else {
		resp, err = p.Call(ctx, req)
	}
	v = p.judge(ctx, resp, err)
	return resp, v, err
}

// judge classifies the end of a call. What ended because the caller left says nothing
// about the provider.
func (p *provider[Req, Resp]) judge(ctx context.Context, resp Resp, err error) Verdict {
	if p.Classify != nil {
		if v, ok := p.Classify(resp, err); ok {
			if v.Class == 0 {
				v.Class = ClassTransient
			}
			return v
		}
	}
	if err == nil {
		return Verdict{Class: ClassSuccess}
	}
	v := Classify(err)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		v.Class = ClassIgnored
	}
	return v
}
