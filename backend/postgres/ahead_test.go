package postgres

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
