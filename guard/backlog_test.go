package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/guard"
)

// consume works on the guard's queue until the test ends.
func consume(t *testing.T, store driver.Store, g *guard.Guard[order, receipt], queues ...string) (stop func()) {
	t.Helper()
	e := engine.New(store, engine.Options{})
	for _, q := range append([]string{g.Queue()}, queues...) {
		if err := e.Handle(q, g, g.QueueOptions()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// TestTicket puts requests off while the provider is down, and waits for their results
// after it has come back, on each store.
func TestTicket(t *testing.T) {
	stores := map[string]func(t *testing.T) driver.Store{
		"memory": func(*testing.T) driver.Store { return memory.New() },
		"sqlite": func(t *testing.T) driver.Store {
			s, err := sqlite.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			a := &third{name: "a"}
			g := newGuard(t, guard.Config[order, receipt]{Store: store, Exit: guard.Exit{After: 200 * time.Millisecond}, Pace: guard.Pace{Fixed: 100}}, a)
			if err := g.Force("a", guard.Down, 200*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			var tickets []*guard.Ticket[receipt]
			for range 3 {
				res, err := g.Do(t.Context(), order{})
				if err != nil || !res.Deferred() {
					t.Fatalf("%+v, %v", res, err)
				}
				tickets = append(tickets, res.Ticket)
			}
			s, err := tickets[0].Poll(t.Context())
			if err != nil || s.State != redrive.StateWaiting || s.Ended() {
				t.Fatalf("before: %+v, %v", s, err)
			}
			defer consume(t, store, g)()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for _, k := range tickets {
				s, err := k.Wait(ctx)
				if err != nil || !s.Done || !s.Kept || s.Value.By != "a" || s.Provider != "a" {
					t.Errorf("after: %+v, %v", s, err)
				}
			}
			if _, err := g.Ticket("nobody").Poll(ctx); !errors.Is(err, redrive.ErrNotFound) {
				t.Errorf("a ticket of nothing: %v", err)
			}
		})
	}
}

func TestReplyTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store, Deferral: func(o order) guard.Deferral { return guard.Deferral{ID: o.ID, ReplyTo: "answers"} }}, a)
		if err := g.Force("a", guard.Down, time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Do(t.Context(), order{ID: "one"}); err != nil {
			t.Fatal(err)
		}
		got := make(chan redrive.Message, 1)
		e := engine.New(store, engine.Options{})
		if err := e.Handle("answers", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
			got <- d.Clone()
			return nil
		}), engine.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = e.Run(ctx) }()
		stop := consume(t, store, g)
		m := <-got
		if by, _ := m.Headers.Get(guard.HeaderProvider); string(m.Body) != `{"By":"a"}` || by != "a" {
			t.Errorf("the result is %s by %q", m.Body, by)
		}
		stop()
		cancel()
		<-done
	})
}

// TestKeyOrder checks that a request whose key waits goes behind it.
func TestKeyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store}, a)
		if err := g.Force("a", guard.Down, time.Second); err != nil {
			t.Fatal(err)
		}
		first, err := g.Do(t.Context(), order{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Force("a", guard.Healthy, 0); err != nil {
			t.Fatal(err)
		}
		second, err := g.Do(t.Context(), order{Key: "k"})
		if err != nil || !second.Deferred() {
			t.Errorf("a later request of the key overtook it: %+v, %v", second, err)
		}
		if other, err := g.Do(t.Context(), order{Key: "other"}); err != nil || other.Deferred() {
			t.Errorf("another key: %+v, %v", other, err)
		}
		stop := consume(t, store, g)
		for _, r := range []guard.Result[receipt]{first, second} {
			if s, err := r.Ticket.Wait(t.Context()); err != nil || !s.Done {
				t.Errorf("%+v, %v", s, err)
			}
		}
		synctest.Wait()
		if third, err := g.Do(t.Context(), order{Key: "k"}); err != nil || third.Deferred() {
			t.Errorf("after they were sent: %+v, %v", third, err)
		}
		stop()
	})
}

func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store, Deferral: func(order) guard.Deferral { return guard.Deferral{TTL: 5 * time.Second} }}, a)
		if err := g.Force("a", guard.Isolated, time.Minute); err != nil {
			t.Fatal(err)
		}
		res, err := g.Do(t.Context(), order{})
		if err != nil {
			t.Fatal(err)
		}
		stop := consume(t, store, g)
		if s, err := res.Ticket.Wait(t.Context()); err != nil || s.Reason != redrive.ReasonExpired || a.calls.Load() > 0 {
			t.Errorf("%+v, %v after %d calls, want expired and none", s, err, a.calls.Load())
		}
		stop()
	})
}

// TestUncertainInTheBacklog checks that a request that must not be repeated is a dead
// letter when its later attempt ends without an answer.
func TestUncertainInTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store}, a)
		if err := g.Force("a", guard.Down, time.Second); err != nil {
			t.Fatal(err)
		}
		res, err := g.Do(t.Context(), order{Repeat: guard.RepeatNever})
		if err != nil || !res.Deferred() {
			t.Fatalf("%+v, %v", res, err)
		}
		a.fail(errBroken)
		stop := consume(t, store, g)
		if s, err := res.Ticket.Wait(t.Context()); err != nil || s.Reason != redrive.ReasonUncertain || a.calls.Load() != 1 {
			t.Errorf("%+v, %v after %d calls", s, err, a.calls.Load())
		}
		stop()
		suspect := &redrive.Delivery{Message: redrive.Message{Queue: "orders", Body: []byte(`{"Repeat":2}`)}, Suspect: true}
		err = g.Handle(t.Context(), suspect)
		if c := redrive.Classify(nil, err); c.Reason != redrive.ReasonUncertain || a.calls.Load() != 1 {
			t.Errorf("a suspect that must not be repeated: %v after %d calls", err, a.calls.Load())
		}
	})
}

// TestNoAttemptIsBurnt checks that a long outage costs the messages of the backlog no
// more than the attempts of the probes.
func TestNoAttemptIsBurnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &third{name: "a"}
		a.fail(errBroken)
		g := newGuard(t, guard.Config[order, receipt]{Store: store}, a)
		if err := g.Force("a", guard.Down, time.Second); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			if _, err := g.Do(t.Context(), order{}); err != nil {
				t.Fatal(err)
			}
		}
		stop := consume(t, store, g)
		pass(10 * time.Minute) // virtual
		probes := a.calls.Load()
		if probes < 100 || probes > 200 {
			t.Errorf("%d calls in 10 minutes, want one a hold", probes)
		}
		page, err := store.Find(t.Context(), redrive.Query{Queue: "orders", Limit: 1000})
		if err != nil || len(page.Entries) != 200 {
			t.Fatalf("%d messages are left, want 200 (%v)", len(page.Entries), err)
		}
		for _, e := range page.Entries {
			if e.State == redrive.StateDead || e.Attempts > 10 {
				t.Errorf("%s: %s after %d attempts", e.ID, e.State, e.Attempts)
			}
		}
		a.fail(nil)
		pass(2 * time.Hour)
		counts, err := store.Counts(t.Context(), "orders")
		if err != nil || counts[0].AllWaiting() > 0 || counts[0].AllDead() > 0 {
			t.Errorf("%+v are left (%v)", counts, err)
		}
		stop()
	})
}
