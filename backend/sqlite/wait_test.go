package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// next waits for the next event of queue q.
func next(t *testing.T, s *Store, since uint64) driver.Event {
	t.Helper()
	events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "other", Since: 1}, {Queue: "q", Since: since}})
	noErr(t, err)
	equal(t, len(events), 1)
	return events[0]
}

func TestWaitTellsWhatIsDueWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		e := next(t, s, 0)
		equal(t, e.NextDueIn, driver.Never)
		go func() {
			<-time.After(time.Second)
			publish(t, s, redrive.Message{Queue: "q", ID: "late", Delay: time.Hour})
		}()
		e = next(t, s, e.Version)
		equal(t, []any{e.NextDueIn, e.Lanes}, []any{time.Hour, driver.LaneSet(0)})
		publish(t, s, redrive.Message{Queue: "q", ID: "now"})
		e = next(t, s, e.Version)
		equal(t, []any{e.NextDueIn, e.Lanes.Has(redrive.LaneFresh), e.Suspects}, []any{time.Duration(0), true, false})
		d := claimWith(t, s, driver.ClaimRequest{Queue: "q", Lease: time.Minute})
		equal(t, len(d), 1)
		start := time.Now()
		e = next(t, s, e.Version) // the lease runs out
		equal(t, []any{time.Since(start), e.Suspects, e.Lanes}, []any{time.Minute, true, driver.LaneSet(0)})
		_, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{{Queue: "q", ID: "late"}}}, driver.Change{Action: driver.ActDueNow}, 1)
		noErr(t, err)
		e = next(t, s, e.Version)
		equal(t, e.Lanes.Has(redrive.LaneFresh), true)
		settle(t, s, d[0], redrive.OutcomeDone)
		go func() {
			<-time.After(time.Second)
			_ = s.Close()
		}()
		if _, err := s.Wait(t.Context(), []driver.Watch{{Queue: "q", Since: e.Version}}); !errors.Is(err, redrive.ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestWaitKnowsDueTimesAfterARestart(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	s := open(t, dir, WithClock(c.now))
	publish(t, s, redrive.Message{Queue: "q", Delay: time.Hour})
	noErr(t, s.Close())
	s = open(t, dir, WithClock(c.now))
	equal(t, next(t, s, 0).NextDueIn, time.Hour)
}

func TestTenThousandIdleQueuesAreCheap(t *testing.T) {
	s := open(t, t.TempDir())
	watches := make([]driver.Watch, 10_000)
	for i := range watches {
		watches[i].Queue = fmt.Sprintf("q%d", i)
	}
	events, err := s.Wait(t.Context(), watches)
	noErr(t, err)
	equal(t, len(events), len(watches))
	for i := range events {
		watches[i].Since = events[i].Version
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan []driver.Event, 1)
	go func() {
		e, _ := s.Wait(ctx, watches)
		got <- e
	}()
	publish(t, s, message("q5000", "x"))
	equal(t, (<-got)[0].Queue, "q5000")
	cancel()
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Fatalf("%d goroutines more", n-before)
	}
}
