package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard/internal/machine"
)

// grace is how long a call may take to return once its context has ended.
const grace = 20 * time.Millisecond

// attempt makes one call under a permit, which it gives back whatever happens: a panic
// and runtime.Goexit too count as the provider's failure, and go on.
func (g *Guard[Req, Resp]) attempt(ctx context.Context, p *provider[Req, Resp], permit machine.Permit, req Req) (resp Resp, v Outcome, err error) {
	v = Outcome{Class: ClassTransient}
	left := false
	defer func() {
		if !left {
			p.release(permit, g.now(), v)
		}
	}()
	if p.Timeout == 0 {
		resp, err = p.Call(ctx, req)
		v = p.judge(ctx, resp, err)
		return resp, v, err
	}
	inner, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	r := &running[Resp]{done: make(chan struct{})}
	go func() {
		defer func() {
			if !r.returned {
				if v := recover(); v != nil {
					r.panicked = &redrive.PanicError{Value: v, Stack: string(debug.Stack())}
				}
			}
			g.ended(p, r)
		}()
		r.resp, r.err = p.Call(inner, req)
		r.returned = true
	}()
	if left = !r.wait(inner); left {
		err = fmt.Errorf("the call has not returned: %w", inner.Err())
		v = p.judge(ctx, resp, err)
		p.leave(permit, g.now(), v)
		return resp, v, err
	}
	switch {
	case r.returned:
	case r.panicked != nil: // with the stack, which this goroutine's does not show
		panic(r.panicked)
	default:
		runtime.Goexit()
	}
	v = p.judge(ctx, r.resp, r.err)
	return r.resp, v, r.err
}

// running is a call in a goroutine of its own, so that one that ignores its context does
// not hold its caller. What it came to may be read once wait has reported true.
type running[Resp any] struct {
	done  chan struct{}
	taken atomic.Bool // by whichever was first: the end of the call, or the caller's leaving

	resp     Resp
	err      error
	returned bool // it neither panicked nor called runtime.Goexit
	panicked *redrive.PanicError
}

// wait reports whether the call ended before its context did, or soon after.
func (r *running[Resp]) wait(ctx context.Context) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-r.done:
		return true
	case <-t.C:
	}
	if r.taken.CompareAndSwap(false, true) {
		return false
	}
	<-r.done
	return true
}

// ended ends a call. If its caller has left it gives the place among the calls in flight back, and
// a panic has nobody left but the log.
func (g *Guard[Req, Resp]) ended(p *provider[Req, Resp], r *running[Resp]) {
	if !r.taken.CompareAndSwap(false, true) {
		p.end()
		if e := r.panicked; e != nil {
			g.cfg.Logger.Error("a call panicked after its timeout", "guard", g.cfg.Name, "provider", p.Name, "panic", e.Value, "stack", e.Stack)
		}
	}
	close(r.done)
}

// judge classifies the end of a call. What ended because the caller left says nothing
// about the provider.
func (p *provider[Req, Resp]) judge(ctx context.Context, resp Resp, err error) Outcome {
	if p.Classify != nil {
		if v, ok := p.Classify(resp, err); ok {
			if v.Class == 0 {
				v.Class = ClassTransient
			}
			return v
		}
	}
	if err == nil {
		return Outcome{Class: ClassSuccess}
	}
	v := Classify(err)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		v.Class = ClassIgnored
	}
	return v
}
