package sqlite

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// putDead puts n dead letters of one cause that died at a time.
func putDead(t testing.TB, s *Store, queue string, reason redrive.Reason, signature string, died time.Time, n int) {
	t.Helper()
	list := make([]redrive.Entry, n)
	for i := range list {
		list[i] = redrive.Entry{Message: message(queue, "x"), State: redrive.StateDead, Reason: reason, DiedAt: died,
			History: redrive.History{Count: 1, First: &redrive.Failure{Message: signature, Signature: signature}}}
	}
	errs, err := s.Apply(t.Context(), driver.Batch{Put: list})
	noErr(t, append(errs, err)...)
}

// steps is how many steps of SQLite's machine the readers need for what fn does.
func steps(t *testing.T, s *Store, fn func()) (n int64) {
	t.Helper()
	for range 2 { // the first time prepares statements and sets counters back
		fn()
		n = 0
		all := make([]*conn, readConns)
		for i := range all {
			if all[i] = <-s.readers; all[i] != nil {
				for _, st := range all[i].stmts {
					n += int64(sqlite3.Xsqlite3_stmt_status(all[i].tls, st.p, sqlite3.SQLITE_STMTSTATUS_VM_STEP, 1))
				}
			}
		}
		for _, c := range all {
			s.readers <- c
		}
	}
	return n
}

// What is asked by cause costs the same whatever the number of dead letters.
func TestCausesAndCountsLookAtCountersOnly(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	before := c.now().Add(-time.Hour)
	cutoff := c.now()
	putDead(t, s, "q", redrive.ReasonExhausted, "s1", c.now().Add(time.Minute), 7)
	putDead(t, s, "q", redrive.ReasonPermanent, "s1", c.now().Add(time.Minute), 3)
	putDead(t, s, "other", redrive.ReasonPermanent, "s1", before, 5)
	queries := map[string]redrive.Query{
		"all":          {State: redrive.StateDead},
		"queue":        {Queue: "q", State: redrive.StateDead},
		"queue until":  {Queue: "q", State: redrive.StateDead, Until: cutoff},
		"reason":       {Queue: "q", Reason: redrive.ReasonExhausted},
		"reason until": {Queue: "q", Reason: redrive.ReasonExhausted, Until: cutoff},
		"signature":    {Signature: "s1"},
		"sign. until":  {Signature: "s1", Until: cutoff},
		"cause":        {Queue: "q", Reason: redrive.ReasonExhausted, Signature: "s1"},
		"cause until":  {Queue: "q", Reason: redrive.ReasonExhausted, Signature: "s1", Until: cutoff},
		"nowhere":      {Queue: "none", State: redrive.StateDead},
	}
	cost := func(dead int64) map[string]int64 {
		n := map[string]int64{}
		want := map[string]int64{"all": dead + 15, "queue": dead + 10, "queue until": dead, "reason": dead + 7, "reason until": dead,
			"signature": dead/2 + 15, "sign. until": dead/2 + 5, "cause": dead/2 + 7, "cause until": dead / 2, "nowhere": 0}
		for name, q := range queries {
			n[name] = steps(t, s, func() {
				got, err := s.Count(t.Context(), q)
				noErr(t, err)
				if got.N != want[name] || !got.Complete || (got.Examined > 0) != (!q.Until.IsZero()) {
					t.Errorf("%s of %d: %+v, want %d", name, dead, got, want[name])
				}
			})
			if !q.Until.IsZero() {
				continue
			}
			n["causes of "+name] = steps(t, s, func() {
				list, complete, err := s.Causes(t.Context(), q)
				noErr(t, err)
				var sum int64
				for i := range list {
					sum += list[i].Count
				}
				if sum != want[name] || !complete {
					t.Errorf("causes of %s: %+v", name, list)
				}
			})
		}
		return n
	}
	fillUp := func(n int) {
		for ; n > 0; n -= 2000 {
			putDead(t, s, "q", redrive.ReasonExhausted, "s1", before, 1000)
			putDead(t, s, "q", redrive.ReasonExhausted, "s2", before.Add(-time.Minute), 1000)
		}
	}
	fillUp(manyDead / 10)
	few := cost(manyDead / 10)
	fillUp(manyDead - manyDead/10)
	if many := cost(manyDead); !maps.Equal(few, many) {
		t.Errorf("steps with %d dead letters: %v\nwith %d: %v", manyDead/10, few, manyDead, many)
	}
	list, complete, err := s.Causes(t.Context(), redrive.Query{Queue: "q", Limit: 2})
	noErr(t, err)
	equal(t, []any{len(list), complete, list[0].Signature, list[1].Signature, list[1].First, list[1].Last, list[1].Message},
		[]any{2, false, "s1", "s2", before.Add(-time.Minute).UTC(), before.Add(-time.Minute).UTC(), "s2"})
	equal(t, []any{list[0].First, list[0].Last}, []any{before.UTC(), c.now().Add(time.Minute).UTC()})
	newest := entry(t, s, list[0].Example)
	equal(t, newest.DiedAt, list[0].Last)
}

// Counts of states are those of the entries that Find shows.
func TestCountOfStates(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	noErr(t, s.Configure(t.Context(), "q", driver.QueueSettings{OrderByKey: true}))
	expires := c.now().Add(time.Second)
	publish(t, s, redrive.Message{Queue: "q", Key: "k"}, redrive.Message{Queue: "q", Key: "k", ExpiresAt: expires}, redrive.Message{Queue: "q", Key: "k"},
		message("q", ""), message("q", ""), message("other", ""))
	c.advance(time.Minute)
	equal(t, len(claimWith(t, s, driver.ClaimRequest{Queue: "q", Expired: true})), 1) // blocked, and in flight
	claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1})
	d := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1})[0]
	settle(t, s, d, redrive.OutcomeDead)
	claimWith(t, s, driver.ClaimRequest{Queue: "q", Dead: true}) // which stays dead
	for _, queue := range []string{"", "q", "none"} {
		for state := range redrive.StateDead + 1 {
			q := redrive.Query{Queue: queue, State: state}
			n, err := s.Count(t.Context(), q)
			noErr(t, err)
			page, err := s.Find(t.Context(), q)
			noErr(t, err)
			if n.N != int64(len(page.Entries)) || n.Examined != 0 || !n.Complete {
				t.Errorf("%q %s: %+v, want %d", queue, state, n, len(page.Entries))
			}
		}
	}
	n, err := s.Count(t.Context(), redrive.Query{Queue: "q", Key: "k"}) // which no counter knows
	noErr(t, err)
	equal(t, n, driver.Count{N: 3, Complete: true, Examined: 3})
}

func deaths(t *testing.T, s *Store, q redrive.Query) string {
	t.Helper()
	list, err := s.Deaths(t.Context(), q)
	noErr(t, err)
	now, err := s.Now(t.Context())
	noErr(t, err)
	var text strings.Builder
	for _, d := range list {
		fmt.Fprintf(&text, "%s/%s/%s", d.Queue, d.Reason, d.Signature)
		for _, b := range d.Buckets {
			fmt.Fprintf(&text, " %s ago %d in %s", now.Sub(b.Start).Round(time.Second), b.Count, b.Width)
		}
		text.WriteString("\n")
	}
	return text.String()
}

func TestDeathsAreAddedUpByTime(t *testing.T) {
	c := newClock() // 03:04:05
	s := open(t, t.TempDir(), WithClock(c.now))
	for _, age := range []time.Duration{0, time.Minute, 2 * time.Hour, 5 * 24 * time.Hour, 40 * 24 * time.Hour} {
		putDead(t, s, "q", redrive.ReasonExhausted, "s", c.now().Add(-age), 2)
	}
	q := redrive.Query{Queue: "q", Reason: redrive.ReasonExhausted, Signature: "s"}
	equal(t, deaths(t, s, q), "q/exhausted/s 123h4m5s ago 2 in 24h0m0s 2h4m5s ago 2 in 1h0m0s 1m5s ago 2 in 1m0s 5s ago 2 in 1m0s\n")
	publish(t, s, message("q", "y"), message("other", "z"))
	for _, queue := range []string{"q", "other"} {
		settle(t, s, claimAll(t, s, queue)[0], redrive.OutcomeDead)
	}
	equal(t, deaths(t, s, redrive.Query{Reason: redrive.ReasonPermanent}), "other/permanent/ 5s ago 1 in 1m0s\nq/permanent/ 5s ago 1 in 1m0s\n")
	equal(t, deaths(t, s, redrive.Query{Signature: "s", Since: c.now().Add(-time.Minute)}), "q/exhausted/s 1m5s ago 2 in 1m0s 5s ago 2 in 1m0s\n")

	for {
		updated, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{State: redrive.StateDead}}, driver.Change{Action: driver.ActRedrive}, 100)
		noErr(t, err)
		if len(updated) == 0 {
			break
		}
	}
	verify(t, s)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{59 * time.Minute, "q/exhausted/s 124h3m5s ago 2 in 24h0m0s 3h3m5s ago 2 in 1h0m0s 1h3m5s ago 2 in 1h0m0s 59m5s ago 2 in 1m0s\n"},
		{time.Minute, "q/exhausted/s 124h4m5s ago 2 in 24h0m0s 3h4m5s ago 2 in 1h0m0s 1h4m5s ago 4 in 1h0m0s\n"},
		{3 * 24 * time.Hour, "q/exhausted/s 196h4m5s ago 2 in 24h0m0s 76h4m5s ago 6 in 24h0m0s\n"},
		{27 * 24 * time.Hour, ""},
	} {
		c.advance(step.after)
		_, err := s.Trim(t.Context(), driver.Retention{}, 1000)
		noErr(t, err)
		equal(t, deaths(t, s, q), step.want)
		verify(t, s)
	}
}

func TestDeathsOfTooManyCausesShareASeries(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now), func(s *Store) { s.maxSeries = 2 })
	for i := range 4 {
		putDead(t, s, "q", redrive.ReasonExhausted, fmt.Sprint("s", i), c.now(), i+1)
	}
	putDead(t, s, "q", redrive.ReasonExhausted, "s1", c.now(), 1)
	equal(t, deaths(t, s, redrive.Query{}), "q//other 5s ago 7 in 1m0s\nq/exhausted/s0 5s ago 1 in 1m0s\nq/exhausted/s1 5s ago 3 in 1m0s\n")
	equal(t, deaths(t, s, redrive.Query{Queue: "q", Signature: driver.OtherCauses}), "q//other 5s ago 7 in 1m0s\n")
	verify(t, s)
	c.advance(31 * 24 * time.Hour) // which makes room for two others
	_, err := s.Trim(t.Context(), driver.Retention{}, 1000)
	noErr(t, err)
	putDead(t, s, "q", redrive.ReasonExhausted, "s3", c.now(), 1)
	equal(t, deaths(t, s, redrive.Query{}), "q/exhausted/s3 5s ago 1 in 1m0s\n")
	verify(t, s)
}

// A counter that does not fit is reported by cause.
func TestVerifyTellsWhichCauseIsCountedWrongly(t *testing.T) {
	s := open(t, t.TempDir())
	putDead(t, s, "q", redrive.ReasonExhausted, "s", time.Time{}, 3)
	noErr(t, s.do(t.Context(), 1, func(tx *tx) error { return tx.write("UPDATE cause SET dead = 2").run() }))
	audits, err := s.Verify(t.Context(), "q")
	noErr(t, err)
	equal(t, audits[0].Problems, []string{`1 causes are counted wrongly, for instance exhausted "s" with 2 counted, 3 found`})
}

// By plan and by edit, an index leads to the messages.
func TestPlansAndEditsAreFoundByAnIndex(t *testing.T) {
	s := open(t, t.TempDir())
	putDead(t, s, "q", redrive.ReasonExhausted, "s", time.Time{}, 3)
	page, err := s.Find(t.Context(), redrive.Query{Queue: "q"})
	noErr(t, err)
	for i, ch := range []driver.Change{{Action: driver.ActRedrive, Plan: "p"}, {Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("y")}}} {
		_, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{page.Entries[i].Ref()}}, ch, 1)
		noErr(t, err)
	}
	find := func(q redrive.Query) (n int) {
		page, err := s.Find(t.Context(), q)
		noErr(t, err)
		return len(page.Entries)
	}
	look := func() []int64 {
		return []int64{
			steps(t, s, func() { equal(t, find(redrive.Query{Plan: "p"}), 1) }),
			steps(t, s, func() { equal(t, find(redrive.Query{State: redrive.StateDead, Plan: "p"}), 0) }),
			steps(t, s, func() { equal(t, find(redrive.Query{State: redrive.StateDead, Edited: true}), 1) }),
			steps(t, s, func() { equal(t, find(redrive.Query{State: redrive.StateDead, Edited: true, Bodies: true}), 1) }),
		}
	}
	few := look()
	putDead(t, s, "q", redrive.ReasonExhausted, "s", time.Time{}, 1000)
	equal(t, look(), few)
	equal(t, find(redrive.Query{Edited: true}), 1)
	equal(t, find(redrive.Query{State: redrive.StateWaiting, Edited: true}), 0)
	list, complete, err := s.Causes(t.Context(), redrive.Query{Edited: true})
	noErr(t, err)
	equal(t, []any{len(list), complete, list[0].Count}, []any{1, true, 1})
}
