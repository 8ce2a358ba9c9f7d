package postgres

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/sqlstore"
)

// More messages than a statement makes due keep their order, and those among them that were
// delayed their time.
func TestAClockThatWentBackFarBehindMuch(t *testing.T) {
	s := open(t)
	const n = 1200
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "a", Body: binary.BigEndian.AppendUint32(nil, uint32(i))}
	}
	delayed := make([]redrive.Message, 100)
	for i := range delayed {
		delayed[i] = redrive.Message{Queue: "a", Delay: time.Minute}
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), delayed)))
	for part := range 12 {
		noErr(t, driver.FirstError(s.Publish(t.Context(), msgs[part*100:part*100+100])))
	}
	shift(t, s, "a", time.Hour)
	for next := uint32(0); next < n; {
		for _, d := range claim(t, s, "a") {
			if got := binary.BigEndian.Uint32(d.Body); got != next {
				t.Fatalf("%d is claimed after %d", got, next)
			}
			next++
		}
	}
	c, err := s.Counts(t.Context(), "a")
	noErr(t, err)
	if waiting := c[0].AllWaiting() - c[0].Leased; waiting != 100 || c[0].Due != 0 {
		t.Errorf("%d wait, of which %d are due; want 100 that are not", waiting, c[0].Due)
	}
}

// A dead letter that is put off while its death lies ahead of the clock keeps its time.
func TestADeadLetterPutOffWhileItsDeathLiesAhead(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	ds := claim(t, s, "a")
	noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}})))
	shift(t, s, "a", time.Hour)
	servertest.Until(t, "it is due", func() bool {
		var err error
		ds, err = s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Dead: true})
		noErr(t, err)
		return len(ds) == 1
	})
	for _, putOff := range []bool{false, true} { // while it is leased, and then
		if parts, err := (dialect{s}).Ahead(t.Context()); err != nil || len(parts) > 0 {
			t.Errorf("%v lie ahead, %v", parts, err)
		}
		if n, err := (dialect{s}).Pull(t.Context(), sqlstore.Part{Queue: "a", Class: sqlstore.ClassDied}, 100); err != nil || n > 0 {
			t.Errorf("%d were made due, %v", n, err)
		}
		if !putOff {
			noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeRelease, After: time.Minute}})))
		}
	}
}
