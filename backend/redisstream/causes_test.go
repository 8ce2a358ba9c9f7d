package redisstream

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/internal/redistest"
)

// bury puts n dead letters, with a signature that fill sets.
func bury(t testing.TB, s *Store, n int, fill func(i int, f *redrive.Failure)) {
	t.Helper()
	for base := 0; base < n; base += 500 {
		put := make([]redrive.Entry, min(500, n-base))
		for i := range put {
			f := &redrive.Failure{Types: []string{"t"}, Message: "it failed", At: time.Now(), Signature: "one"}
			if fill != nil {
				fill(base+i, f)
			}
			put[i] = redrive.Entry{Message: redrive.Message{Queue: "sms", Body: []byte("b")}, State: redrive.StateDead, Reason: redrive.ReasonPermanent}
			put[i].History.Record(f, true)
		}
		errs, err := s.Apply(t.Context(), driver.Batch{Put: put})
		noErr(t, err)
		noErr(t, driver.FirstError(errs))
	}
}

// commands is how many commands the server ran for f.
func commands(t *testing.T, s *Store, f func()) (n int64) {
	t.Helper()
	noErr(t, s.conn.ConfigResetStat(t.Context()).Err())
	f()
	for line := range strings.Lines(s.conn.Info(t.Context(), "commandstats").Val()) {
		if _, calls, ok := strings.Cut(line, ":calls="); ok && !strings.Contains(line, "config|") {
			calls, _, _ = strings.Cut(calls, ",")
			n += number(calls)
		}
	}
	return n
}

// TestTheCostOfManyDeadLetters counts the commands of the server, each of which takes a time
// that grows with the logarithm of what there is: what a person asks is exact, and costs no more of many.
func TestTheCostOfManyDeadLetters(t *testing.T) {
	const step = 10_000
	top := int64(deadtest.ManyDead(t, 10*step)) / step * step

	s := openAt(t, redistest.Start(t, redistest.Options{}).URL(), "causes")
	signature := func(i int, f *redrive.Failure) { f.Signature = "s" + strconv.Itoa(i%10) }
	look := func(n int64) int64 {
		return commands(t, s, func() {
			list, all, err := s.Causes(t.Context(), redrive.Query{Queue: "sms"})
			if noErr(t, err); len(list) != 10 || !all || list[9].Count != n/10 {
				t.Errorf("%v, %+v", all, list)
			}
			q := redrive.Query{Queue: "sms", State: redrive.StateDead, Until: list[3].Last}
			for _, q.Reason = range []redrive.Reason{0, redrive.ReasonPermanent} {
				for _, sig := range []string{"", "s4"} {
					q.Signature = sig
					want := n
					if sig != "" {
						want = n / 10
					}
					got, err := s.Count(t.Context(), q)
					if noErr(t, err); got.Examined != 0 || !got.Complete || got.N > want || got.N < want-10 {
						t.Errorf("%+v: %+v, want up to %d", q, got, want)
					}
				}
			}
			page, err := s.Find(t.Context(), redrive.Query{Queue: "sms", Reason: redrive.ReasonPermanent, Signature: "s4", Limit: 20})
			if noErr(t, err); len(page.Entries) != 20 || page.Next == "" {
				t.Errorf("%d found, then %q", len(page.Entries), page.Next)
			}
		})
	}
	bury(t, s, step, signature)
	look(step) // the scripts are known from here on
	few := look(step)
	began := time.Now()
	bury(t, s, int(top-step), signature)
	t.Logf("%d dead letters written in %s", top-step, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	many := look(top)
	t.Logf("%d commands with %d dead letters, %d with %d, in %s", few, step, many, top, time.Since(began).Round(10*time.Microsecond))
	if many != few {
		t.Errorf("%d commands with %d dead letters, %d with %d", many, top, few, step)
	}
	page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: "nowhere"})
	if noErr(t, err); page.Complete || page.Examined != redrive.Examined { // there is no index
		t.Errorf("a search of texts: %d examined, complete %v", page.Examined, page.Complete)
	}
}

// TestCausesAgreeWithAScan compares what counters answer with what a scan finds.
func TestCausesAgreeWithAScan(t *testing.T) {
	for name, open := range map[string]func() *Store{
		"one": func() *Store { return open(t) }, "partitions": func() *Store { return openParts(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			rng := rand.New(rand.NewPCG(1, 2))
			for round := range 60 {
				disturb(t, s, rng)
				agrees(t, s, rng, round)
			}
			for _, a := range balancedAll(t, s) {
				if len(a.Problems) > 0 {
					t.Errorf("%s: %q", a.Queue, a.Problems)
				}
			}
		})
	}
}

func balancedAll(t *testing.T, s *Store) []driver.Audit {
	t.Helper()
	a, err := s.Verify(t.Context())
	noErr(t, err)
	return a
}

// disturb changes some dead letters, and makes others.
func disturb(t *testing.T, s *Store, rng *rand.Rand) {
	t.Helper()
	ctx, reasons := t.Context(), redrive.Reasons()
	var put []redrive.Entry
	for range rng.IntN(4) {
		e := redrive.Entry{Message: redrive.Message{Queue: []string{"sms", "mail"}[rng.IntN(2)], Body: []byte("b")}, State: redrive.StateDead, Reason: reasons[rng.IntN(len(reasons))]}
		if rng.IntN(4) > 0 {
			e.History.Record(&redrive.Failure{Signature: strings.Repeat("s\x01", rng.IntN(3))}, true)
		}
		if rng.IntN(3) == 0 {
			e.DiedAt = time.Now().Add(-time.Duration(rng.IntN(1000)) * time.Minute)
		}
		if rng.IntN(3) == 0 {
			e.Key = strconv.Itoa(rng.IntN(9))
		}
		put = append(put, e)
	}
	msgs := []redrive.Message{{Queue: "sms", Body: []byte("m")}, {Queue: "sms", ID: fmt.Sprint(rng.Uint64())}}
	_, err := s.Apply(ctx, driver.Batch{Put: put, Publish: msgs})
	noErr(t, err)
	end := func(r driver.ClaimRequest, outcomes ...redrive.Outcome) {
		for _, d := range claim(t, s, r) {
			st := driver.Settlement{Receipt: d.Receipt, Outcome: outcomes[rng.IntN(len(outcomes))], Reason: reasons[rng.IntN(len(reasons))],
				Failure: &redrive.Failure{Signature: strconv.Itoa(rng.IntN(3)), Message: "m"}}
			noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{st})))
		}
	}
	end(ask(2), redrive.OutcomeDead, redrive.OutcomeRetry, redrive.OutcomeDone)
	r := ask(2)
	r.Dead = true
	end(r, redrive.OutcomeDead, redrive.OutcomeRetry, redrive.OutcomeDone, redrive.OutcomeRelease, redrive.OutcomeRepeat, redrive.OutcomeDrop)
	key := strconv.Itoa(rng.IntN(9))
	for _, c := range []driver.Change{
		{Action: driver.ActRedrive, To: "mail"}, {Action: driver.ActRedrive, NewID: true, ConfirmCorrupt: true}, {Action: driver.ActDrop}, {Action: driver.ActArchive}, {Action: driver.ActKill},
		{Action: driver.ActEdit, Edit: &redrive.Edit{Key: &key}},
	} {
		if rng.IntN(4) > 0 {
			continue
		}
		q := redrive.Query{Queue: "sms", State: redrive.StateDead, Reason: reasons[rng.IntN(len(reasons))]}
		if c.Action == driver.ActKill {
			q.State, q.Reason = redrive.StateWaiting, 0
		}
		_, err := s.Update(ctx, driver.Selection{Query: &q}, c, 2)
		noErr(t, err)
	}
	if rng.IntN(8) == 0 {
		_, err := s.Trim(ctx, driver.Retention{DeadKeep: 20, Archived: true}, 3)
		noErr(t, err)
	}
}

// TestDeathsAreFolded lets the deaths of a cause grow old in the store.
func TestDeathsAreFolded(t *testing.T) {
	s := open(t)
	ctx, q := t.Context(), s.queue("sms")
	age := func(by uint32) { // of all buckets, in minutes
		for cause, packed := range s.conn.HGetAll(ctx, q.keys[keyDeaths]).Val() {
			raw := []byte(packed)
			for at := 0; at < len(raw); at += bucketLength {
				binary.LittleEndian.PutUint32(raw[at+1:], binary.LittleEndian.Uint32(raw[at+1:])-by)
			}
			noErr(t, s.conn.HSet(ctx, q.keys[keyDeaths], cause, raw).Err())
		}
		noErr(t, s.conn.HDel(ctx, q.keys[keyCounters], "folded").Err()) // another minute
	}
	widths := func() (sums [3]int64) {
		_, err := s.Trim(ctx, driver.Retention{}, 100)
		noErr(t, err)
		all, err := s.Deaths(ctx, redrive.Query{})
		noErr(t, err)
		for _, d := range all {
			for i, b := range d.Buckets {
				if b.Start.UnixNano()%int64(b.Width) != 0 || i > 0 && b.Start.Before(d.Buckets[i-1].Start) {
					t.Errorf("bucket %d of %+v", i, d)
				}
				sums[slices.Index(bucketWidths[1:], b.Width)] += b.Count
			}
		}
		return sums
	}
	bury(t, s, 1000, nil)
	bury(t, s, 100, func(i int, f *redrive.Failure) { f.Signature = "s" + strconv.Itoa(i) })
	for _, tc := range []struct {
		by   uint32
		want [3]int64
	}{
		{0, [3]int64{1100, 0, 0}},
		{50, [3]int64{1100, 0, 0}},
		{60, [3]int64{0, 1100, 0}},
		{48 * 60, [3]int64{0, 1100, 0}},
		{24 * 60, [3]int64{0, 0, 1100}},
		{20 * 24 * 60, [3]int64{0, 0, 1100}},
	} {
		age(tc.by)
		if got := widths(); got != tc.want {
			t.Errorf("another %d minutes old: %v, want %v", tc.by, got, tc.want)
		}
	}
	bury(t, s, 3, nil)
	age(30 * 24 * 60)
	if got := widths(); got != [3]int64{} || s.conn.Exists(ctx, q.keys[keyDeaths]).Val() != 0 {
		t.Errorf("after all that: %v", got)
	}
}

// agrees asks by counters and by a scan.
func agrees(t *testing.T, s *Store, rng *rand.Rand, round int) {
	t.Helper()
	now, err := s.Now(t.Context())
	noErr(t, err)
	for _, q := range []redrive.Query{
		{State: redrive.StateDead}, {Queue: "sms"}, {Queue: "sms", State: redrive.StateWaiting}, {State: redrive.StateLeased}, {Queue: "mail", State: redrive.StateDead},
		{Reason: redrive.ReasonPermanent}, {Signature: "1"}, {Queue: "sms", Reason: redrive.ReasonLoop, Signature: "s\x01"},
		{Signature: "s\x01s\x01", State: redrive.StateDead},
		{State: redrive.StateDead, Until: now.Add(-time.Duration(rng.IntN(1000)) * time.Minute)},
		{Reason: redrive.ReasonPermanent, Since: now.Add(-time.Duration(rng.IntN(1000)) * time.Minute)},
		{Signature: "0", Since: now.Add(-time.Hour), Until: now.Add(-time.Duration(rng.IntN(1000)) * time.Microsecond)},
	} {
		found, err := driver.CountFound(t.Context(), s.Find, q)
		noErr(t, err)
		if n, err := s.Count(t.Context(), q); err != nil || n.N != found.N || !n.Complete || n.Examined != 0 {
			t.Fatalf("round %d, %+v: counted %+v, %v, found %d", round, q, n, err, found.N)
		}
		q.State, q.Limit = redrive.StateDead, 1000
		want, _, err := s.groupCauses(t.Context(), q)
		noErr(t, err)
		got, all, err := s.Causes(t.Context(), q)
		if err != nil || !all || len(want)+len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d, %+v: %v, causes\n%+v\n%+v", round, q, err, got, want)
		}
	}
}
