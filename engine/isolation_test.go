package engine

import (
	"testing"
	"time"
)

// TestIsolationWaitsForTheLastInFlight: a suspect may go when nothing at all is in flight, and
// nobody else may begin meanwhile.
func TestIsolationWaitsForTheLastInFlight(t *testing.T) {
	now := time.Now()
	for inFlight := range 4 {
		var s isolation
		one, other := &consumer{}, &consumer{}
		if !s.enter(other, inFlight) {
			t.Fatal("nobody wants the process, and yet none may enter")
		}
		if granted, _ := s.acquire(one, now); granted != (inFlight == 0) {
			t.Errorf("with %d in flight a suspect is let go: %t", inFlight, granted)
		}
		if s.enter(other, 1) {
			t.Errorf("with %d in flight another begins beside a suspect", inFlight)
		}
	}
}
