package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

func TestRule04_UndecodableIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		type order struct{ Number int }
		var handled atomic.Int32
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, order) error { handled.Add(1); return nil }, redrive.ForKind("order"))
		r.handleWith("orders", mux)
		raw := []byte("{\"Number\": \"\x00\xff")
		r.publishAll(
			redrive.Message{Queue: "orders", ID: "bad", Kind: "order", Body: raw},
			redrive.Message{Queue: "orders", ID: "two", Kind: "order", Body: []byte(`{"Number":1}{"Number":2}`)},
			redrive.Message{Queue: "orders", ID: "good", Kind: "order", Body: []byte(`{"Number":1,"New":true}`)})
		r.start()
		r.ended(time.Minute, "orders")
		if e := r.dead("orders", "bad"); e.Reason != redrive.ReasonUndecodable || string(e.Body) != string(raw) {
			t.Errorf("dead as %s with body %q", e.Reason, e.Body)
		}
		if e := r.dead("orders", "two"); e.Reason != redrive.ReasonUndecodable {
			t.Errorf("two values: dead as %s", e.Reason)
		}
		if handled.Load() != 1 {
			t.Errorf("%d handled, want 1", handled.Load())
		}
	})
}

func TestRule05_SettleRepeatedUntilItSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		var calls atomic.Int32
		r.fail.settle = func(ctx context.Context, s []driver.Settlement) []error {
			calls.Add(1)
			if down.Load() {
				return all(len(s), errors.New("the store is away"))
			}
			return r.store.Settle(ctx, s)
		}
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if handled.add(d.ID) > 1 {
				t.Errorf("%s was handled again", d.ID)
			}
			return nil
		})
		r.publish("sms", 200)
		down.Store(true)
		r.start()
		pass(10 * time.Minute) // twenty leases
		if n := calls.Load(); n > 600*70 {
			t.Errorf("%d settle calls in ten minutes of outage", n)
		}
		down.Store(false)
		r.ended(time.Minute, "sms")
		if n := r.counts("sms").Ledger.Done; n != 200 {
			t.Errorf("%d done, want 200", n)
		}
	})
}

func TestRule05_UnknownSettleIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var calls atomic.Int32
		r.fail.settle = func(ctx context.Context, s []driver.Settlement) []error {
			if calls.Add(1)%2 == 1 { // the answer is lost, after the effect every other time
				if calls.Load()%4 == 1 {
					r.store.Settle(ctx, s)
				}
				return all(len(s), redrive.ErrUnknown)
			}
			return r.store.Settle(ctx, s)
		}
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if handled.add(d.ID) < 3 {
				return errSick
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		r.publish("sms", 5)
		r.start()
		r.ended(10*time.Minute, "sms")
		if handled.sum() != 15 || r.counts("sms").Ledger.Done != 5 {
			t.Errorf("%d attempts, %d done; want 15 and 5", handled.sum(), r.counts("sms").Ledger.Done)
		}
	})
}

func TestRule05_FaultyItemIsIsolated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.fail.settle = func(ctx context.Context, s []driver.Settlement) []error {
			faulty := func(s driver.Settlement) bool {
				return s.Failure != nil && strings.Contains(s.Failure.Message, "☠")
			}
			if slices.ContainsFunc(s, faulty) {
				return all(len(s), errors.New("invalid byte sequence"))
			}
			return r.store.Settle(ctx, s)
		}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.ID == "sms-42" || d.ID == "sms-77" {
				return redrive.Permanent(errors.New("poison \u2620 text"))
			}
			return nil
		})
		r.publish("sms", 300)
		r.start()
		r.within(20*time.Second, "the others are done", func() bool { return r.counts("sms").Ledger.Done == 298 })
		r.ended(30*time.Second, "sms")
		for _, id := range []string{"sms-42", "sms-77"} {
			e := r.dead("sms", id)
			if f := e.History.Latest(); e.Reason != redrive.ReasonPermanent || !strings.Contains(f.Message, "could not be stored") || !strings.Contains(f.Message, "poison") {
				t.Errorf("%s: dead as %s: %+v", id, e.Reason, f)
			}
		}
	})
}

func TestRule05_ConflictingEmitFailsTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n atomic.Int32
		r.publishAll(redrive.Message{Queue: "out", ID: "taken", Body: []byte("theirs")})
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			n.Add(1)
			return redrive.Emit(ctx, redrive.Message{Queue: "out", ID: "taken", Body: []byte("ours")})
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 3})})
		r.publishAll(redrive.Message{Queue: "sms", ID: "a", ReplyTo: "results"})
		r.publishAll(redrive.Message{Queue: "sms", ID: "b"})
		r.start()
		r.ended(time.Minute, "sms")
		for _, id := range []string{"a", "b"} {
			e := r.dead("sms", id)
			if f := e.History.Latest(); e.Reason != redrive.ReasonPermanent || !strings.Contains(f.Message, "conflict") || !strings.Contains(f.Message, "choose another id") {
				t.Errorf("dead as %s: %+v", e.Reason, f)
			}
		}
		if n.Load() != 2 {
			t.Errorf("%d attempts, want 2: another one cannot help", n.Load())
		}
		if c := r.counts("results"); c.AllWaiting() != 1 {
			t.Errorf("%d results for a message that died of its emit, want 1", c.AllWaiting())
		}
	})
}

func TestRule06_PanicIsAFailureWithItsStack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			switch d.ID {
			case "sms-0":
				explode()
			case "sms-1":
				runtime.Goexit()
			case "sms-2":
				panic(nil) //nolint:govet // the point of the test
			case "sms-3":
				panic(&redrive.PanicError{Value: "elsewhere", Stack: "goroutine 7 [running]:\nexample.com/other.goroutine()\n"})
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 2})})
		r.publish("sms", 50)
		r.start()
		r.ended(time.Minute, "sms")
		for id, want := range map[string]string{"sms-0": "panic: boom", "sms-1": "Goexit", "sms-2": "panic", "sms-3": "panic: elsewhere"} {
			e := r.dead("sms", id)
			if f := e.History.Latest(); e.Reason != redrive.ReasonExhausted || e.History.Count != 2 || !strings.Contains(f.Message, want) {
				t.Errorf("%s: dead as %s after %d failures: %+v", id, e.Reason, e.History.Count, f)
			}
		}
		if f := r.dead("sms", "sms-0").History.First; !strings.Contains(f.Stack, "engine_test.explode") {
			t.Errorf("the stack does not show where it was raised:\n%s", f.Stack)
		}
		if f := r.dead("sms", "sms-3").History.First; !strings.Contains(f.Stack, "other.goroutine") {
			t.Errorf("the stack is not that of the goroutine which panicked:\n%s", f.Stack)
		}
		if n := r.counts("sms").Ledger.Done; n != 46 {
			t.Errorf("%d done, want 46", n)
		}
	})
}

func explode() { panic("boom") }

// hostile is an error whose methods panic.
type hostile struct{}

func (hostile) Error() string { panic("even the error fails") }

func TestRule06_CallbacksThatPanicCostNoMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		policy := engine.Policies{Default: redrive.Policy{MaxAttempts: 1}, Kinds: map[string]redrive.Policy{
			"classifier": {MaxAttempts: 1, Classifier: redrive.ClassifierFunc(func(error) error { panic("classifier") })},
			"backoff":    {MaxAttempts: 2, Backoff: panickyBackoff{}},
		}}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Kind == "error" {
				return hostile{}
			}
			return errSick
		}, engine.QueueOptions{Policies: policy, Gates: []driver.Gate{panickyGate{}}, DeadLetters: panickySink{}})
		for _, kind := range []string{"classifier", "backoff", "error", "plain"} {
			r.publishAll(redrive.Message{Queue: "sms", ID: kind, Kind: kind})
		}
		r.start()
		r.ended(10*time.Minute, "sms")
		for _, kind := range []string{"classifier", "backoff", "error", "plain"} {
			if e := r.dead("sms", kind); e.History.Latest() == nil {
				t.Errorf("%s: no failure history", kind)
			}
		}
	}, engine.Options{Observer: panickyObserver{}})
}

type (
	panickyBackoff  struct{}
	panickyGate     struct{}
	panickySink     struct{}
	panickyObserver struct{}
)

func (panickyBackoff) Delay(int, func() float64) time.Duration { panic("backoff") }

func (panickyGate) Reserve(_ time.Time, a driver.Ask) driver.Grant { return driver.Grant{N: a.Max} }
func (panickyGate) Return(time.Time, driver.Grant, int)            {}
func (panickyGate) Report(time.Time, *redrive.Delivery, *driver.Settlement) {
	panic("gate")
}
func (panickySink) DeadLetter(context.Context, *redrive.Entry) error { panic("sink") }
func (panickyObserver) Observe(*engine.Observation)                  { panic("observer") }

func TestRule06_TimeoutEndsTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var took []time.Duration
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) != 7*time.Second {
				t.Errorf("the deadline is in %s", time.Until(at))
			}
			if ctx.Err() != nil {
				t.Errorf("the context has ended before: %v", ctx.Err())
			}
			from := time.Now()
			<-ctx.Done()
			took = append(took, time.Since(from))
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("the context ended with %v because of %v", ctx.Err(), context.Cause(ctx))
			}
			return ctx.Err()
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: 7 * time.Second, MaxAttempts: 2})})
		r.publish("sms", 1)
		r.start()
		r.ended(time.Minute, "sms")
		if want := []time.Duration{7 * time.Second, 7 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("attempts took %v, want %v", took, want)
		}
		if e := r.dead("sms", "sms-0"); e.Reason != redrive.ReasonExhausted {
			t.Errorf("dead as %s", e.Reason)
		}
	})
}

// lines is a log that keeps its lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if strings.Contains(s, text) {
			found = append(found, s)
		}
	}
	return found
}

func TestRule06_HandlerIgnoresItsContext(t *testing.T) {
	log := new(lines)
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if n := handled.add(d.ID); d.ID != "sms-9" && n == 1 {
				sleepDeaf(10 * time.Minute)
			}
			return nil
		}, engine.QueueOptions{Concurrency: 4, Policies: fixed(time.Second, redrive.Policy{Timeout: 10 * time.Second})})
		r.start()
		r.publishAll(redrive.Message{Queue: "sms", ID: "sms-1"})
		pass(30 * time.Second)
		if s := r.status("sms"); s.Stuck != 1 || s.Busy < 1 {
			t.Errorf("one handler is stuck: %+v", s)
		}
		if err := r.engine.Ready(); err != nil {
			t.Errorf("one of four slots is stuck: %v", err)
		}
		// Its message goes on its way meanwhile, and so do others.
		r.within(time.Minute, "the retry succeeded", func() bool { return handled.of("sms-1") == 2 && r.entry("sms", "sms-1") == nil })
		r.publishAll(redrive.Message{Queue: "sms", ID: "sms-2"})
		pass(30 * time.Second)
		if s := r.status("sms"); s.Stuck != 2 {
			t.Errorf("two handlers are stuck: %+v", s)
		}
		if err := r.engine.Ready(); err == nil {
			t.Error("half of the slots are stuck, and the engine is ready")
		}
		r.publishAll(redrive.Message{Queue: "sms", ID: "sms-9"})
		r.ended(5*time.Minute, "sms")
		if n := len(log.with("slot not released")); n != 2 {
			t.Errorf("%d lines about two stuck handlers", n)
		}
		for _, line := range log.with("slot not released") {
			if !strings.Contains(line, "sleepDeaf") {
				t.Errorf("the line does not show where it hangs: %s", line)
			}
		}
		pass(15 * time.Minute) // they return, and what they say has no effect
		if s := r.status("sms"); s.Stuck != 0 || s.Busy != 0 {
			t.Errorf("after they returned: %+v", s)
		}
		if err := r.engine.Ready(); err != nil {
			t.Error(err)
		}
		if n := r.counts("sms").Ledger.Done; n != 3 {
			t.Errorf("%d done, want 3", n)
		}
	}, engine.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
}

func sleepDeaf(d time.Duration) { <-time.After(d) }

func TestRule06_SlowMessageDoesNotHoldItsBatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.ID == "sms-0" {
				<-time.After(20 * time.Second)
			}
			return nil
		}, engine.QueueOptions{Concurrency: 8})
		r.publish("sms", 100)
		r.start()
		pass(time.Second)
		if n := r.counts("sms").Ledger.Done; n != 99 {
			t.Errorf("%d done after a second, want 99", n)
		}
		r.ended(time.Minute, "sms")
	})
}

func TestRule06_SupervisorRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var failing atomic.Bool
		var waits atomic.Int32
		r.fail.wait = func(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
			if failing.Load() {
				if waits.Add(1)%2 == 0 {
					panic("the waiter panics")
				}
				return nil, errors.New("the waiter fails")
			}
			return r.store.Wait(ctx, w)
		}
		failing.Store(true)
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil })
		r.publish("sms", 10)
		r.start()
		pass(30 * time.Second)
		if err := r.engine.Ready(); err == nil {
			t.Error("the engine is ready while its waiter is down")
		}
		if n := waits.Load(); n < 5 || n > 20 {
			t.Errorf("%d restarts in 30 s", n)
		}
		if n := r.seen.of(engine.OnRestart); n == 0 {
			t.Error("no restart was observed")
		}
		failing.Store(false)
		r.ended(time.Minute, "sms")
		if err := r.engine.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestRule06_ManyGoexitsLoseNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		}, engine.QueueOptions{Concurrency: 3, Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(time.Second, redrive.Policy{})})
		r.publish("sms", 40)
		r.start()
		r.ended(10*time.Minute, "sms")
		if n := r.counts("sms").Ledger.Done; n != 40 {
			t.Errorf("%d done, want 40", n)
		}
	})
}
