package mysql

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/headername"
)

// Whatever way messages go in, each has its checksum.
func TestEveryStatementKeepsTheChecksum(t *testing.T) {
	s := open(t)
	batch := func(n int, change func(m *redrive.Message)) {
		t.Helper()
		msgs := make([]redrive.Message, n)
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: "a", Kind: "k", Headers: redrive.Headers{{Name: "h"}}, Body: []byte{byte(i), 1}}
			change(&msgs[i])
		}
		noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	}
	for _, n := range []int{1, 20, 150, 600} {
		batch(n, func(*redrive.Message) {})
		batch(n, func(m *redrive.Message) { m.Delay = time.Hour })
		batch(n, func(m *redrive.Message) { m.Key = "key" })
	}
	var missing int
	noErr(t, dial(t).QueryRowContext(t.Context(), s.sql.in("SELECT COUNT(*) FROM redrive_message WHERE crc IS NULL")).Scan(&missing))
	if missing != 0 {
		t.Errorf("%d messages have no checksum", missing)
	}
	faulttest.Audited(t, s)
}

// Headers that a disk has made unreadable are shown as they are. They keep neither the
// message from being dead-lettered nor others from being claimed.
func TestDamagedHeaders(t *testing.T) {
	s := open(t)
	headers := redrive.Headers{{Name: "h", Value: []byte("v")}}
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "bad", Headers: headers}, {Queue: "a", ID: "good", Headers: headers}})))
	serve(t, s.sql.in("UPDATE redrive_message SET headers = 'damaged' WHERE id = 'bad'"))
	for _, d := range claim(t, s, "a") {
		outcome := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
		if d.ID == "bad" {
			if d.Unfit != redrive.ReasonCorrupt {
				t.Errorf("unfit: %q", d.Unfit)
			}
			outcome.Outcome, outcome.Reason = redrive.OutcomeDead, d.Unfit
		}
		noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{outcome})))
	}
	ref := redrive.Ref{Queue: "a", ID: "bad"}
	e, err := s.Get(t.Context(), []redrive.Ref{ref})
	noErr(t, err)
	if v, _ := e[0].Headers.Get(headername.Damaged); v != "damaged" {
		t.Errorf("%+v", e[0].Headers)
	}
	dropped, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{ref}}, driver.Change{Action: driver.ActDrop}, 1)
	noErr(t, err)
	noErr(t, dropped[0].Err)
	faulttest.Audited(t, s)
}
