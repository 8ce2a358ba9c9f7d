package redisstream

import (
	"strconv"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// TestALargeRangeIsDeletedInPages: no script of a deletion is larger than a page, all of
// the range goes and nothing else.
func TestALargeRangeIsDeletedInPages(t *testing.T) {
	s := open(t)
	const n = 1000
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", Key: "session", ID: strconv.Itoa(i)}
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	steps := func() int64 {
		for _, x := range s.Stats().Statements {
			if x.Name == "step" {
				return x.Count
			}
		}
		return 0
	}
	// Dead letters keep their place in the key's order, and are passed over.
	settle(t, s, redrive.OutcomeDead, claim(t, s, ask(300))...)
	for _, tc := range []struct {
		upTo  string
		left  int64
		steps int64
	}{{"899", 100, 3}, {"950", 49, 1}, {"999", 0, 1}} {
		before := steps()
		_, err := s.Apply(t.Context(), driver.Batch{Delete: []driver.Range{{Queue: "sms", Key: "session", UpTo: tc.upTo}}})
		noErr(t, err)
		if a := balanced(t, s); a.Waiting != tc.left || a.Ledger.Done != n-300-tc.left || a.Dead != 300 || steps()-before != tc.steps {
			t.Errorf("up to %s: %d left, %d done, in %d steps", tc.upTo, a.Waiting, a.Ledger.Done, steps()-before)
		}
	}
}

// TestAPageGoesOnBehindOneThatIsGone: of dead letters that died in one step the last one
// of a page is redriven before the next page is asked for. Ids of both cases tell whether
// places are compared by bytes.
func TestAPageGoesOnBehindOneThatIsGone(t *testing.T) {
	s := open(t)
	const n = 301
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", ID: []string{"a", "B", "_c"}[i%3] + strconv.Itoa(i)}
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	settle(t, s, redrive.OutcomeDead, claim(t, s, ask(n))...)
	seen := make(map[string]bool)
	for q := (redrive.Query{Queue: "sms", State: redrive.StateDead, Limit: 7}); ; {
		page, err := s.Find(t.Context(), q)
		noErr(t, err)
		for _, e := range page.Entries {
			if seen[e.ID] {
				t.Fatalf("%s is there twice", e.ID)
			}
			seen[e.ID] = true
		}
		if q.After = page.Next; q.After == "" || len(page.Entries) == 0 {
			break
		}
		last := page.Entries[len(page.Entries)-1].Ref()
		_, err = s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{last}}, driver.Change{Action: driver.ActRedrive}, 1)
		noErr(t, err)
	}
	if len(seen) != n {
		t.Errorf("%d of %d were found", len(seen), n)
	}
}
