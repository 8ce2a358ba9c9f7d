package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// shift moves the stored due times of a queue, and has the store look at them anew.
func shift(t testing.TB, s driver.Store, queue string, d time.Duration) {
	t.Helper()
	store := s.(*Store)
	noErr(t, store.do(t.Context(), 1, func(tx *tx) error {
		q := store.queueNamed(queue)
		q.forgetPlaces()
		tx.bump(q)
		if err := tx.write("UPDATE waiting SET due = due + ? WHERE queue = ?").int(int64(d)).int(q.id).run(); err != nil {
			return err
		}
		if err := tx.write("UPDATE dead SET died = died + ?, due = due + ? WHERE queue = ?").int(int64(d)).int(int64(d)).int(q.id).run(); err != nil {
			return err
		}
		return store.findDeadAhead(q)
	}))
}

// back closes a store and opens it with a clock that went back.
func back(t *testing.T, s *Store, c *clock, d time.Duration) *Store {
	t.Helper()
	noErr(t, s.Close())
	c.advance(-d)
	return open(t, s.dir, WithClock(c.now))
}

func ids(ds []redrive.Delivery) (list []string) {
	for i := range ds {
		list = append(list, ds[i].ID)
	}
	return list
}

// What nobody delayed is due at once after the clock went back, in its order, and more of it
// than one claim makes due; also behind rows that were delayed for less than the clock went back.
func TestTheClockWentBack(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	publish(t, s, redrive.Message{Queue: "q", ID: "retried"}, redrive.Message{Queue: "q", ID: "released"}, redrive.Message{Queue: "q", ID: "repeated"})
	ds := claimAll(t, s, "q")
	after := func(i int, o redrive.Outcome) driver.Settlement {
		return driver.Settlement{Receipt: ds[i].Receipt, Outcome: o, After: time.Minute}
	}
	noErr(t, s.Settle(t.Context(), []driver.Settlement{after(0, redrive.OutcomeRetry), after(1, redrive.OutcomeRelease), after(2, redrive.OutcomeRepeat)})...)
	publish(t, s, redrive.Message{Queue: "q", ID: "delayed", Delay: time.Minute}, redrive.Message{Queue: "q", ID: "scheduled", DeliverAt: c.now().Add(time.Minute)})
	delayed := []string{"retried", "released", "repeated", "delayed", "scheduled"}
	c.advance(time.Hour)
	var want []string
	for i := range 2*catchUpRows + 100 {
		c.advance(time.Millisecond)
		id := fmt.Sprintf("m%04d", i)
		want = append(want, id)
		publish(t, s, redrive.Message{Queue: "q", ID: id})
		if i != 20 {
			continue
		}
		c.advance(time.Millisecond)
		for _, d := range claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 10, ExceptIDs: delayed}) {
			noErr(t, s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeRelease}})...)
		}
		want = append(want[10:], want[:10]...) // those were released last
	}

	s = back(t, s, c, 24*time.Hour)
	events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "q"}})
	noErr(t, err)
	equal(t, []any{events[0].NextDueIn, events[0].Lanes.Has(redrive.LaneFresh)}, []any{time.Duration(0), true})
	got := ids(claimAll(t, s, "q"))
	c.advance(time.Millisecond)
	publish(t, s, redrive.Message{Queue: "q", ID: "new"})
	for range 100 {
		got = append(got, ids(claimAll(t, s, "q"))...)
		c.advance(time.Millisecond)
	}
	want = slices.Insert(want, catchUpRows, "new")
	equal(t, len(got), len(want))
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("number %d is %s, want %s", i, got[i], want[i])
		}
	}
	for _, lane := range []redrive.Lane{redrive.LaneFresh, redrive.LaneRetry} {
		equal(t, len(claimWith(t, s, driver.ClaimRequest{Queue: "q", Lane: lane})), 0)
	}
	for _, id := range delayed {
		if e := entry(t, s, redrive.Ref{Queue: "q", ID: id}); e.Due.Before(c.now().Add(22 * time.Hour)) {
			t.Errorf("%s is due at %s, at %s", id, e.Due, c.now())
		}
	}
	verify(t, s)
}

// Behind the head of a key, followers are due when it is done.
func TestTheClockWentBackInOrderByKey(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	noErr(t, s.Configure(t.Context(), "q", driver.QueueSettings{OrderByKey: true}))
	for i := range 3 {
		c.advance(time.Second)
		publish(t, s, redrive.Message{Queue: "q", ID: fmt.Sprint("m", i), Key: "k"})
	}
	publish(t, s, redrive.Message{Queue: "q", ID: "later", Key: "k", Delay: time.Hour})
	s = back(t, s, c, 24*time.Hour)
	var got []string
	for range 4 {
		for _, d := range claimAll(t, s, "q") {
			got = append(got, d.ID)
			settle(t, s, d, redrive.OutcomeDone)
		}
	}
	equal(t, got, []string{"m0", "m1", "m2"})
	verify(t, s)
}

// More dead letters than a claim makes due are claimed after the clock went back, in the order in
// which they died; a lease of one ends with its process.
func TestDeadLettersAfterTheClockWentBack(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	var want []string
	for i := range catchUpRows + 20 {
		want = append(want, fmt.Sprintf("m%04d", i))
		publish(t, s, redrive.Message{Queue: "q", ID: want[i]})
	}
	for range want {
		c.advance(time.Millisecond)
		for _, d := range claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1}) {
			settle(t, s, d, redrive.OutcomeDead)
		}
	}
	equal(t, len(claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1, Dead: true, Lease: time.Hour})), 1)
	s = back(t, s, c, 24*time.Hour)
	var got []string
	for len(got) < len(want) {
		ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 100, Dead: true})
		if len(ds) == 0 {
			break
		}
		got = append(got, ids(ds)...)
		c.advance(time.Millisecond)
	}
	equal(t, got, want)
	verify(t, s)
}

// A lease that lies ahead, a suspect, does not wait for the clock either, and a small step back
// changes nothing.
func TestSuspectsOfAClockThatWentBack(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	publish(t, s, message("q", "a"), message("q", "b"))
	claimWith(t, s, driver.ClaimRequest{Queue: "q", Lease: time.Second})
	c.advance(time.Minute)
	equal(t, len(claimAll(t, s, "q")), 0) // both are suspects now
	s = back(t, s, c, 24*time.Hour)
	equal(t, bodies(claimWith(t, s, driver.ClaimRequest{Queue: "q", Isolated: true, Max: 1})), []string{"a"})
	publish(t, s, message("near", "x"))
	s = back(t, s, c, time.Second/2)
	equal(t, len(claimAll(t, s, "near")), 0)
	c.advance(time.Second)
	equal(t, len(claimAll(t, s, "near")), 1)
}
