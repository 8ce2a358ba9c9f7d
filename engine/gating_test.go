package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// slots is a gate of so many deliveries at once, which counts what was granted and is
// not back.
type slots struct {
	limit int

	mu          sync.Mutex
	out, fewest int
}

func (g *slots) Reserve(_ time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := max(min(a.Max, g.limit-g.out), 0)
	g.out += n
	return driver.Grant{N: n}
}

func (g *slots) Return(_ time.Time, _ driver.Grant, unused int) { g.back(unused) }

func (g *slots) Report(time.Time, *redrive.Delivery, *driver.Settlement) { g.back(1) }

func (g *slots) back(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out -= n
	g.fewest = min(g.fewest, g.out)
}

// even fails the test unless all that was granted is back, and no more than that.
func (g *slots) even(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out != 0 || g.fewest < 0 {
		t.Errorf("%d granted are not back, and once %d were that had not been granted", g.out, -g.fewest)
	}
}

// erratic is a gate that panics the first times that it is asked.
type erratic struct{ left int }

func (g *erratic) Reserve(_ time.Time, a driver.Ask) driver.Grant {
	if g.left--; g.left >= 0 {
		panic("gate")
	}
	return driver.Grant{N: a.Max}
}
func (*erratic) Return(time.Time, driver.Grant, int)                     {}
func (*erratic) Report(time.Time, *redrive.Delivery, *driver.Settlement) {}

// grasping is an error whose As panics.
type grasping struct{ error }

func (grasping) As(any) bool { panic("as") }

// TestGatesGetAllBack lets claims and handlers fail in all ways: what a gate granted
// comes back once.
func TestGatesGetAllBack(t *testing.T) {
	ok := func(context.Context, *redrive.Delivery) error { return nil }
	once := engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{MaxAttempts: 1}}}
	tests := []struct {
		name   string
		handle redrive.HandlerFunc
		gates  func(g driver.Gate) []driver.Gate
		claims int // that panic
	}{
		{name: "all is well", handle: ok},
		{name: "the handler panics", handle: func(context.Context, *redrive.Delivery) error { panic("handler") }},
		{name: "its error panics", handle: func(context.Context, *redrive.Delivery) error { return grasping{errSick} }},
		{name: "the claim panics", handle: ok, claims: 3},
		{name: "a later gate panics", handle: ok, gates: func(g driver.Gate) []driver.Gate { return []driver.Gate{g, &erratic{3}} }},
		{name: "another gate panics at the report", handle: ok, gates: func(g driver.Gate) []driver.Gate { return []driver.Gate{panickyGate{}, g} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				left := tt.claims
				r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
					if left--; left >= 0 {
						panic("claim")
					}
					return r.store.Claim(ctx, req)
				}
				g, o := &slots{limit: 2}, once
				o.Gates = []driver.Gate{g}
				if tt.gates != nil {
					o.Gates = tt.gates(g)
				}
				r.handle("sms", tt.handle, o)
				r.publish("sms", 10)
				r.start()
				r.ended(time.Minute, "sms")
				g.even(t)
			})
		})
	}
}

// TestGatesOfWhatExpires lets messages expire while a gate refuses: nobody granted them,
// so their end makes no room.
func TestGatesOfWhatExpires(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := &slots{limit: 2}
		var mu sync.Mutex
		running, most := 0, 0
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-time.After(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			running--
			return nil
		}, engine.QueueOptions{Gates: []driver.Gate{g}})
		r.publish("sms", 6)
		for _, id := range []string{"x", "y", "z"} {
			r.publishAll(redrive.Message{Queue: "sms", ID: id, ExpiresAt: time.Now().Add(3 * time.Second)})
		}
		r.start()
		r.ended(time.Minute, "sms")
		for _, id := range []string{"x", "y", "z"} {
			if e := r.dead("sms", id); e.Reason != redrive.ReasonExpired {
				t.Errorf("%s: %s", id, e.Reason)
			}
		}
		if most > 2 {
			t.Errorf("%d at once, the gate allows 2", most)
		}
		g.even(t)
	})
}

// TestGatesThatAreReplaced changes a queue's gates while deliveries are in flight: each
// gate learns the end of what it granted.
func TestGatesThatAreReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		one, two := &slots{limit: 2}, &slots{limit: 2}
		h := func(context.Context, *redrive.Delivery) error { <-time.After(time.Second); return nil }
		r.handle("sms", h, engine.QueueOptions{Gates: []driver.Gate{one}})
		r.publish("sms", 8)
		r.start()
		r.handle("sms", h, engine.QueueOptions{Gates: []driver.Gate{two}})
		r.ended(time.Minute, "sms")
		one.even(t)
		two.even(t)
	})
}

// TestGatesOfASuspectThatNeverBegan stops an engine while a suspect waits for the
// process to be idle.
func TestGatesOfASuspectThatNeverBegan(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish("sms", 1)
		if ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 1, Lease: 10 * time.Millisecond, Instance: "dies"}); err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		pass(time.Second)
		r.handle("other", func(ctx context.Context, _ *redrive.Delivery) error { <-ctx.Done(); return ctx.Err() })
		r.publish("other", 1)
		r.start()
		g := &slots{limit: 1}
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil }, engine.QueueOptions{Gates: []driver.Gate{g}})
		pass(time.Second)
		if g.mu.Lock(); g.out != 1 {
			t.Errorf("%d granted to the suspect that waits, want 1", g.out)
		}
		g.mu.Unlock()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		g.even(t)
	})
}
