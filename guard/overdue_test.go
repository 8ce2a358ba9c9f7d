package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// deaf is a provider's call that ignores its context until it is let go, and then ends in a way.
type deaf struct {
	letGo chan struct{}
	end   func()
}

func newDeaf() *deaf { return &deaf{letGo: make(chan struct{})} }

func (p *deaf) call(context.Context, order) (receipt, error) {
	<-p.letGo
	if p.end != nil {
		p.end()
	}
	return receipt{By: "a"}, nil
}

// guard returns a guard of this provider, which bears one call at a time.
func (p *deaf) guard(t *testing.T, c guard.Config[order, receipt]) *guard.Guard[order, receipt] {
	t.Helper()
	c.Providers = []guard.Provider[order, receipt]{{Name: "a", Call: p.call, Timeout: time.Second, MaxInUse: 1}}
	return newGuard(t, c)
}

func only(g *guard.Guard[order, receipt]) guard.Stats {
	for _, s := range g.Snapshot() {
		return s
	}
	return guard.Stats{}
}

// TestCallsThatIgnoreTheirContext checks that the caller has a ticket in time, and that the call
// is in flight until it has ended.
func TestCallsThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newDeaf()
		g := p.guard(t, guard.Config[order, receipt]{Store: memory.New()})
		began := time.Now()
		res, err := g.Do(t.Context(), order{ID: "1"})
		if took := time.Since(began); err != nil || !res.Deferred() || took > 1100*time.Millisecond {
			t.Fatalf("%+v, %v after %s; want a ticket after 1 s", res, err, took)
		}
		if s := only(g); s.InUse != 1 || s.Overdue != 1 || s.Calls["transient"] != 1 {
			t.Errorf("while it still runs: %+v", s)
		}
		if res, err := g.Do(t.Context(), order{ID: "2"}); err != nil || !res.Deferred() || res.Attempts != 0 {
			t.Errorf("beside it: %+v, %v; want a ticket without a call", res, err)
		}
		close(p.letGo)
		synctest.Wait()
		if s := only(g); s.InUse != 0 || s.Overdue != 0 || s.Calls["success"] != 0 {
			t.Errorf("once it has ended: %+v", s)
		}
		if res, err := g.Do(t.Context(), order{ID: "3"}); err != nil || res.Value.By != "a" {
			t.Errorf("afterwards: %+v, %v", res, err)
		}
		held(t, g)
	})
}

// TestCallersOfDeafCalls checks what each way to call gets from a call that ignores its context.
func TestCallersOfDeafCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(ctx context.Context, g *guard.Guard[order, receipt]) error
		want error
	}{
		"nowhere to put it off": {func(ctx context.Context, g *guard.Guard[order, receipt]) error {
			_, err := g.Do(ctx, order{})
			return err
		}, context.DeadlineExceeded},
		"never to be repeated": {func(ctx context.Context, g *guard.Guard[order, receipt]) error {
			_, err := g.Do(ctx, order{Repeat: guard.RepeatNever})
			return err
		}, redrive.ErrUncertain},
		"the caller leaves": {func(ctx context.Context, g *guard.Guard[order, receipt]) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := g.Do(ctx, order{})
			return err
		}, context.Canceled},
		"a delivery of the backlog": {func(ctx context.Context, g *guard.Guard[order, receipt]) error {
			d := &redrive.Delivery{Message: redrive.Message{ID: "1", Queue: "orders", Body: []byte("{}")}}
			d.Receipt.Ref = d.Ref()
			g.Gate().Reserve(time.Now(), driver.Ask{Queue: "orders", Max: 1})
			defer g.Gate().Report(time.Now(), d, &driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeRetry})
			return g.ServeDelivery(ctx, d)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newDeaf()
				g := p.guard(t, guard.Config[order, receipt]{})
				pass(time.Minute) // until the backlog may have a call
				began := time.Now()
				if err := tt.do(t.Context(), g); !errors.Is(err, tt.want) || time.Since(began) > 1100*time.Millisecond {
					t.Errorf("%v after %s; want %v within 1.1 s", err, time.Since(began), tt.want)
				}
				close(p.letGo)
				synctest.Wait()
				held(t, g)
			})
		})
	}
}

// TestTheEndOfABoundedCall checks that a panic and runtime.Goexit reach the caller who waits, and
// that a panic which comes too late reaches the log.
func TestTheEndOfABoundedCall(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("test") }, "goexit": runtime.Goexit} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					p := newDeaf()
					p.end = end
					g := p.guard(t, guard.Config[order, receipt]{Logger: slog.New(slog.NewTextHandler(&log, nil))})
					if !late {
						close(p.letGo)
					}
					returned := false
					var caught any
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { caught = recover() }()
						_, _ = g.Do(t.Context(), order{})
						returned = true
					}()
					<-done
					e, _ := caught.(*redrive.PanicError)
					if returned != late || (e != nil) != (!late && name == "panic") {
						t.Errorf("late %t: returned %t, caught %v", late, returned, caught)
					}
					if e != nil && (e.Value != "test" || !strings.Contains(e.Stack, "deaf")) {
						t.Errorf("late %t: caught %q, with the stack %s", late, e.Value, e.Stack)
					}
					if late {
						close(p.letGo)
						synctest.Wait()
					}
					if strings.Contains(log.String(), "a call panicked") != (late && name == "panic") {
						t.Errorf("late %t: logged %s", late, &log)
					}
					if s := only(g); s.Calls["transient"] != 1 {
						t.Errorf("late %t: %+v", late, s)
					}
					held(t, g)
				})
			})
		}
	}
}
