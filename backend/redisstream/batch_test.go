package redisstream

import (
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// held counts what the queue has of batches, and of leases of their own.
func held(t testing.TB, s *Store) (batches, leases int64) {
	t.Helper()
	q := s.queue("sms")
	batches, err := s.conn.ZCard(t.Context(), q.keys[keyBatches]).Result()
	noErr(t, err)
	ranges, err := s.conn.ZCard(t.Context(), q.keys[keyRanges]).Result()
	noErr(t, err)
	if batches != ranges {
		t.Errorf("%d batches by end, %d by entry", batches, ranges)
	}
	leases, err = s.conn.ZCard(t.Context(), q.keys[keyLeases]).Result()
	noErr(t, err)
	return batches, leases
}

// clean finds nothing left of leases.
func clean(t testing.TB, s *Store) {
	t.Helper()
	q := s.queue("sms")
	batches, leases := held(t, s)
	holders, err := s.conn.HLen(t.Context(), q.keys[keyHolders]).Result()
	noErr(t, err)
	counters, err := s.conn.HMGet(t.Context(), q.keys[keyCounters], "sl", "bl").Result()
	noErr(t, err)
	if batches+leases+holders+number(counters[0])+number(counters[1]) != 0 {
		t.Errorf("left over: %d batches, %d leases, %d holders, claimed %v, in batches %v", batches, leases, holders, counters[0], counters[1])
	}
}

func settleErrs(s *Store, t testing.TB, o redrive.Outcome, ds ...redrive.Delivery) []error {
	t.Helper()
	list := make([]driver.Settlement, len(ds))
	for i := range ds {
		list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: o, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "x"}}
		if o == redrive.OutcomeDone {
			list[i].Reason, list[i].Failure = 0, nil
		}
	}
	errs := s.Settle(t.Context(), list)
	if errs == nil {
		errs = make([]error, len(ds))
	}
	return errs
}

func TestBatchIsOneLease(t *testing.T) {
	s := open(t)
	publish(t, s, 30)
	ds := claim(t, s, ask(20))
	if batches, leases := held(t, s); batches != 1 || leases != 0 {
		t.Fatalf("%d batches, %d leases of 20 claims", batches, leases)
	}
	counts, err := s.Counts(t.Context(), "sms")
	noErr(t, err)
	if c := counts[0]; c.Leased != 20 || c.Due != 10 || c.Waiting[0] != 30 {
		t.Errorf("%+v", c)
	}
	got, err := s.Get(t.Context(), []redrive.Ref{ds[7].Ref()})
	noErr(t, err)
	if e := got[0]; e.State != redrive.StateLeased || e.Instance != "one" || e.Token != 1 || e.Attempts != 1 || e.Until.Before(ds[7].LeasedAt) {
		t.Errorf("%+v", e)
	}
	page, err := s.Find(t.Context(), redrive.Query{Queue: "sms", State: redrive.StateLeased})
	noErr(t, err)
	if len(page.Entries) != 20 {
		t.Errorf("%d leased are found", len(page.Entries))
	}
	m, err := s.Monitor(t.Context(), "sms")
	noErr(t, err)
	if m.Looked != 20 || m.Attempts[1] != 20 || !m.Complete || len(m.Consumers) != 1 || m.Consumers[0].Leased != 20 || m.Consumers[0].Pending != 20 {
		t.Errorf("%+v", m)
	}
	settle(t, s, redrive.OutcomeDone, ds[:5]...)
	settle(t, s, redrive.OutcomeDone, ds[10:]...)
	settle(t, s, redrive.OutcomeDone, ds[5:10]...)
	clean(t, s)
	if a := balanced(t, s); a.Ledger.Done != 20 || a.Waiting != 10 {
		t.Errorf("%+v", a)
	}
}

func TestBatchSettledTwice(t *testing.T) {
	s := open(t)
	publish(t, s, 10)
	ds := claim(t, s, ask(10))
	settle(t, s, redrive.OutcomeDone, ds[:3]...)
	// Again, with others, and one of them twice.
	errs := settleErrs(s, t, redrive.OutcomeDone, append(ds[1:5:5], ds[4])...)
	for i, want := range []error{redrive.ErrNotFound, redrive.ErrNotFound, nil, nil, redrive.ErrLeaseLost} {
		if !errors.Is(errs[i], want) {
			t.Errorf("%d: %v, want %v", i, errs[i], want)
		}
	}
	if a := balanced(t, s); a.Ledger.Done != 5 || a.Waiting != 5 {
		t.Errorf("%+v", a)
	}
	settle(t, s, redrive.OutcomeDone, ds[5:]...)
	clean(t, s)
	if errs := settleErrs(s, t, redrive.OutcomeDone, ds...); !errors.Is(errs[9], redrive.ErrNotFound) {
		t.Errorf("after all: %v", errs)
	}
}

func TestBatchMemberOfItsOwn(t *testing.T) {
	s := open(t)
	publish(t, s, 12)
	r := ask(12)
	r.Lease = time.Hour
	ds := claim(t, s, r)
	noErr(t, driver.FirstError(s.Extend(t.Context(), []redrive.Receipt{ds[3].Receipt, ds[4].Receipt}, 2*time.Hour)))
	if batches, leases := held(t, s); batches != 1 || leases != 2 {
		t.Fatalf("%d batches, %d leases", batches, leases)
	}
	settle(t, s, redrive.OutcomeRetry, ds[0], ds[4])
	settle(t, s, redrive.OutcomeDead, ds[1])
	settle(t, s, redrive.OutcomeRelease, ds[2])
	settle(t, s, redrive.OutcomeDone, ds[3:4]...)
	if errs := settleErrs(s, t, redrive.OutcomeRetry, ds[0]); !errors.Is(errs[0], redrive.ErrNotFound) && !errors.Is(errs[0], redrive.ErrLeaseLost) {
		t.Errorf("retried twice: %v", errs)
	}
	// A change by hand sees the lease.
	got, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{ds[5].Ref()}}, driver.Change{Action: driver.ActDrop}, 1)
	noErr(t, err)
	if !errors.Is(got[0].Err, redrive.ErrState) {
		t.Errorf("what is held was dropped: %v", got[0].Err)
	}
	settle(t, s, redrive.OutcomeDone, ds[5:]...)
	clean(t, s)
	if a := balanced(t, s); a.Ledger.Done != 8 || a.Waiting != 3 || a.Dead != 1 {
		t.Errorf("%+v", a)
	}
}

func TestBatchThatRanOut(t *testing.T) {
	for _, harm := range []string{"none", "group destroyed", "trimmed", "trimmed and group destroyed"} {
		t.Run(harm, func(t *testing.T) {
			s := open(t)
			stream := s.queue("sms").keys[keyStream]
			publish(t, s, 12)
			r := ask(10)
			r.Lease = 10 * time.Millisecond
			ds := claim(t, s, r)
			settle(t, s, redrive.OutcomeDone, ds[0])
			want := 9
			if harm != "none" && harm != "group destroyed" {
				noErr(t, s.conn.XDel(t.Context(), stream, s.queue("sms").entry(ds[1].ID)).Err())
				want--
			}
			if harm != "none" && harm != "trimmed" {
				noErr(t, s.conn.XGroupDestroy(t.Context(), stream, GroupName).Err())
			}
			other := openAt(t, redistest.Shared(t).URL(), s.conn.Config.Prefix)
			again := ask(20)
			again.Isolated, again.Instance = true, "two"
			var found []redrive.Delivery
			for deadline := time.Now().Add(time.Minute); len(found) < want && time.Now().Before(deadline); {
				found = append(found, claim(t, other, again)...)
			}
			seen := map[string]bool{}
			for _, d := range found {
				if seen[d.ID] || d.Attempt != 2 || !d.Suspect || string(d.Body) == "" {
					t.Errorf("%+v", d)
				}
				seen[d.ID] = true
			}
			if len(found) != want {
				t.Fatalf("%d recovered, want %d", len(found), want)
			}
			// The first holder has lost them all.
			for i, err := range settleErrs(s, t, redrive.OutcomeDone, ds[2:]...) {
				if !errors.Is(err, redrive.ErrLeaseLost) {
					t.Errorf("%d: %v", i, err)
				}
			}
			settle(t, other, redrive.OutcomeDone, found...)
			settle(t, s, redrive.OutcomeDone, claim(t, s, ask(2))...)
			clean(t, s)
			a, err := s.Verify(t.Context(), "sms")
			noErr(t, err)
			if lost := int64(bit(harm == "trimmed and group destroyed")); a[0].Waiting != 0 || a[0].Ledger.Done != int64(3+want) || a[0].Dead != int64(9-want)-lost || int64(len(a[0].Problems)) > 2*lost {
				t.Errorf("%+v", a[0])
			}
		})
	}
}

// TestBatchIsSettledUntilItIsClaimedAgain: a lease that ran out is the holder's still.
func TestBatchIsSettledUntilItIsClaimedAgain(t *testing.T) {
	s := open(t)
	publish(t, s, 20)
	r := ask(20)
	r.Lease = 10 * time.Millisecond
	ds := claim(t, s, r)
	for deadline := time.Now().Add(time.Minute); ; {
		counts, err := s.Counts(t.Context(), "sms")
		noErr(t, err)
		if counts[0].Suspects == 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the lease does not run out: %+v", counts[0])
		}
	}
	settle(t, s, redrive.OutcomeDone, ds[:10]...)
	if err := driver.FirstError(s.Extend(t.Context(), []redrive.Receipt{ds[10].Receipt}, time.Minute)); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Errorf("extended after its end: %v", err)
	}
	settle(t, s, redrive.OutcomeRetry, ds[10])
	r.Isolated, r.Max, r.Lease = true, 4, time.Minute
	taken := claim(t, s, r)
	if len(taken) != 4 {
		t.Fatalf("%d taken", len(taken))
	}
	lost := 0
	for _, err := range settleErrs(s, t, redrive.OutcomeDone, ds[11:]...) {
		if errors.Is(err, redrive.ErrLeaseLost) {
			lost++
		} else {
			noErr(t, err)
		}
	}
	if lost != 4 {
		t.Errorf("%d settlements refused, want 4", lost)
	}
	settle(t, s, redrive.OutcomeDone, taken...)
	clean(t, s)
	if a := balanced(t, s); a.Ledger.Done != 19 || a.Waiting != 1 {
		t.Errorf("%+v", a)
	}
}

func TestBatchWhoseEntriesWereTrimmed(t *testing.T) {
	s := open(t)
	publish(t, s, 10)
	ds := claim(t, s, ask(10))
	noErr(t, s.conn.XTrimMaxLen(t.Context(), s.queue("sms").keys[keyStream], 2).Err())
	// One with a lease of its own makes the script look at each.
	noErr(t, driver.FirstError(s.Extend(t.Context(), []redrive.Receipt{ds[0].Receipt}, time.Minute)))
	settle(t, s, redrive.OutcomeDone, ds[:5]...)
	settle(t, s, redrive.OutcomeDone, ds[5:]...)
	clean(t, s)
}

func TestBatchOfAGroupThatIsGone(t *testing.T) {
	s := open(t)
	publish(t, s, 10)
	ds := claim(t, s, ask(10))
	noErr(t, s.conn.XGroupDestroy(t.Context(), s.queue("sms").keys[keyStream], GroupName).Err())
	settle(t, s, redrive.OutcomeDone, ds[:4]...)
	errs := settleErrs(s, t, redrive.OutcomeDone, ds[3:]...)
	if !errors.Is(errs[0], redrive.ErrNotFound) || driver.FirstError(errs[1:]) != nil {
		t.Errorf("%v", errs)
	}
	clean(t, s)
	balanced(t, s)
}
