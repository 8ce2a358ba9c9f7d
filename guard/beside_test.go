package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// TestBeside puts requests off into a queue that is not in the store: tickets wait for
// their results, a key waits as long as its requests do, and then no longer.
func TestBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broker := memory.New(), memory.New()
		a := &third{name: "a"}
		g := newGuard(t, guard.Config[order, receipt]{Store: store, Sink: broker, Source: broker}, a)
		if err := g.Force("a", guard.Down, time.Second); err != nil {
			t.Fatal(err)
		}
		first, err := g.Do(t.Context(), order{ID: "one", Key: "k"})
		if err != nil || !first.Deferred() {
			t.Fatalf("%+v, %v", first, err)
		}
		if s, err := first.Ticket.Poll(t.Context()); err != nil || s.State != redrive.StateWaiting {
			t.Errorf("it waits in the broker: %+v, %v", s, err)
		}
		if _, err := g.Ticket("one").Poll(t.Context()); !errors.Is(err, redrive.ErrNotFound) {
			t.Errorf("a ticket by nothing but its id: %v", err)
		}
		<-time.After(3 * time.Second) // the store has been asked for the key
		if err := g.Force("a", guard.Healthy, 0); err != nil {
			t.Fatal(err)
		}
		second, err := g.Do(t.Context(), order{ID: "two", Key: "k"})
		if err != nil || !second.Deferred() {
			t.Errorf("a later request of the key overtook it: %+v, %v", second, err)
		}
		// Another process works them off.
		other := newGuard(t, guard.Config[order, receipt]{Store: store, Sink: broker, Source: broker}, a)
		defer consume(t, store, other)()
		for _, r := range []guard.Result[receipt]{first, second} {
			if s, err := r.Ticket.Wait(t.Context()); err != nil || !s.Done || s.Value.By != "a" {
				t.Errorf("%+v, %v", s, err)
			}
		}
		<-time.After(3 * time.Second)
		if third, err := g.Do(t.Context(), order{Key: "k"}); err != nil || third.Deferred() {
			t.Errorf("after they were sent: %+v, %v", third, err)
		}
	})
}

// forgetful is a broker that remembers no ids and whose answer is lost.
type forgetful struct {
	driver.Source
	published int
}

func (f *forgetful) Caps() driver.Caps { return driver.Caps{Name: "forgetful"} }

func (f *forgetful) Publish(context.Context, []redrive.Message) []error {
	f.published++
	if f.published > 1 {
		return nil
	}
	return []error{redrive.ErrUnknown}
}

func TestBesideNothingUnsafeIsPublishedTwice(t *testing.T) {
	for repeat, want := range map[guard.Repeat]int{guard.RepeatNever: 1, guard.RepeatSame: 2} {
		a := &third{name: "a"}
		a.fail(&guard.RateLimitError{After: time.Second}) // nothing was carried out
		f := &forgetful{}
		g := newGuard(t, guard.Config[order, receipt]{Store: memory.New(), Sink: f, Source: f}, a)
		_, err := g.Do(t.Context(), order{Repeat: repeat})
		if f.published != want || (want == 1) != errors.Is(err, guard.ErrNotQueued) {
			t.Errorf("repeat %v: published %d times, %v", repeat, f.published, err)
		}
	}
}

func TestSourceWithoutSink(t *testing.T) {
	store := memory.New()
	_, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: store, Source: store,
		Providers: []guard.Provider[order, receipt]{{Name: "a", Call: (&third{}).call}}})
	if err == nil {
		t.Error("a source without a sink was taken")
	}
}
