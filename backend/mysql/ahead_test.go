package mysql

import (
	"context"
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
	for ahead := true; ahead; {
		parts, err := dialect{s}.Ahead(t.Context())
		noErr(t, err)
		ahead = len(parts) > 0
	}
	rows, err := dial(t).QueryContext(t.Context(), s.sql.in("SELECT body FROM redrive_message ORDER BY due, seq"))
	noErr(t, err)
	defer func() { _ = rows.Close() }()
	for next := uint32(0); next < n && rows.Next(); next++ {
		var body []byte
		noErr(t, rows.Scan(&body))
		if got := binary.BigEndian.Uint32(body); got != next {
			t.Fatalf("%d is next, want %d", got, next)
		}
	}
	noErr(t, rows.Err())
	c, err := s.Counts(t.Context(), "a")
	noErr(t, err)
	if c[0].AllWaiting() != n+100 || c[0].Due != n {
		t.Errorf("%d wait, of which %d are due; want %d and %d", c[0].AllWaiting(), c[0].Due, n+100, n)
	}
}

// A row that somebody has locked, as a claim locks the first behind those that are due, keeps
// its place among those that are made due.
func TestALockedRowKeepsItsPlaceWhenTheClockWentBack(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "first"}, {Queue: "a", ID: "second"}})))
	db := dial(t)
	lock, err := db.BeginTx(t.Context(), nil)
	noErr(t, err)
	_, err = lock.ExecContext(t.Context(), s.sql.in("UPDATE redrive_message SET due = due + 3600000000 WHERE queue = 'a' AND id = 'first'"))
	noErr(t, err)
	_, err = db.ExecContext(t.Context(), s.sql.in("UPDATE redrive_message SET due = due + 3600000001 WHERE queue = 'a' AND id = 'second'"))
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	n, err := dialect{s}.Pull(ctx, sqlstore.Part{Queue: "a"}, 100)
	if err == nil {
		t.Errorf("%d were made due beside a locked one", n)
	}
	noErr(t, lock.Commit())
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
