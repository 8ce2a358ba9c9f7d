package sqlstore

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

var due = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestFloorsMoveOnWithTheClaims(t *testing.T) {
	var f Floors
	req := driver.ClaimRequest{Queue: "a", Max: 2}
	whole := time.Time{}
	f.Claimed(&req, 0, whole, FloorWorth/2, due, 2)
	if from := f.From(&req, 0); !from.IsZero() {
		t.Errorf("a class that is cheap to read is not read as a whole, but from %s", from)
	}
	f.Claimed(&req, 0, whole, time.Minute, due, 2)
	if from := f.From(&req, 0); !from.Equal(due.Add(-FloorMargin)) {
		t.Errorf("from %s", from)
	}
	f.Claimed(&req, 0, due, time.Millisecond, due.Add(time.Hour), 2)
	f.Claimed(&req, 0, due, time.Millisecond, due.Add(time.Minute), 2)
	if from := f.From(&req, 0); !from.Equal(due.Add(time.Hour - FloorMargin)) {
		t.Errorf("it did not move, or moved back: %s", from)
	}
	excluding := driver.ClaimRequest{Queue: "a", Max: 2, ExceptIDs: []string{"m"}}
	f.Claimed(&excluding, 0, due, time.Millisecond, due.Add(2*time.Hour), 2)
	if from := f.From(&excluding, 0); !from.Equal(due.Add(time.Hour - FloorMargin)) {
		t.Errorf("ids that are excluded may lie before the floor, which is %s", from)
	}
	if from := f.From(&req, 1); !from.IsZero() {
		t.Errorf("another lane begins at %s", from)
	}
	f.Forget("b")
	if from := f.From(&req, 0); from.IsZero() {
		t.Error("the floor of another queue was forgotten")
	}
	f.Forget("a")
	if from := f.From(&req, 0); !from.IsZero() {
		t.Error("it was not forgotten")
	}
}

func TestKindsHaveFloorsOfTheirOwn(t *testing.T) {
	var f Floors
	all := driver.ClaimRequest{Queue: "a", Max: 1}
	some := driver.ClaimRequest{Queue: "a", Max: 1, Kinds: []string{"x", "y"}}
	others := driver.ClaimRequest{Queue: "a", Max: 1, ExceptKinds: []string{"x", "y"}}
	f.Claimed(&some, 0, time.Time{}, time.Minute, due.Add(time.Hour), 1)
	same := driver.ClaimRequest{Queue: "a", Max: 1, Kinds: []string{"y", "x"}}
	if from := f.From(&same, 0); !from.Equal(due.Add(time.Hour - FloorMargin)) {
		t.Errorf("the same kinds begin at %s", from)
	}
	for _, req := range []*driver.ClaimRequest{&all, &others} {
		if from := f.From(req, 0); !from.IsZero() {
			t.Errorf("%+v begins at %s", req, from)
		}
	}
}

// What was committed late, and what claims passed over, is found by the looks beside them.
func TestWholesAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var f Floors
		looked := make(chan Part)
		first := make(chan time.Time)
		const slow = 200 * time.Millisecond
		var cost atomic.Int64
		cost.Store(int64(slow))
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, func(ctx context.Context, p Part) (time.Time, time.Time, error) {
				<-time.After(time.Duration(cost.Load()))
				select {
				case looked <- p:
					return <-first, due, nil
				case <-ctx.Done():
					return time.Time{}, due, ctx.Err()
				}
			})
		}()
		req := driver.ClaimRequest{Queue: "a", Max: 10, Kinds: []string{"x"}}
		from := func() time.Time { synctest.Wait(); return f.From(&req, 1) }

		began := time.Now()
		f.Claimed(&req, 1, time.Time{}, slow, time.Time{}, 0) // nothing was there: where it begins is to be found out
		if p := <-looked; p.Queue != "a" || p.Class != 1 || len(p.Kinds) != 1 || time.Since(began) > time.Second {
			t.Errorf("looked at %+v after %s", p, time.Since(began))
		}
		first <- time.Time{}
		if at := from(); !at.Equal(due.Add(-FloorMargin)) {
			t.Errorf("an empty class begins at %s", at)
		}

		began = time.Now()
		<-looked
		if took := time.Since(began); took < floorMost || took > floorMost+time.Second {
			t.Errorf("looked again after %s", took)
		}
		first <- due.Add(-time.Hour) // committed late
		if at := from(); !at.Equal(due.Add(-time.Hour - FloorMargin)) {
			t.Errorf("what came late is not claimed: from %s", at)
		}

		began = time.Now()
		f.Claimed(&req, 1, due, time.Millisecond, due, 3) // fewer than were asked for
		<-looked
		if took := time.Since(began); took > floorShort*slow+time.Second {
			t.Errorf("too little was claimed, and the whole looked at after %s", took)
		}
		first <- due.Add(time.Hour)
		if at := from(); !at.Equal(due.Add(-FloorMargin)) {
			t.Errorf("what is due later does not hide what comes now: from %s", at)
		}

		cost.Store(0) // the old transaction has ended
		<-looked
		first <- due
		if at := from(); !at.IsZero() {
			t.Errorf("a class that has become cheap to read begins at %s", at)
		}
		cancel()
		<-done
	})
}

func TestLooksAtSeveralClassesSetFloors(t *testing.T) {
	var f Floors
	seen := []Beginning{{"a", 0, due.Add(-time.Minute)}, {"a", 1, time.Time{}}, {"b", 0, due.Add(time.Minute)}}
	f.Peeked(seen, peekWorth/2, due)
	if from := f.OfQueue("a", 0); !from.IsZero() {
		t.Errorf("a cheap look set a floor: %s", from)
	}
	f.Peeked(seen, peekWorth, due)
	for i, want := range []time.Time{due.Add(-time.Minute), due, due} {
		if from := f.OfQueue(seen[i].Queue, seen[i].Class); !from.Equal(want.Add(-FloorMargin)) {
			t.Errorf("%+v: from %s", seen[i], from)
		}
	}
}

// A process that begins knows where classes begin that another has read as wholes.
func TestFloorsAreShared(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	var one, other Floors
	all := driver.ClaimRequest{Queue: "a", Max: 1}
	some := driver.ClaimRequest{Queue: "a", Max: 1, Kinds: []string{"y", "x"}}
	learned := func(f *Floors) (times []time.Time) {
		t.Helper()
		for _, err := range []error{one.Tell(t.Context(), store), f.Learn(t.Context(), store)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return []time.Time{f.From(&all, 2), f.From(&some, 0), f.From(&all, 0)}
	}
	check := func(got []time.Time, want ...time.Time) {
		t.Helper()
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("learned %v, want %v", got, want)
		}
	}
	never := time.Time{}
	check(learned(&other), never, never, never)
	one.Claimed(&all, 2, never, time.Minute, due.Add(FloorMargin), 1)
	one.Claimed(&some, 0, never, time.Minute, due.Add(time.Hour+FloorMargin), 1)
	check(learned(&other), due, due.Add(time.Hour), never)
	if stale := other.stale(); len(stale) != 2 {
		t.Errorf("%d of what was learned are looked at at once", len(stale))
	}

	one.Claimed(&all, 2, due, time.Millisecond, due.Add(time.Minute+FloorMargin), 1) // it moves on
	check(learned(&other), due, due.Add(time.Hour), never)                           // which others see for themselves
	check(learned(new(Floors)), due.Add(time.Minute), due.Add(time.Hour), never)

	one.Forget("a")
	check(learned(new(Floors)), never, never, never)
	if one.hasNews() {
		t.Error("there is nothing to tell")
	}
}
