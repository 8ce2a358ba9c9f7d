package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// entry returns a message's entry; it must be there.
func entry(t *testing.T, s *Store, ref redrive.Ref) *redrive.Entry {
	t.Helper()
	es, err := s.Get(t.Context(), []redrive.Ref{ref})
	noErr(t, err)
	if es[0] == nil {
		t.Fatalf("%s is not there", ref)
	}
	return es[0]
}

func TestDeathMakesSuspectsOfWhatWasInFlight(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	s := open(t, dir, WithClock(c.now))
	publish(t, s, message("q", "a"), message("q", "b"), message("q", "c"), message("q", "d"), message("q", "e"))
	ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 4})
	settle(t, s, ds[0], redrive.OutcomeDone)
	settle(t, s, ds[1], redrive.OutcomeRetry)
	settle(t, s, ds[2], redrive.OutcomeRelease)
	s.abandon()

	s = open(t, dir, WithClock(c.now))
	d := entry(t, s, ds[3].Ref())
	equal(t, []any{d.Suspect, d.Attempts, d.Crashes}, []any{true, 1, 0})
	for i, attempts := range map[int]int{1: 1, 2: 0} {
		e := entry(t, s, ds[i].Ref())
		equal(t, []any{e.Suspect, e.Attempts}, []any{false, attempts})
	}
	equal(t, bodies(claimAll(t, s, "q")), []string{"c", "e"})
	isolated := claimWith(t, s, driver.ClaimRequest{Queue: "q", Isolated: true, Max: 1})
	equal(t, bodies(isolated), []string{"d"})
	equal(t, []any{isolated[0].Attempt, isolated[0].Suspect}, []any{2, true})
	err := s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[3].Receipt, Outcome: redrive.OutcomeDone}})[0]
	if !errors.Is(err, redrive.ErrLeaseLost) {
		t.Fatalf("a token from before the death: %v", err)
	}
	verify(t, s)
}

func TestOnlyIsolatedDeathsCountAsCrashes(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	s := open(t, dir, WithClock(c.now))
	publish(t, s, message("q", "a"), message("q", "b"))
	claimAll(t, s, "q")
	var order []string
	for range 4 {
		s.abandon()
		c.advance(time.Second)
		s = open(t, dir, WithClock(c.now))
		order = append(order, bodies(claimWith(t, s, driver.ClaimRequest{Queue: "q", Isolated: true, Max: 1}))...)
	}
	equal(t, order, []string{"a", "b", "a", "b"})
	s.abandon()
	c.advance(time.Second)
	s = open(t, dir, WithClock(c.now))
	page, err := s.Find(t.Context(), redrive.Query{Queue: "q"})
	noErr(t, err)
	for _, e := range page.Entries {
		equal(t, []any{e.Crashes, e.Attempts, e.Suspect}, []any{2, 3, true})
	}
	verify(t, s)
}

func TestOrderlyCloseLeavesNoSuspects(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	publish(t, s, message("q", "a"), message("q", "b"))
	ds := claimAll(t, s, "q")
	settle(t, s, ds[0], redrive.OutcomeRelease)
	noErr(t, s.Close())
	s = open(t, dir)
	equal(t, entry(t, s, ds[0].Ref()).Suspect, false)
	held := entry(t, s, ds[1].Ref())
	equal(t, []any{held.Suspect, held.Attempts}, []any{true, 1})
}

func TestLeaseThatRunsOut(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	publish(t, s, message("q", "a"), message("q", "b"), message("q", "c"), message("q", "d"))
	ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Lease: time.Second})
	noErr(t, s.Extend(t.Context(), []redrive.Receipt{ds[3].Receipt}, time.Hour)...)
	c.advance(2 * time.Second)
	for i, err := range s.Extend(t.Context(), []redrive.Receipt{ds[0].Receipt, ds[3].Receipt}, time.Minute) {
		if (i == 0) != errors.Is(err, redrive.ErrLeaseLost) {
			t.Fatal(i, err)
		}
	}
	equal(t, len(claimAll(t, s, "q")), 0)
	counts, err := s.Counts(t.Context(), "q")
	noErr(t, err)
	equal(t, []int64{counts[0].Suspects, counts[0].Leased, counts[0].Due}, []int64{3, 1, 3})
	settle(t, s, ds[0], redrive.OutcomeDone)    // late, but nobody has claimed it again
	settle(t, s, ds[1], redrive.OutcomeRelease) // gives the attempt back
	e := entry(t, s, ds[1].Ref())
	equal(t, []any{e.Suspect, e.Attempts}, []any{false, 0})
	again := claimWith(t, s, driver.ClaimRequest{Queue: "q", Isolated: true})
	equal(t, bodies(again), []string{"c"})
	equal(t, again[0].Attempt, 2)
	for _, err := range s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[2].Receipt, Outcome: redrive.OutcomeDone}}) {
		if !errors.Is(err, redrive.ErrLeaseLost) {
			t.Fatal(err)
		}
	}
	c.advance(2 * time.Minute) // isolated: counts as a crash
	equal(t, len(claimAll(t, s, "q")), 1)
	equal(t, entry(t, s, ds[2].Ref()).Crashes, 1)
	settle(t, s, again[0], redrive.OutcomeRetry) // but the process lives
	equal(t, entry(t, s, ds[2].Ref()).Crashes, 0)
	verify(t, s)
}

func TestTokensOfAPartlySettledBatchAfterDeath(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	publish(t, s, message("q", "a"), message("q", "b"))
	ds := claimAll(t, s, "q")
	settle(t, s, ds[0], redrive.OutcomeRetry)
	again := claimWith(t, s, driver.ClaimRequest{Queue: "q", Lane: redrive.LaneRetry})
	settle(t, s, again[0], redrive.OutcomeRetry)
	s.abandon()
	s = open(t, dir)
	e := entry(t, s, ds[0].Ref())
	equal(t, []any{e.Suspect, e.Attempts}, []any{false, 2})
	equal(t, entry(t, s, ds[1].Ref()).Suspect, true)
	var records int64
	noErr(t, s.between(t.Context(), func() (err error) {
		records, err = s.w.value("SELECT count(*) FROM claim")
		return err
	}))
	equal(t, records, 0)
}
