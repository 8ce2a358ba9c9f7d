package guard_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// oddly is a request's way of not being a plain call: it is put off before it is made.
func oddly(rng *rand.Rand, o *order) redrive.Message {
	m := redrive.Message{ID: o.ID, Queue: "orders", Body: []byte(`{"ID":"` + o.ID + `"}`)}
	switch rng.IntN(4) {
	case 0:
		m.Body = []byte("no order")
	case 1:
		m.ExpiresAt = time.Now().Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
	case 2:
		m.Headers.Add(guard.HeaderSentTo, "b")
	case 3:
		m.Headers.Add(guard.HeaderSentTo, "a")
	}
	return m
}

// TestAllIsGivenBack plays calls, backlogs and outages of two providers at random, with
// all limits that there are: when all has ended nothing is taken any more.
func TestAllIsGivenBack(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("REDRIVE_SEED"), 10, 64); err == nil {
		seed = s
	}
	n, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS"))
	if err != nil {
		n = 6
	}
	t.Logf("REDRIVE_SEED=%d", seed)
	for i := range n {
		synctest.Test(t, func(t *testing.T) { playHeld(t, seed+uint64(i)) })
	}
}

// heldGuard is a guard of two providers with a script, under limits.
func heldGuard(t *testing.T, store driver.Store, rng *rand.Rand, both []*flaky) *guard.Guard[order, receipt] {
	t.Helper()
	c := guard.Config[order, receipt]{Name: "orders", Store: store, Deferral: deferral, Retries: rng.IntN(2), Health: guard.Health{SlowAfter: 500 * time.Millisecond}}
	for i, f := range both {
		c.Providers = append(c.Providers, guard.Provider[order, receipt]{Name: string(rune('a' + i)), Call: f.call, Timeout: time.Second,
			MaxRate: 5 + 50*rng.Float64(), MaxInUse: rng.IntN(2) * (1 + rng.IntN(10))})
	}
	g, err := guard.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func playHeld(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	store := memory.New()
	var both []*flaky
	for i := range 2 {
		both = append(both, &flaky{rng: rand.New(rand.NewPCG(seed, uint64(i)+2)), carried: make(map[string]int)})
	}
	g := heldGuard(t, store, rng, both)
	mode := func(choose func() int) {
		for _, f := range both {
			f.mu.Lock()
			f.mode = choose()
			f.mu.Unlock()
		}
	}
	stop := consume(t, store, g)
	var calls sync.WaitGroup
	sent := 0
	for range 12 {
		mode(func() int { return rng.IntN(7) })
		for end := time.Now().Add(time.Duration(1+rng.IntN(10)) * time.Second); time.Now().Before(end); pass(time.Duration(rng.ExpFloat64()*30) * time.Millisecond) {
			o := order{ID: "r" + strconv.Itoa(sent), Repeat: guard.Repeat(rng.IntN(3))}
			sent++
			if rng.IntN(4) == 0 {
				if err := driver.FirstError(store.Publish(t.Context(), []redrive.Message{oddly(rng, &o)})); err != nil {
					t.Fatal(err)
				}
				continue
			}
			patience := time.Duration(rng.IntN(2000)) * time.Millisecond
			calls.Go(func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, _ = g.Do(ctx, o)
			})
		}
		if rng.IntN(3) == 0 { // in the midst of it all
			stop()
			stop = consume(t, store, g)
		}
	}
	calls.Wait()
	mode(func() int { return 0 })
	pass(time.Hour) // virtual, for the backlog
	counts, err := store.Counts(t.Context(), "orders")
	if err != nil || counts[0].AllWaiting() > 0 {
		t.Errorf("seed %d: %+v wait (%v)", seed, counts, err)
	}
	held(t, g)
	stop()
	held(t, g)
	if t.Failed() {
		t.Logf("seed %d failed", seed)
	}
}

// TestReservationsEndWithTheirMessage reserves as a consumer does, and lets each message
// end in one of the ways in which no call of the provider that granted it is made.
func TestReservationsEndWithTheirMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &third{name: "a"}, &third{name: "b"}
		c := guard.Config[order, receipt]{Store: memory.New()}
		for _, p := range []*third{a, b} {
			c.Providers = append(c.Providers, guard.Provider[order, receipt]{Name: p.name, Call: p.call, MaxRate: 100, MaxInUse: 1})
		}
		g := newGuard(t, c)
		delivery := func(id, body string, how func(*redrive.Delivery)) *redrive.Delivery {
			d := &redrive.Delivery{Message: redrive.Message{ID: id, Queue: "orders", Body: []byte(body)}}
			d.Receipt.Ref = d.Ref()
			if how != nil {
				how(d)
			}
			return d
		}
		pinned := func(d *redrive.Delivery) { d.Headers.Add(guard.HeaderSentTo, "b") }
		for name, tt := range map[string]struct {
			d      *redrive.Delivery
			handle bool
		}{
			"it expired":            {delivery("1", "{}", nil), false},
			"it cannot be decoded":  {delivery("2", "no order", nil), true},
			"uncertain":             {delivery("3", `{"Repeat":2}`, func(d *redrive.Delivery) { d.Suspect = true }), true},
			"for the other one":     {delivery("4", "{}", pinned), true},
			"a call of the granter": {delivery("5", "{}", nil), true},
		} {
			pass(time.Minute)
			if n := g.Gate().Reserve(time.Now(), driver.Ask{Queue: "orders", Max: 1}).N; n != 1 {
				t.Fatalf("%s: %d granted", name, n)
			}
			if tt.handle {
				_ = g.ServeDelivery(t.Context(), tt.d)
			}
			g.Gate().Report(time.Now(), tt.d, &driver.Settlement{Receipt: tt.d.Receipt, Outcome: redrive.OutcomeDone})
			if reserved, inUse, begun := g.Held(); reserved+inUse+begun != 0 {
				t.Errorf("%s: %d reserved, %d in flight, %d begun", name, reserved, inUse, begun)
			}
		}
	})
}

// TestSecondTriesAreGivenBack checks that a second try is paid for only if it is made.
func TestSecondTriesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &third{name: "a"}, &third{name: "b"}
		a.fail(errRefused)
		g := newGuard(t, guard.Config[order, receipt]{Store: memory.New(), Health: guard.Health{Consecutive: -1, NetworkErrors: -1, ErrorRate: -1}}, a, b)
		if err := g.Force("b", guard.Isolated, time.Hour); err != nil {
			t.Fatal(err)
		}
		before := g.SecondTries()
		for range 100 {
			if res, err := g.Do(t.Context(), order{}); err != nil || !res.Deferred() {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if after := g.SecondTries(); after < before || g.Totals().Failovers != 0 {
			t.Errorf("%g second tries are left of %g, and %d failovers were made", after, before, g.Totals().Failovers)
		}
	})
}

// TestEventsThatPanic lets a change of state, which a call brings about, be reported to
// somebody who panics: the call goes on, and gives its permit back.
func TestEventsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		g := newGuard(t, guard.Config[order, receipt]{Exit: guard.Exit{After: time.Second}, OnEvent: func(guard.Event) { reported++; panic("event") }}, &third{name: "a"})
		if err := g.Force("a", guard.Down, 0); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if res, err := g.Do(t.Context(), order{}); err != nil || res.Provider != "a" || reported != 2 {
			t.Errorf("%+v, %v; reported %d times", res, err, reported)
		}
		held(t, g)
	})
}
