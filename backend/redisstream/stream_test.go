package redisstream

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ask(n int) driver.ClaimRequest {
	return driver.ClaimRequest{Queue: "sms", Max: n, Lease: time.Minute, Instance: "one"}
}

func claim(t testing.TB, s *Store, r driver.ClaimRequest) []redrive.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), r)
	noErr(t, err)
	return ds
}

func publish(t testing.TB, s *Store, n int) []redrive.Message {
	t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", Kind: "k", Body: fmt.Appendf(nil, "body %d", i)}
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	return msgs
}

func settle(t testing.TB, s *Store, o redrive.Outcome, ds ...redrive.Delivery) {
	t.Helper()
	list := make([]driver.Settlement, len(ds))
	for i := range ds {
		list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: o}
		if o == redrive.OutcomeDead {
			list[i].Reason = redrive.ReasonPermanent
			list[i].Failure = &redrive.Failure{At: time.Now(), Attempt: ds[i].Attempt, Types: []string{"test.Error"}, Message: "it broke", Signature: "sig"}
		}
	}
	noErr(t, driver.FirstError(s.Settle(t.Context(), list)))
}

// balanced verifies the ledger and returns the audit of the queue.
func balanced(t testing.TB, s *Store) driver.Audit {
	t.Helper()
	audits, err := s.Verify(t.Context(), "sms")
	noErr(t, err)
	if a := audits[0]; len(a.Problems) > 0 || a.Imbalance() != 0 {
		t.Errorf("imbalance %d, problems %q, ledger %+v", a.Imbalance(), a.Problems, a.Ledger)
	}
	return audits[0]
}

func TestIdsLeadBackToTheirEntries(t *testing.T) {
	s := open(t)
	msgs := publish(t, s, 5000) // thousands within one millisecond
	seen := map[string]bool{}
	for i := range msgs {
		if id := msgs[i].ID; seen[id] || len(id) != 36 || id[14] != '7' || driver.CheckID(id) != nil {
			t.Fatalf("id %q", id)
		}
		seen[msgs[i].ID] = true
	}
	got, err := s.Get(t.Context(), []redrive.Ref{msgs[4321].Ref(), {Queue: "sms", ID: redrive.NewID()}})
	noErr(t, err)
	if got[0] == nil || string(got[0].Body) != "body 4321" || got[1] != nil {
		t.Fatalf("%+v", got)
	}
	q := s.queue("sms")
	for _, entry := range []string{"1700000000000-0", "1-4095", "1700000000000-4096", "281474976710655-67108863"} {
		if back := q.entry(q.id(entry)); back != entry {
			t.Errorf("%s leads to %s", entry, back)
		}
	}
}

func TestForeignProducers(t *testing.T) {
	s := open(t)
	stream := s.queue("sms").keys[keyStream]
	add := func(values ...any) string {
		t.Helper()
		id, err := s.conn.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Result()
		noErr(t, err)
		return id
	}
	first := add("anything", "only value")
	add("a", "1", "body", "text", "a", "2")
	add("a", "1", "b", "\xff")
	add("redrive", "garbage")
	add("bad\x00name", "x", "other", "y")
	if a := balanced(t, s); a.Waiting != 5 || a.Ledger.Published != 5 {
		t.Fatalf("%+v", a)
	}
	ds := claim(t, s, ask(10))
	if len(ds) != 3 {
		t.Fatalf("%d deliveries", len(ds))
	}
	if d := ds[0]; string(d.Body) != "only value" || s.queue("sms").entry(d.ID) != first || len(d.Headers) != 0 {
		t.Errorf("one field: %+v", d.Message)
	}
	if d := ds[1]; string(d.Body) != "text" || len(d.Headers) != 2 || string(d.Headers[1].Value) != "2" || d.Headers[1].Name != "a" {
		t.Errorf("with a body: %+v", d.Message)
	}
	if d := ds[2]; len(d.Body) != 0 || len(d.Headers) != 2 || string(d.Headers[1].Value) != "\xff" {
		t.Errorf("without a body: %+v", d.Message)
	}
	balanced(t, s)
	settle(t, s, redrive.OutcomeDone, ds[0])
	settle(t, s, redrive.OutcomeRetry, ds[1])
	settle(t, s, redrive.OutcomeDead, ds[2])
	page, err := s.Find(t.Context(), redrive.Query{Queue: "sms", Reason: redrive.ReasonUndecodable, Bodies: true})
	noErr(t, err)
	if len(page.Entries) != 2 || !strings.Contains(string(page.Entries[0].Body), "redrive=garbage") {
		t.Errorf("undecodable: %+v", page.Entries)
	}
	if a := balanced(t, s); a.Waiting != 1 || a.Dead != 3 {
		t.Errorf("%+v", a)
	}
	r := ask(1)
	r.Lane = redrive.LaneRetry
	if d := claim(t, s, r); len(d) != 1 || d[0].ID != ds[1].ID || string(d[0].Body) != "text" || len(d[0].Headers) != 2 {
		t.Errorf("retried: %+v", d)
	}
}

func TestForeignEntriesWakeWhoWaits(t *testing.T) {
	s := open(t)
	watch := []driver.Watch{{Queue: "sms"}}
	learn := func() driver.Event {
		t.Helper()
		events, err := s.Wait(t.Context(), watch)
		noErr(t, err)
		watch[0].Since = events[0].Version
		return events[0]
	}
	learn()
	for range 3 {
		s.conn.XAdd(t.Context(), &redis.XAddArgs{Stream: s.queue("sms").keys[keyStream], Values: []string{"f", "v"}})
		for e := learn(); e.NextDueIn != 0; {
			e = learn()
		}
		settle(t, s, redrive.OutcomeDone, claim(t, s, ask(10))...)
	}
}

func TestDeadLetterStreamIsReadable(t *testing.T) {
	s := open(t)
	m := publish(t, s, 2)
	settle(t, s, redrive.OutcomeDead, claim(t, s, ask(2))...)
	dlq := s.queue("sms").keys[keyDead]
	if !strings.HasSuffix(dlq, ":sms:dlq") {
		t.Fatal(dlq)
	}
	list, err := s.conn.XRange(t.Context(), dlq, "-", "+").Result()
	noErr(t, err)
	if len(list) != 2 || list[0].Values["id"] != m[0].ID || list[0].Values["body"] != "body 0" || list[0].Values["error"] != "it broke" || list[0].Values["reason"] != "permanent" {
		t.Fatalf("%+v", list)
	}
	// A reader with a group of its own, who deletes what it read, takes nothing away.
	noErr(t, s.conn.XGroupCreate(t.Context(), dlq, "processor", "0").Err())
	noErr(t, s.conn.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "processor", Consumer: "c", Streams: []string{dlq, ">"}}).Err())
	noErr(t, s.conn.XDel(t.Context(), dlq, list[0].ID).Err())
	_, err = s.Update(t.Context(), driver.Selection{Query: &redrive.Query{Queue: "sms", State: redrive.StateDead}}, driver.Change{Action: driver.ActRedrive}, 10)
	noErr(t, err)
	if a := balanced(t, s); a.Waiting != 2 || a.Dead != 0 || s.conn.XLen(t.Context(), dlq).Val() != 0 {
		t.Fatalf("%+v", a)
	}
}

func TestTrimmedEntries(t *testing.T) {
	s := open(t)
	publish(t, s, 4)
	ds := claim(t, s, ask(2))
	stream := s.queue("sms").keys[keyStream]
	noErr(t, s.conn.XTrimMaxLen(t.Context(), stream, 0).Err())
	// The claimed ones are settled as if nothing had happened; what was lost is said.
	settle(t, s, redrive.OutcomeDone, ds[0])
	err := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}}))
	noErr(t, err)
	got, err := s.Get(t.Context(), []redrive.Ref{ds[1].Ref()})
	noErr(t, err)
	if e := got[0]; e == nil || e.State != redrive.StateDead || string(e.Body) != "body 1" {
		t.Fatalf("the holder's copy is kept: %+v", e)
	}
	audits, err := s.Verify(t.Context(), "sms")
	noErr(t, err)
	if !strings.Contains(strings.Join(audits[0].Problems, ";"), "2 entries of the stream were deleted") {
		t.Fatalf("%q", audits[0].Problems)
	}
}

func TestTrimmedUnderALeaseOfTheDead(t *testing.T) {
	s := open(t)
	publish(t, s, 1)
	r := ask(1)
	r.Lease = 10 * time.Millisecond
	d := claim(t, s, r)[0]
	noErr(t, s.conn.XDel(t.Context(), s.queue("sms").keys[keyStream], s.queue("sms").entry(d.ID)).Err())
	other := openAt(t, redistest.Shared(t).URL(), s.conn.Config.Prefix)
	r.Isolated = true
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if list := claim(t, other, r); len(list) != 0 {
			t.Fatalf("claimed: %+v", list)
		}
		if got, err := other.Get(t.Context(), []redrive.Ref{d.Ref()}); err == nil && got[0] != nil && got[0].State == redrive.StateDead {
			if f := got[0].History.Latest(); got[0].Reason != redrive.ReasonUndecodable || !strings.Contains(f.Message, "trimmed") {
				t.Fatalf("%+v", got[0])
			}
			balanced(t, s)
			return
		}
	}
	t.Fatal("what was trimmed did not become a dead letter")
}

func TestTheGroupIsHealed(t *testing.T) {
	s := open(t)
	stream := s.queue("sms").keys[keyStream]
	publish(t, s, 6)
	held := claim(t, s, ask(2))
	total := len(held)
	for name, harm := range map[string]func() error{
		"destroyed":     func() error { return s.conn.XGroupDestroy(t.Context(), stream, GroupName).Err() },
		"moved to end":  func() error { return s.conn.XGroupSetID(t.Context(), stream, GroupName, "$").Err() },
		"moved to zero": func() error { return s.conn.XGroupSetID(t.Context(), stream, GroupName, "0").Err() },
		"scripts gone":  func() error { return s.conn.ScriptFlush(t.Context()).Err() },
	} {
		noErr(t, harm())
		ds := claim(t, s, ask(1))
		if len(ds) != 1 {
			t.Fatalf("%s: %d deliveries", name, len(ds))
		}
		held = append(held, ds...)
		total++
	}
	seen := map[string]bool{}
	for _, d := range held {
		if seen[d.ID] || d.Attempt != 1 {
			t.Errorf("%s was claimed twice, attempt %d", d.ID, d.Attempt)
		}
		seen[d.ID] = true
	}
	settle(t, s, redrive.OutcomeDone, held...)
	if a := balanced(t, s); a.Waiting != int64(6-total) || a.Ledger.Done != int64(total) {
		t.Errorf("%+v", a)
	}
}

func TestConsumersAreDismissedWhenTheyHoldNothing(t *testing.T) {
	s := open(t)
	publish(t, s, 2)
	stream := s.queue("sms").keys[:1]
	one := claim(t, s, ask(1))
	r := ask(1)
	r.Instance = "two"
	claim(t, s, r)
	settle(t, s, redrive.OutcomeDone, one...)
	got, err := s.conn.Write(t.Context(), scriptConsumers, stream, 0)
	noErr(t, err)
	left, err := s.conn.XInfoConsumers(t.Context(), stream[0], GroupName).Result()
	noErr(t, err)
	if number(got) != 1 || len(left) != 1 || left[0].Name != "two" || left[0].Pending != 1 {
		t.Fatalf("removed %v, left %+v", got, left)
	}
}

func TestParallelRecoverersDeliverOnce(t *testing.T) {
	s := open(t)
	const n = 200
	publish(t, s, n)
	r := ask(n)
	r.Lease = 10 * time.Millisecond
	claim(t, s, r)
	r.Lease, r.Max, r.Isolated = time.Minute, 3, true
	<-time.After(15 * time.Millisecond)
	found := make(chan string, 2*n)
	errs := make(chan error, 4)
	for i := range 4 {
		other := openAt(t, redistest.Shared(t).URL(), s.conn.Config.Prefix)
		r := r
		r.Instance = fmt.Sprint("recoverer ", i)
		go func() {
			for {
				ds, err := other.Claim(t.Context(), r)
				if err != nil || len(ds) == 0 {
					errs <- err
					return
				}
				for _, d := range ds {
					found <- d.ID
					if d.Attempt != 2 || !d.Suspect {
						errs <- errors.New("attempt or suspicion is wrong")
					}
				}
			}
		}()
	}
	for range 4 {
		noErr(t, <-errs)
	}
	close(found)
	seen := map[string]bool{}
	for id := range found {
		if seen[id] {
			t.Errorf("%s was recovered twice", id)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d recovered", len(seen), n)
	}
}
