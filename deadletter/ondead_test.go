package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
)

// process runs a processor of dead letters until the returned function is called.
func processDead(m *deadtest.Store, h deadletter.Handler, o deadletter.Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- deadletter.OnDead(ctx, m.Store, "q", h, o) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			m.T.Error(err)
		}
	}
}

func TestOnDead(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 6, nil)
		calls := map[string]int{}
		archive := &deadtest.Archive{}
		stop := processDead(m, func(_ context.Context, e *redrive.Entry) (deadletter.Decision, error) {
			calls[e.ID]++
			if e.History.Latest() == nil || string(e.Body) != "x" && e.Original == nil {
				t.Errorf("%s came with %q and %+v", e.ID, e.Body, e.History)
			}
			edit := &redrive.Edit{Body: []byte("mended")}
			switch e.ID {
			case "m00001":
				return deadletter.Decision{Action: driver.ActRedrive, Edit: edit, After: time.Minute}, nil
			case "m00002":
				return deadletter.Decision{Action: driver.ActDrop}, nil
			case "m00003":
				return deadletter.Decision{Action: driver.ActArchive}, nil
			case "m00004":
				return deadletter.Decision{Edit: edit}, nil
			case "m00005":
				return deadletter.Decision{}, errors.New("not now")
			}
			panic("out of order")
		}, deadletter.Options{Archive: archive})
		deadtest.Pass(59 * time.Second)
		stop()
		counts, err := m.Store.Counts(context.Background(), "q")
		if err != nil {
			t.Fatal(err)
		}
		c := counts[0]
		if c.Ledger.Dropped != 1 || c.Ledger.Archived != 1 || c.AllDead() != 3 || c.AllWaiting() != 1 {
			t.Errorf("%+v", c)
		}
		if e := m.Entry("q", "m00001"); e.State != redrive.StateWaiting || e.Redrives != 1 || string(e.Body) != "mended" || string(e.Original.Body) != "x" || !e.Due.After(time.Now()) {
			t.Errorf("redriven: %+v", e)
		}
		if e := m.Entry("q", "m00004"); e.State != redrive.StateDead || string(e.Body) != "mended" || string(e.Original.Body) != "x" {
			t.Errorf("kept: %+v", e)
		}
		if a := archive.Entries(); len(a) != 1 || a[0].ID != "m00003" || string(a[0].Body) != "x" {
			t.Errorf("archived: %+v", a)
		}
		if fmt.Sprint(calls) != "map[m00001:1 m00002:1 m00003:1 m00004:1 m00005:1 m00006:1]" {
			t.Errorf("calls: %v", calls)
		}
		audits, err := m.Store.Verify(context.Background())
		if err != nil || audits[0].Imbalance() != 0 || len(audits[0].Problems) > 0 {
			t.Errorf("%+v, %v", audits, err)
		}
	})
}

func TestOnDeadRedrivesNotForEver(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 1, nil)
		var calls atomic.Int64
		defer processDead(m, func(context.Context, *redrive.Entry) (deadletter.Decision, error) {
			calls.Add(1)
			return deadletter.Decision{Action: driver.ActRedrive}, nil
		}, deadletter.Options{MaxAutoRedrives: 2})()
		for range 10 {
			deadtest.Pass(10 * time.Second)
			m.FailAgain("q")
		}
		if e := m.Entry("q", "m00001"); e.Redrives != 2 || e.State != redrive.StateDead || calls.Load() != 3 {
			t.Errorf("redriven %d times in %d calls, now %s", e.Redrives, calls.Load(), e.State)
		}
		deadtest.Pass(25 * time.Hour)
		if calls.Load() != 4 {
			t.Errorf("a day later it was looked at %d times", calls.Load())
		}
	})
}

func TestOnDeadRedrivesNothingWithoutABody(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 2, deadtest.BodyGone)
		defer processDead(m, func(_ context.Context, e *redrive.Entry) (deadletter.Decision, error) {
			d := deadletter.Decision{Action: driver.ActRedrive}
			if e.ID == "m00002" {
				d.Edit = &redrive.Edit{Body: []byte("mended")}
			}
			return d, nil
		}, deadletter.Options{})()
		deadtest.Pass(10 * time.Second)
		if e := m.Entry("q", "m00001"); e.State != redrive.StateDead || e.Redrives != 0 {
			t.Errorf("without a body: %+v", e)
		}
		if e := m.Entry("q", "m00002"); e.State != redrive.StateWaiting || string(e.Body) != "mended" {
			t.Errorf("with one: %+v", e)
		}
	})
}

func TestOnDeadInSeveralProcesses(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 100, nil)
		var mu sync.Mutex
		calls := map[string]int{}
		for range 4 {
			defer processDead(m, func(ctx context.Context, e *redrive.Entry) (deadletter.Decision, error) {
				mu.Lock()
				calls[e.ID]++
				mu.Unlock()
				wait(ctx, 45*time.Second) // longer than a lease
				return deadletter.Decision{Action: driver.ActDrop}, nil
			}, deadletter.Options{Concurrency: 5, Timeout: time.Minute})()
		}
		deadtest.Pass(10 * time.Minute)
		for id, n := range calls {
			if n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
		if dead, _ := m.Left("q"); dead != 0 || len(calls) != 100 {
			t.Errorf("%d are left, %d were handled", dead, len(calls))
		}
	})
}

// wait waits for a while of the bubble's clock, or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func TestOnDeadGivesBackWhatItHasWhenItStops(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 1, nil)
		stop := processDead(m, func(ctx context.Context, _ *redrive.Entry) (deadletter.Decision, error) {
			<-ctx.Done()
			return deadletter.Decision{}, ctx.Err()
		}, deadletter.Options{})
		synctest.Wait()
		stop()
		ds, err := m.Store.Claim(context.Background(), driver.ClaimRequest{Queue: "q", Dead: true, Max: 1, Lease: time.Minute, Instance: "i"})
		if err != nil || len(ds) != 1 {
			t.Errorf("%v, %v", ds, err)
		}
	})
}

func TestOnDeadRefusesWhatMakesNoSense(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		h := func(context.Context, *redrive.Entry) (deadletter.Decision, error) { return deadletter.Decision{}, nil }
		ctx := context.Background()
		for _, err := range []error{
			deadletter.OnDead(ctx, m.Store, "No Queue", h), deadletter.OnDead(ctx, m.Store, "q", nil),
			deadletter.OnDead(ctx, m.Store, "q", h, deadletter.Options{}, deadletter.Options{}),
		} {
			if !errors.Is(err, redrive.ErrInvalid) {
				t.Error(err)
			}
		}
		m.Kill("q", 1, nil)
		stop := processDead(m, func(context.Context, *redrive.Entry) (deadletter.Decision, error) {
			return deadletter.Decision{Action: driver.ActArchive}, nil // there is no archive
		}, deadletter.Options{})
		deadtest.Pass(10 * time.Second)
		stop()
		if e := m.Entry("q", "m00001"); e == nil || e.State != redrive.StateDead {
			t.Errorf("%+v", e)
		}
	})
}

// What does not match its checksum is not handled, unless the handler can know it by the reason.
func TestOnDeadLeavesWhatIsCorrupt(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 2, nil)
		m.Kill("q", 3, func(e *redrive.Entry) { e.Reason = redrive.ReasonCorrupt })
		for _, id := range []string{"m00002", "m00003", "m00004", "m00005"} {
			m.Entry("q", id).Body[0] ^= 1
		}
		calls := map[string]int{}
		stop := processDead(m, func(_ context.Context, e *redrive.Entry) (deadletter.Decision, error) {
			calls[e.ID]++
			switch e.ID {
			case "m00004":
				return deadletter.Decision{Action: driver.ActDrop}, nil
			case "m00005":
				return deadletter.Decision{Action: driver.ActRedrive, Edit: &redrive.Edit{Body: []byte("mended")}}, nil
			}
			return deadletter.Decision{Action: driver.ActRedrive}, nil
		}, deadletter.Options{})
		deadtest.Pass(10 * time.Second)
		stop()
		if fmt.Sprint(calls) != "map[m00001:1 m00003:1 m00004:1 m00005:1]" {
			t.Errorf("calls: %v", calls)
		}
		for id, want := range map[string]redrive.State{"m00001": redrive.StateWaiting, "m00002": redrive.StateDead, "m00003": redrive.StateDead, "m00005": redrive.StateWaiting} {
			if e := m.Entry("q", id); e == nil || e.State != want {
				t.Errorf("%s: %+v, want %s", id, e, want)
			}
		}
		if e := m.Entry("q", "m00004"); e != nil {
			t.Errorf("m00004 was dropped and is %s", e.State)
		}
	})
}
