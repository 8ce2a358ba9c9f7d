package redisstream

import (
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/servertest"
)

// TestWhatNobodyDelayedIsDueAmongManyDelayed has more delayed messages of one time, and of many,
// than a call of the script looks at, before what is due and among it.
func TestWhatNobodyDelayedIsDueAmongManyDelayed(t *testing.T) {
	for name, open := range map[string]func() *Store{
		"one": func() *Store { return open(t) }, "partitions": func() *Store { return openParts(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}))
			const n = 900
			msgs := make([]redrive.Message, 0, 3*n)
			for i := range n {
				at := time.Now().Add(time.Duration(i%3) * time.Hour) // a third lies before the others
				msgs = append(msgs, redrive.Message{Queue: "sms", DeliverAt: at.Add(time.Second)}, redrive.Message{Queue: "sms", Delay: time.Minute},
					redrive.Message{Queue: "sms", ID: fmt.Sprintf("id-%04d", i), Key: fmt.Sprint("k", i%(n/2))})
			}
			noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
			shift(t, s, "sms", 4*time.Hour)
			c, err := s.Counts(t.Context(), "sms")
			noErr(t, err)
			if c[0].Blocked != n/2 {
				t.Errorf("%+v", c[0])
			}
			last := map[string]string{}
			for range 2 { // the second of each key when the first is done
				ds := claim(t, s, ask(n))
				if len(ds) != n/2 {
					t.Fatalf("%d claimed, want %d", len(ds), n/2)
				}
				for _, d := range ds {
					if d.Key == "" || last[d.Key] >= d.ID {
						t.Errorf("%s of key %q after %s", d.ID, d.Key, last[d.Key])
					}
					last[d.Key] = d.ID
				}
				settle(t, s, redrive.OutcomeDone, ds...)
			}
			if n := len(claim(t, s, ask(n))); n != 0 {
				t.Errorf("%d delayed ones are claimed", n)
			}
			c, err = s.Counts(t.Context(), "sms")
			noErr(t, err)
			if c[0].AllWaiting() != 2*n {
				t.Errorf("%d wait, want %d", c[0].AllWaiting(), 2*n)
			}
			if t.Failed() {
				return
			}
			for _, q := range s.everywhere("sms") {
				w, err := s.tally(t.Context(), q)
				noErr(t, err)
				if w.lanes != 0 || w.next >= 0 && w.next <= w.now {
					t.Errorf("lanes %b are due, the next in %d µs", w.lanes, w.next-w.now)
				}
			}
		})
	}
}

// TestSuspectsAndDeadLettersAfterAClockThatWentBack has both lie ahead of the clock.
func TestSuspectsAndDeadLettersAfterAClockThatWentBack(t *testing.T) {
	s := open(t)
	q := s.queue("sms")
	publish(t, s, 3)
	r := ask(3)
	ds := claim(t, s, r)
	settle(t, s, redrive.OutcomeDead, ds[1:]...)
	r.Lease = minLease
	settle(t, s, redrive.OutcomeRelease, ds[0])
	claim(t, s, r) // and its lease runs out: a suspect
	r.Isolated, r.Lease = true, time.Minute
	var suspect []redrive.Delivery
	servertest.Until(t, "its lease ran out", func() bool {
		suspect = claim(t, s, r)
		return len(suspect) == 1
	})
	settle(t, s, redrive.OutcomeRelease, suspect...)
	shift(t, s, "sms", time.Hour)
	if w, err := s.tally(t.Context(), q); err != nil || !w.suspects {
		t.Errorf("%+v, %v", w, err)
	}
	if n := len(claim(t, s, r)); n != 1 {
		t.Errorf("%d suspects, want 1", n)
	}
	r.Isolated, r.Dead = false, true
	if n := len(claim(t, s, r)); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}
