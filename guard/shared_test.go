package guard_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// run keeps a guard's state until the returned function is called.
func run(t *testing.T, g *guard.Guard[order, receipt]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	return func() { cancel(); <-done }
}

// busy is a provider that several guards call at once.
type busy struct {
	mu    sync.Mutex
	dead  bool
	calls []time.Time
}

func (b *busy) call(context.Context, order) (receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, time.Now())
	if b.dead {
		return receipt{}, errBroken
	}
	return receipt{}, nil
}

// most is the most calls in any one second.
func (b *busy) most() (most int) {
	from := 0
	for i := range b.calls {
		for b.calls[i].Sub(b.calls[from]) >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

func three(t *testing.T, store driver.Store, b *busy, rate float64) (all []*guard.Guard[order, receipt], stop func()) {
	t.Helper()
	var stops []func()
	for range 3 {
		g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: store, Shared: true,
			Providers: []guard.Provider[order, receipt]{{Name: "a", Call: b.call, MaxRate: rate}}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
		stops = append(stops, run(t, g))
	}
	return all, func() {
		for _, s := range stops {
			s()
		}
	}
}

// TestSharedLimit lets three guards push against one limit.
func TestSharedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 300
		store, b := memory.New(), &busy{}
		all, stop := three(t, store, b, limit)
		begin := time.Now()
		for time.Since(begin) < 30*time.Second {
			pass(time.Millisecond)
			for _, g := range all {
				if _, err := g.Do(t.Context(), order{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		stop()
		mean := float64(len(b.calls)) / 30
		t.Logf("most in any second %d, mean %.0f/s of %d", b.most(), mean, limit)
		if b.most() > limit*105/100 {
			t.Errorf("%d calls in a second, limit %d", b.most(), limit)
		}
		if mean < 0.8*limit {
			t.Errorf("only %.0f calls a second of %d", mean, limit)
		}
	})
}

// TestSharedProbes lets three guards see a provider die: all of them keep calls away from it,
// and one at a time probes it.
func TestSharedProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memory.New(), &busy{}
		all, stop := three(t, store, b, 0)
		live := func(d time.Duration, guards ...*guard.Guard[order, receipt]) {
			for begin := time.Now(); time.Since(begin) < d; pass(10 * time.Millisecond) {
				for _, g := range guards {
					_, _ = g.Do(t.Context(), order{})
				}
			}
		}
		live(5*time.Second, all...)
		b.dead = true
		live(2*time.Second, all[0]) // one sees it and tells the others
		for i, g := range all {
			if s := state(g, "a"); s != "down" {
				t.Errorf("guard %d takes it for %s", i, s)
			}
		}
		b.calls = nil
		live(time.Minute, all...)
		for i := 1; i < len(b.calls); i++ {
			if gap := b.calls[i].Sub(b.calls[i-1]); gap < 800*time.Millisecond {
				t.Errorf("two probes within %s", gap)
			}
		}
		if n := len(b.calls); n < 5 || n > 40 {
			t.Errorf("%d probes in a minute", n)
		}
		b.dead = false
		live(20*time.Second, all...)
		for i, g := range all {
			if s := state(g, "a"); s != "healthy" {
				t.Errorf("guard %d still takes it for %s", i, s)
			}
		}
		stop()
	})
}

// TestRestart checks that a new process does not call a provider that was down.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := memory.New(), &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store}, a)
		stop := run(t, g)
		if err := g.Force("a", guard.Isolated, time.Hour); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		pass(10 * time.Minute)
		again := newGuard(t, guard.Config[order, receipt]{Store: store}, a)
		stop = run(t, again)
		synctest.Wait()
		for _, s := range again.Snapshot() {
			if left := time.Until(s.Until); s.State != "isolated" || left < 49*time.Minute || left > 51*time.Minute {
				t.Errorf("after a restart it is %s for %s", s.State, left)
			}
		}
		stop()
	})
}
