package mysql

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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
