package driver

import (
	"time"

	"github.com/redrive/redrive"
)

// Remembered is what a store keeps of a message whose id the caller chose, beyond
// the message's life.
type Remembered struct {
	redrive.Ref
	Hash    uint64          // of the body; see [BodyHash]
	Outcome redrive.Outcome // how it ended; zero while it lives
	Reason  redrive.Reason  // why, if it was dropped
	At      time.Time       // of the last change
}
