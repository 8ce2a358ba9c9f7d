package driver

import (
	"time"

	"github.com/redrive/redrive"
)

// A Gate is asked before messages are claimed. What it refuses is not claimed, so
// that no attempt is burnt. Gates are pure: they receive the time, start no
// goroutine, and are called under their consumer's lock; a gate shared by several
// consumers locks for itself.
//
// The engine's own gates are the slots, the breaker and the pause; a rate limit or a
// guard's pace are further ones.
type Gate interface {
	// Reserve grants up to a.Max claims.
	Reserve(now time.Time, a Ask) Grant
	// Return gives back what was granted and not used.
	Return(now time.Time, g Grant, unused int)
	// Report tells, once, how a delivery ended that was granted and claimed. One whose
	// lease was lost is reported with a nil settlement.
	Report(now time.Time, d *redrive.Delivery, s *Settlement)
}

// A SweepGate is a Gate that also learns what was claimed without a grant and never
// handled: a message that expired while a gate refused. No Report tells of it.
type SweepGate interface {
	Gate
	Swept(now time.Time, d *redrive.Delivery, s *Settlement)
}

// Ask is what a consumer wants to claim.
type Ask struct {
	Queue string
	Lane  redrive.Lane
	Max   int
}

// Grant is what a gate allows.
type Grant struct {
	// N is how many messages may be claimed, at most Ask.Max.
	N int
	// Until is when to ask again if N is less than was asked; zero: after the next
	// report.
	Until time.Time
	// Kinds allows only these kinds, if any are named; ExceptKinds and ExceptIDs
	// exclude.
	Kinds, ExceptKinds, ExceptIDs []string
	// What is the word of the gate for programs, in what holds a queue, such as "rate". Optional.
	What string
	// Reason says why less was granted, for people: "breaker open: 24 of 25 failed".
	Reason string
}
