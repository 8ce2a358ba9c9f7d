package guard_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

type order struct {
	ID     string
	Key    string
	Repeat guard.Repeat
}

type receipt struct{ By string }

// third is a third party whose behaviour a test sets.
type third struct {
	name  string
	calls atomic.Int64
	err   atomic.Pointer[error]
}

func (p *third) fail(err error) { p.err.Store(&err) }

func (p *third) call(_ context.Context, _ order) (receipt, error) {
	p.calls.Add(1)
	if err := p.err.Load(); err != nil && *err != nil {
		return receipt{}, *err
	}
	return receipt{By: p.name}, nil
}

func deferral(o order) guard.Deferral {
	return guard.Deferral{ID: o.ID, Key: o.Key, Repeat: o.Repeat}
}

func newGuard(t testing.TB, c guard.Config[order, receipt], parties ...*third) *guard.Guard[order, receipt] {
	t.Helper()
	c.Name = "orders"
	for _, p := range parties {
		c.Providers = append(c.Providers, guard.Provider[order, receipt]{Name: p.name, Call: p.call})
	}
	if c.Deferral == nil {
		c.Deferral = deferral
	}
	g, err := guard.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func state(g *guard.Guard[order, receipt], name string) string {
	for n, s := range g.Snapshot() {
		if n == name {
			return s.State
		}
	}
	return "unknown"
}

var errBroken = errors.New("broken")

var errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

func TestAnswered(t *testing.T) {
	p := &third{name: "a"}
	g := newGuard(t, guard.Config[order, receipt]{}, p)
	res, err := g.Do(t.Context(), order{})
	if err != nil || res.Deferred() || res.Value.By != "a" || res.Provider != "a" || res.Attempts != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
	p.fail(redrive.Permanent(errBroken))
	if _, err := g.Do(t.Context(), order{}); !errors.Is(err, errBroken) {
		t.Errorf("a request at fault: %v", err)
	}
}

func TestWithoutQueue(t *testing.T) {
	p := &third{name: "a"}
	p.fail(errBroken)
	g := newGuard(t, guard.Config[order, receipt]{}, p)
	if _, err := g.Do(t.Context(), order{}); !errors.Is(err, guard.ErrUnavailable) || !errors.Is(err, errBroken) {
		t.Errorf("got %v, want ErrUnavailable and the cause", err)
	}
}

func TestFailover(t *testing.T) {
	tests := []struct {
		name   string
		repeat guard.Repeat
		err    error
		second int64 // calls of the second provider
		want   string
	}{
		{"never sent, same", guard.RepeatSame, errRefused, 1, "answered"},
		{"never sent, never", guard.RepeatNever, errRefused, 1, "answered"},
		{"limited, never", guard.RepeatNever, &guard.RateLimitError{After: time.Second}, 1, "answered"},
		{"unknown, anywhere", guard.RepeatAnywhere, io.ErrUnexpectedEOF, 1, "answered"},
		{"unknown, same", guard.RepeatSame, io.ErrUnexpectedEOF, 0, "deferred"},
		{"unknown, never", guard.RepeatNever, io.ErrUnexpectedEOF, 0, "uncertain"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := memory.New()
			a, b := &third{name: "a"}, &third{name: "b"}
			a.fail(tt.err)
			g := newGuard(t, guard.Config[order, receipt]{Store: store}, a, b)
			res, err := g.Do(t.Context(), order{ID: "one", Repeat: tt.repeat})
			got := "answered"
			var uncertain *guard.UncertainError
			switch {
			case errors.As(err, &uncertain):
				got = "uncertain"
			case err != nil:
				t.Fatal(err)
			case res.Deferred():
				got = "deferred"
			}
			if got != tt.want || b.calls.Load() != tt.second || a.calls.Load() != 1 {
				t.Errorf("%s, calls %d and %d; want %s, 1 and %d", got, a.calls.Load(), b.calls.Load(), tt.want, tt.second)
			}
			found, err := store.Get(t.Context(), []redrive.Ref{{Queue: "orders", ID: "one"}})
			if err != nil {
				t.Fatal(err)
			}
			switch tt.want {
			case "deferred":
				if by, _ := found[0].Headers.Get(guard.HeaderSentTo); by != "a" {
					t.Errorf("it may be sent to %q, want only to a", by)
				}
			case "uncertain":
				if found[0] == nil || found[0].State != redrive.StateDead || found[0].Reason != redrive.ReasonUncertain {
					t.Fatalf("kept as %+v", found[0])
				}
				redriven := func(confirm bool) error {
					u, err := store.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{found[0].Ref()}},
						driver.Change{Action: driver.ActRedrive, ConfirmUncertain: confirm}, 1)
					return errors.Join(err, u[0].Err)
				}
				if err := redriven(false); !errors.Is(err, redrive.ErrUncertain) {
					t.Errorf("redriven without a confirmation: %v", err)
				}
				if err := redriven(true); err != nil {
					t.Errorf("not redriven with a confirmation: %v", err)
				}
			}
		})
	}
}

func TestFailoverBudget(t *testing.T) {
	a, b := &third{name: "a"}, &third{name: "b"}
	a.fail(errRefused)
	g := newGuard(t, guard.Config[order, receipt]{Store: memory.New(), Failover: 0.01,
		Health: guard.Health{NetworkErrors: -1, Consecutive: -1, ErrorRate: -1}}, a, b)
	for range 100 {
		if _, err := g.Do(t.Context(), order{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.calls.Load(); n > 20 { // 10 at once, 10 a second and 1 of 100 calls
		t.Errorf("%d of 100 calls failed over, beyond the budget", n)
	}
}

func TestRetries(t *testing.T) {
	a := &third{name: "a"}
	a.fail(errBroken)
	g := newGuard(t, guard.Config[order, receipt]{Store: memory.New(), Retries: 2}, a)
	res, err := g.Do(t.Context(), order{Repeat: guard.RepeatSame})
	if err != nil || !res.Deferred() || a.calls.Load() != 3 || res.Attempts != 3 {
		t.Errorf("got %+v, %v after %d calls, want 3", res, err, a.calls.Load())
	}
}

func TestCallerLeaves(t *testing.T) {
	g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: memory.New(), Providers: []guard.Provider[order, receipt]{{
		Name: "a", Call: func(ctx context.Context, _ order) (receipt, error) {
			<-ctx.Done()
			return receipt{}, ctx.Err()
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if _, err := g.Do(ctx, order{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if s := state(g, "a"); s != "healthy" {
		t.Errorf("callers that left made it %s", s)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if res, err := g.Do(ctx, order{}); err != nil || !res.Deferred() {
		t.Errorf("a caller whose time ran out: %+v, %v; want a ticket", res, err)
	}
}

func TestPanicAndGoexit(t *testing.T) {
	for name, die := range map[string]func(){"panic": func() { panic("test") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Providers: []guard.Provider[order, receipt]{{
				Name: "a", MaxInUse: 1, Call: func(context.Context, order) (receipt, error) { die(); return receipt{}, nil }}}})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = g.Do(context.Background(), order{})
				}()
				<-done
			}
			for _, s := range g.Snapshot() {
				if s.InUse != 0 || s.Calls["transient"] != 3 {
					t.Errorf("in use %d, calls %v", s.InUse, s.Calls)
				}
			}
		})
	}
}

type refusing struct{ err error }

func (s refusing) Publish(context.Context, []redrive.Message) []error { return []error{s.err} }

func TestQueueRefuses(t *testing.T) {
	a := &third{name: "a"}
	a.fail(errBroken)
	g := newGuard(t, guard.Config[order, receipt]{Sink: refusing{redrive.ErrFull}}, a)
	_, err := g.Do(t.Context(), order{})
	if !errors.Is(err, guard.ErrNotQueued) || !errors.Is(err, redrive.ErrFull) || !errors.Is(err, errBroken) {
		t.Errorf("got %v, want all that happened", err)
	}
}

// unsure is a sink whose connection dies before the first answer.
type unsure struct {
	redrive.Sink
	n int
}

func (s *unsure) Publish(ctx context.Context, m []redrive.Message) []error {
	errs := s.Sink.Publish(ctx, m)
	if s.n++; s.n == 1 {
		return []error{redrive.ErrUnknown}
	}
	return errs
}

func TestQueueAnswersUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &third{name: "a"}
		a.fail(errBroken)
		store := memory.New()
		g := newGuard(t, guard.Config[order, receipt]{Store: store, Sink: &unsure{Sink: store}}, a)
		res, err := g.Do(t.Context(), order{})
		if err != nil || !res.Deferred() {
			t.Fatal(err)
		}
		counts, err := store.Counts(t.Context(), "orders")
		if err != nil || counts[0].AllWaiting() != 1 {
			t.Errorf("%d wait, want 1 (%v)", counts[0].AllWaiting(), err)
		}
	})
}

func TestOrders(t *testing.T) {
	a, b := &third{name: "a"}, &third{name: "b"}
	g := newGuard(t, guard.Config[order, receipt]{Order: guard.ByHealth}, a, b)
	if err := g.Force("a", guard.Recovering, 0); err != nil {
		t.Fatal(err)
	}
	if res, _ := g.Do(t.Context(), order{}); res.Provider != "b" {
		t.Errorf("by health it was sent by %s, want b", res.Provider)
	}
	c, err := guard.New(guard.Config[order, receipt]{Name: "orders", Order: guard.ByWeight, Providers: []guard.Provider[order, receipt]{
		{Name: "a", Call: a.call, Weight: 1}, {Name: "b", Call: b.call, Weight: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	a.calls.Store(0)
	for range 1000 {
		if _, err := c.Do(t.Context(), order{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.calls.Load(); n < 50 || n > 200 {
		t.Errorf("%d of 1000 calls went to a weight of a tenth", n)
	}
	picked := newGuard(t, guard.Config[order, receipt]{Pick: func(context.Context, order) []string { return []string{"b"} }}, a, b)
	if res, _ := picked.Do(t.Context(), order{}); res.Provider != "b" {
		t.Errorf("picked b and it was sent by %s", res.Provider)
	}
}

func TestEvents(t *testing.T) {
	var events []string
	a := &third{name: "a"}
	g := newGuard(t, guard.Config[order, receipt]{Store: memory.New(), OnEvent: func(e guard.Event) {
		if e.Provider != "" {
			events = append(events, e.From.String()+" "+e.To.String())
		}
	}}, a)
	for _, s := range []guard.State{guard.Isolated, guard.Healthy, guard.Down} {
		if err := g.Force("a", s, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"healthy isolated", "isolated healthy", "healthy down"}; !slices.Equal(events, want) {
		t.Errorf("reported %q, want %q", events, want)
	}
	if err := g.Force("b", guard.Down, 0); !errors.Is(err, redrive.ErrNotFound) {
		t.Errorf("forced a provider that is not there: %v", err)
	}
}

func BenchmarkDo(b *testing.B) {
	a := &third{name: "a"}
	call := func(ctx context.Context, o order) (receipt, error) { return receipt{By: "a"}, nil }
	for name, timeout := range map[string]time.Duration{"plain": 0, "timeout": time.Second} {
		b.Run(name, func(b *testing.B) {
			g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Health: guard.Health{SlowAfter: time.Second},
				Providers: []guard.Provider[order, receipt]{{Name: a.name, Call: call, Timeout: timeout}}})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Do(ctx, order{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		g := newGuard(b, guard.Config[order, receipt]{Health: guard.Health{SlowAfter: time.Second}}, a)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = g.Do(context.Background(), order{})
			}
		})
	})
}
