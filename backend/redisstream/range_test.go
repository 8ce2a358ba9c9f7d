package redisstream

import (
	"strconv"
	"testing"

	"github.com/redrive/redrive"
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
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
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
		_, err := s.Apply(t.Context(), redrive.Batch{Delete: []redrive.Range{{Queue: "sms", Key: "session", UpTo: tc.upTo}}})
		noErr(t, err)
		if a := balanced(t, s); a.Waiting != tc.left || a.Books.Done != n-300-tc.left || a.Dead != 300 || steps()-before != tc.steps {
			t.Errorf("up to %s: %d left, %d done, in %d steps", tc.upTo, a.Waiting, a.Books.Done, steps()-before)
		}
	}
}
