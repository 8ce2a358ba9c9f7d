package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// clock is a clock that tests move.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ns.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// open opens a store that must not fail in a fatal way.
func open(t testing.TB, dir string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(dir, append([]Option{OnFatal(func(err error) { t.Errorf("fatal: %v", err) })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// abandon ends the store as a death of the process would: nothing is finished.
func (s *Store) abandon() {
	s.shut(func() {
		s.lineMu.Lock()
		s.stopped = redrive.ErrClosed
		s.lineMu.Unlock()
	})
}

func noErr(t testing.TB, errs ...error) {
	t.Helper()
	if err := driver.FirstError(errs); err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, s *Store, msgs ...redrive.Message) []redrive.Message {
	t.Helper()
	noErr(t, s.Publish(t.Context(), msgs)...)
	return msgs
}

func message(queue, body string) redrive.Message {
	return redrive.Message{Queue: queue, Body: []byte(body)}
}

func claimWith(t testing.TB, s *Store, req driver.ClaimRequest) []redrive.Delivery {
	t.Helper()
	if req.Max == 0 {
		req.Max = 100
	}
	if req.Lease == 0 {
		req.Lease = time.Minute
	}
	req.Instance = "test"
	d, err := s.Claim(t.Context(), req)
	noErr(t, err)
	return d
}

func claimAll(t testing.TB, s *Store, queue string) []redrive.Delivery {
	t.Helper()
	return claimWith(t, s, driver.ClaimRequest{Queue: queue})
}

func settle(t testing.TB, s *Store, d redrive.Delivery, o redrive.Outcome) {
	t.Helper()
	st := driver.Settlement{Receipt: d.Receipt, Outcome: o}
	if o == redrive.OutcomeDead || o == redrive.OutcomeDrop {
		st.Reason = redrive.ReasonPermanent
	}
	noErr(t, s.Settle(t.Context(), []driver.Settlement{st})...)
}

func bodies(ds []redrive.Delivery) (b []string) {
	for i := range ds {
		b = append(b, string(ds[i].Body))
	}
	return b
}

func equal[T any](t testing.TB, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("got  %s\nwant %s", g, w)
	}
}

// verify fails the test if ledger and scan differ.
func verify(t testing.TB, s *Store) {
	t.Helper()
	audits, err := s.Verify(context.Background())
	noErr(t, err)
	for i := range audits {
		if len(audits[i].Problems) > 0 {
			t.Fatalf("queue %s: %v", audits[i].Queue, audits[i].Problems)
		}
	}
}

func TestPublishClaimSettle(t *testing.T) {
	s := open(t, t.TempDir())
	var h redrive.Headers
	h.Add("A", "1")
	h.Add("A", "2")
	h.Add("empty", "")
	in := publish(t, s, redrive.Message{Queue: "q", Kind: "k", Headers: h, Body: []byte("a\x00b\xff"), ReplyTo: "r", ExpiresAt: time.Date(2099, 1, 1, 0, 0, 0, 5, time.UTC)},
		message("q", ""))
	ds := claimAll(t, s, "q")
	equal(t, len(ds), 2)
	d := ds[0]
	equal(t, d.Headers, h)
	equal(t, d.Body, in[0].Body)
	equal(t, []any{d.ID, d.Kind, d.ReplyTo, d.ExpiresAt, d.Attempt}, []any{in[0].ID, "k", "r", in[0].ExpiresAt, 1})
	settle(t, s, d, redrive.OutcomeDone)
	settle(t, s, ds[1], redrive.OutcomeRetry)
	if err := s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})[0]; !errors.Is(err, redrive.ErrNotFound) {
		t.Fatal(err)
	}
	equal(t, len(claimAll(t, s, "q")), 0)
	again := claimWith(t, s, driver.ClaimRequest{Queue: "q", Lane: redrive.LaneRetry})
	equal(t, again[0].Attempt, 2)
	settle(t, s, again[0], redrive.OutcomeDead)
	verify(t, s)
	c, err := s.Counts(t.Context(), "q")
	noErr(t, err)
	equal(t, c[0].AllDead(), 1)
	equal(t, c[0].Ledger.Done, 1)
}

func TestConcurrentPublishers(t *testing.T) {
	s := open(t, t.TempDir())
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 {
				noErr(t, s.Publish(context.Background(), []redrive.Message{message("q", "x")})...)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for ds := claimAll(t, s, "q"); len(ds) > 0; ds = claimAll(t, s, "q") {
		for _, d := range ds {
			if seen[d.ID] {
				t.Fatal("claimed twice")
			}
			seen[d.ID] = true
			settle(t, s, d, redrive.OutcomeDone)
		}
	}
	equal(t, len(seen), 640)
	verify(t, s)
}
