package redrive_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// holdsBack is how long a message of a log may take.
const holdsBack = 30 * time.Second

// log is a broker with a mark, which any message holds back that takes longer. What it
// hands out may have been handed out before.
type log struct {
	alwaysFresh

	mu   sync.Mutex
	hand map[redrive.Receipt]time.Time
}

func newLog(t *testing.T) *log {
	return &log{alwaysFresh: alwaysFresh{newBroker(t, redrive.IdentityMessage)}, hand: make(map[redrive.Receipt]time.Time)}
}

func (l *log) Claim(ctx context.Context, req redrive.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := l.alwaysFresh.Claim(ctx, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ds {
		ds[i].Suspect = true
		l.hand[ds[i].Receipt] = time.Now()
	}
	return ds, err
}

func (l *log) Settle(ctx context.Context, batch []redrive.Settlement) []error {
	errs := l.alwaysFresh.Settle(ctx, batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		if errs == nil || errs[i] == nil || errors.Is(errs[i], redrive.ErrLeaseLost) {
			delete(l.hand, batch[i].Receipt)
		}
	}
	return errs
}

// HoldingBack implements redrive.MarkedSource.
func (l *log) HoldingBack() (receipts []redrive.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, since := range l.hand {
		if time.Since(since) > holdsBack {
			receipts = append(receipts, r)
		}
	}
	return receipts
}

var long = fixed(10*time.Second, redrive.Policy{Timeout: time.Hour})

func TestAdoption_TheMarkMovesOnWhileTheHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		l := newLog(t)
		calls, end := new(tally), make(chan struct{})
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			if calls.add(d.ID) > 1 {
				if d.Attempt != 2 || d.Suspect || string(d.Body) != "body 1" || d.Kind != "" || len(d.Headers) != 0 {
					t.Errorf("after its failure: %+v", d)
				}
				return nil
			}
			select {
			case <-end:
			case <-ctx.Done():
				t.Errorf("%s: %v", d.ID, context.Cause(ctx))
			}
			switch d.ID {
			case "b-1":
				return errSick
			case "b-2":
				return redrive.Permanent(errSick)
			case "b-3":
				return redrive.Emit(ctx, redrive.Message{Queue: "out", Body: []byte("late")})
			}
			return nil
		}, redrive.QueueOptions{Sources: []redrive.Source{l}, Policy: long})
		l.sends("sms", 4)
		r.start()
		pass(holdsBack / 2)
		if n := l.left("sms"); n != 4 {
			t.Errorf("%d left at the source, want 4: it is not time yet", n)
		}
		r.within(holdsBack, "the source has none left", func() bool { return l.left("sms") == 0 })
		pass(10 * time.Minute) // many leases
		if c := r.counts(redrive.HeldQueue); c.Leased != 4 || c.Suspects != 0 {
			t.Errorf("the store holds %+v, want 4 leased", c)
		}
		close(end)
		r.ended(time.Minute, redrive.HeldQueue)
		r.ended(time.Minute, "sms")
		if e := r.dead("sms", "b-2"); e.Attempts != 1 || e.Kind != "" || len(e.Headers) != 0 || string(e.Body) != "body 2" {
			t.Errorf("the dead letter: %+v", e)
		}
		if out := r.counts("out"); calls.sum() != 5 || out.AllWaiting() != 1 {
			t.Errorf("%d calls, want 5; %d emitted, want 1", calls.sum(), out.AllWaiting())
		}
	})
}

func TestAdoption_ShutdownReleasesWhatTheStoreHas(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		l := newLog(t)
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}, redrive.QueueOptions{Sources: []redrive.Source{l}, Policy: long})
		l.sends("sms", 1)
		r.start()
		r.within(2*holdsBack, "the source has none left", func() bool { return l.left("sms") == 0 })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if e := r.entry("sms", "b-0"); e == nil || e.State != redrive.StateWaiting || e.Attempts != 0 || e.Suspect {
			t.Errorf("after the shutdown: %+v", e)
		}
		r.ended(time.Second, redrive.HeldQueue)
	}, redrive.EngineOptions{Grace: time.Second})
}

// cut is a call of an adoption that fails once: before it was carried out, or after, so
// that only its answer is missing.
type cut struct {
	step  string
	after bool
}

var cuts = []cut{{"put", false}, {"put", true}, {"claim", false}, {"claim", true}, {"settle", false}, {"settle", true}}

func (c cut) String() string {
	if c.after {
		return "after " + c.step
	}
	return "before " + c.step
}

// over cuts the calls of an adoption; gone says that what comes later fails as well, as
// for a process that is dead.
func (c cut) over(r *rig, l *log, gone bool) (happened func() bool) {
	var done atomic.Bool
	at := func(step string, here bool, call func()) error {
		switch {
		case gone && done.Load():
			return errAway
		case step != c.step || !here || done.Swap(true):
			call()
			return nil
		case c.after:
			call()
		}
		return errAway
	}
	r.fail.apply = func(ctx context.Context, b redrive.Batch) (errs []error, err error) {
		cutOff := at("put", len(b.Put) > 0 && b.Put[0].Queue == redrive.HeldQueue, func() { errs, err = r.store.Apply(ctx, b) })
		return errs, errors.Join(err, cutOff)
	}
	r.fail.claim = func(ctx context.Context, req redrive.ClaimRequest) (ds []redrive.Delivery, err error) {
		cutOff := at("claim", req.Queue == redrive.HeldQueue && !req.Alone, func() { ds, err = r.store.Claim(ctx, req) })
		if cutOff != nil {
			return nil, cutOff
		}
		return ds, err
	}
	r.fail.settle = func(ctx context.Context, s []redrive.Settlement) (errs []error) {
		if err := at("", false, func() { errs = r.store.Settle(ctx, s) }); err != nil {
			return all(len(s), err)
		}
		return errs
	}
	r.fail.extend = func(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) (errs []error) {
		if err := at("", false, func() { errs = r.store.Extend(ctx, receipts, lease) }); err != nil {
			return all(len(receipts), err)
		}
		return errs
	}
	l.settle = func(ctx context.Context, s []redrive.Settlement) (errs []error) {
		if err := at("settle", true, func() { errs = l.store.Settle(ctx, s) }); err != nil {
			return all(len(s), errors.Join(redrive.ErrUnknown, err))
		}
		return errs
	}
	return done.Load
}

var errAway = errors.New("away")

// once counts the handlers that run, and fails the test when one is called while another
// has not been told to end.
type once struct {
	t       *testing.T
	running atomic.Int64
	calls   atomic.Int64
	done    atomic.Int64
}

func (o *once) handle(ctx context.Context, end <-chan struct{}) error {
	o.calls.Add(1)
	if n := o.running.Add(1); n > 1 {
		o.t.Errorf("%d handlers have the message", n)
	}
	defer o.running.Add(-1)
	select {
	case <-end:
		o.done.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAdoption_CutAtEachStep(t *testing.T) {
	for _, c := range cuts {
		t.Run(c.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				l, o, end := newLog(t), &once{t: t}, make(chan struct{})
				happened := c.over(r, l, false)
				r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error { return o.handle(ctx, end) },
					redrive.QueueOptions{Sources: []redrive.Source{l}, Policy: long})
				l.sends("sms", 1)
				r.start()
				r.within(10*time.Minute, "the source has none left", func() bool { return l.left("sms") == 0 })
				pass(10 * time.Minute)
				close(end)
				r.ended(time.Minute, "sms")
				r.ended(time.Minute, redrive.HeldQueue)
				if !happened() || o.done.Load() != 1 {
					t.Errorf("cut: %t; handled to the end %d times, want once; %d calls", happened(), o.done.Load(), o.calls.Load())
				}
			})
		})
	}
}

// TestAdoption_DiesAtEachStep cuts a process off for good, whose handler goes on until it
// is cancelled; another process works on the same store and source.
func TestAdoption_DiesAtEachStep(t *testing.T) {
	for _, c := range append(cuts, cut{step: "nothing"}) {
		t.Run(c.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				l, end := newLog(t), make(chan struct{})
				died := c.over(r, l, true)
				r.handle("sms", func(context.Context, *redrive.Delivery) error {
					<-end
					return nil
				}, redrive.QueueOptions{Sources: []redrive.Source{l}, Policy: long})
				l.sends("sms", 1)
				r.start()
				if c.step == "nothing" { // it dies with the message in the store's hands
					r.within(2*holdsBack, "the source has none left", func() bool { return l.left("sms") == 0 })
					died = cut{step: "settle"}.over(r, l, true)
					l.settle(t.Context(), nil)
				}
				r.within(2*holdsBack, "the process is gone", died)
				l.settle = nil
				l.store.Crash("rig")

				second := newRig(t, redrive.EngineOptions{Instance: "second"})
				second.store = r.store
				second.fail.Store = r.store
				var calls, suspects atomic.Int64
				second.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
					calls.Add(1)
					if d.Suspect && d.Attempt == 2 && string(d.Body) == "body 0" && len(d.Headers) == 0 {
						suspects.Add(1)
					} else {
						t.Errorf("handled as %+v", d)
					}
					return nil
				}, redrive.QueueOptions{Sources: []redrive.Source{&log{alwaysFresh: l.alwaysFresh, hand: make(map[redrive.Receipt]time.Time)}}, Policy: long})
				second.start()
				second.within(5*time.Minute, "it is handled", func() bool {
					own, held := second.counts("sms"), second.counts(redrive.HeldQueue)
					return l.left("sms") == 0 && own.AllWaiting() == 0 && held.AllWaiting() == 0 && calls.Load() > 0
				})
				pass(10 * time.Minute)
				if calls.Load() != 1 || suspects.Load() != 1 {
					t.Errorf("handled %d times, %d of them as a suspect in its second attempt, want once", calls.Load(), suspects.Load())
				}
				if err := second.stop(); err != nil {
					t.Error(err)
				}
				close(end)
				_ = r.stop() // it may have found out by now, or not
			})
		})
	}
}

var _ redrive.MarkedSource = (*log)(nil)
