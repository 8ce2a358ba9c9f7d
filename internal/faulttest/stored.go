package faulttest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Stored fails unless just these messages of a queue wait as they were published, in
// their order, and claims them.
func Stored(t testing.TB, s driver.Store, queue string, msgs []redrive.Message) {
	t.Helper()
	got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: queue, Max: len(msgs) + 1, Lease: time.Minute, Instance: "test"})
	if err != nil || len(got) != len(msgs) {
		t.Fatalf("%d messages, want %d: %v", len(got), len(msgs), err)
	}
	for i := range got {
		m, want := &got[i].Message, &msgs[i]
		same := func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }
		if m.ID != want.ID || m.Kind != want.Kind || !bytes.Equal(m.Body, want.Body) || !slices.EqualFunc(m.Headers, want.Headers, same) {
			t.Errorf("message %d: %+v, want %+v", i, m, want)
		}
	}
	Audited(t, s)
}
