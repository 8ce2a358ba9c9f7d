package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/handling"
)

// ErrShutdown is the cause of a handler's context when a shutdown ran out of
// patience. The message is released.
var ErrShutdown = errors.New("shutdown")

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit (t.FailNow does)")

// attempt is one delivery in flight at a handler, from its claim until its settlement
// is durable. It is the handler's context: a real one is only made when somebody
// asks for Done, so that a short handler costs no timer.
type attempt struct {
	c        *consumer
	f        *feed
	d        *redrive.Delivery
	o        *consumerConfig // as it was claimed: its gates learn how it ended
	policy   *redrive.Policy
	base     context.Context // ends with the engine
	isolated bool
	swept    bool // no gate granted it

	began    time.Time
	deadline time.Time          // zero until a worker has taken it
	settle   driver.Settlement  // once decided
	buried   *driver.Settlement // what was decided, if the queue's own dead-letter sink took the message

	mu    sync.Mutex
	inner context.Context // made on demand
	stop  context.CancelCauseFunc
	timer context.CancelFunc
	ended bool // the handler returned, or was given up
	emits []redrive.Message
	reply *reply

	// Under the consumer's lock.
	state      attemptState
	returned   bool
	use        *kindUse  // that it counts for
	long       bool      // it holds its slot long
	endedAt    time.Time // once it is decided
	lost       bool
	stuck      bool
	extendedAt time.Time
	ahead      bool     // claimed ahead of a free slot
	closings   int      // of the consumer, when it was claimed
	prev, next *attempt // list of what is in flight
	behind     *attempt // in the line of those that no worker has taken yet
}

type attemptState uint8

const (
	attemptRunning  attemptState = iota // in the handler
	attemptSettling                     // decided
	attemptSettled
)

var _ context.Context = (*attempt)(nil)

// Deadline implements context.Context.
func (a *attempt) Deadline() (time.Time, bool) { return a.deadline, true }

// Done implements context.Context.
func (a *attempt) Done() <-chan struct{} { return a.context().Done() }

// Err implements context.Context.
func (a *attempt) Err() error {
	a.mu.Lock()
	inner, ended := a.inner, a.ended
	a.mu.Unlock()
	if inner != nil {
		return inner.Err()
	}
	if err := a.base.Err(); err != nil {
		return err
	}
	if !time.Now().Before(a.deadline) {
		return a.context().Err()
	}
	if ended {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (a *attempt) Value(key any) any {
	if _, ok := key.(handling.Key); ok {
		return a
	}
	a.mu.Lock()
	inner := a.inner
	a.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return a.base.Value(key)
}

func (a *attempt) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inner == nil {
		ctx, stop := context.WithCancelCause(a.base)
		a.inner, a.timer = context.WithDeadline(ctx, a.deadline)
		a.stop = stop
		if a.ended {
			stop(context.Canceled)
		}
	}
	return a.inner
}

// cancel ends the handler's context with a cause.
func (a *attempt) cancel(cause error) {
	_ = a.context()
	a.stop(cause)
}

// end marks the handler as returned and frees the context.
func (a *attempt) end() {
	a.mu.Lock()
	a.ended = true
	stop, timer := a.stop, a.timer
	a.mu.Unlock()
	if stop != nil {
		stop(context.Canceled)
		timer()
	}
}

// run calls the handler. A panic or Goexit is a failure of this attempt only.
func (a *attempt) run() {
	returned := false
	defer func() {
		if returned {
			return
		}
		stack := string(debug.Stack())
		if r := recover(); r != nil {
			p, passed := r.(*redrive.PanicError) // of a goroutine of the handler's, with its stack
			if !passed {
				p = &redrive.PanicError{Value: r, Stack: stack}
			}
			a.c.finish(a, p)
			return
		}
		a.c.finish(a, errGoexit)
	}()
	err := a.call()
	returned = true
	a.c.finish(a, err)
}

// call runs the handler, and again at once as often as the policy's Inline says.
//
//go:noinline
func (a *attempt) call() error {
	h := a.c.options().handler
	for try := 0; ; try++ {
		err := h.ServeDelivery(a, a.d)
		if err == nil || try >= a.policy.Inline || a.Err() != nil || errors.Is(err, redrive.ErrSettled) || errors.Is(err, redrive.ErrNoHandler) {
			return err
		}
		if c := driver.Classify(a.policy.Classifier, err); c.Outcome != redrive.OutcomeRetry || c.After > 0 {
			return err // it is not to be tried again, or not at once
		}
		a.mu.Lock()
		a.emits, a.reply = nil, nil
		a.mu.Unlock()
	}
}

// errTimeout is the failure of a handler that did not return in time.
func (a *attempt) errTimeout() error {
	return fmt.Errorf("no end after %s, and the handler ignores its context: %w", a.policy.Timeout, context.DeadlineExceeded)
}

// stack returns the stack of the handler's goroutine: the one whose call frame has
// this attempt as its receiver.
func (a *attempt) stack() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	frame := fmt.Appendf(nil, "(*attempt).call(%p", a)
	for g := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if bytes.Contains(g, frame) {
			return string(g)
		}
	}
	return "its stack was not found among those of " + fmt.Sprint(runtime.NumGoroutine()) + " goroutines"
}
