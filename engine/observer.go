package engine

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Observer receives engine events. It is called on the engine's hot path: it must be
// fast, safe for concurrent use, and must not keep what the pointers point to.
type Observer interface {
	Observe(o *Observation)
}

// Occasion is what an Observation is about.
type Occasion uint8

// The occasions.
const (
	OnClaim       Occasion = iota + 1 // Count messages were claimed in one call
	OnStart                           // an attempt begins
	OnEnd                             // an attempt ended: Settlement says how; Err is the handler's error
	OnSettled                         // a settlement is durable
	OnSettleGroup                     // Count settlements were written in one call of Duration
	OnLeaseLost                       // a lease was lost
	OnBreaker                         // a breaker changed: Text is "open", "closed"
	OnStuck                           // a handler ignores its context; Text is its stack
	OnPaused                          // a target was paused: Text is the reason
	OnRestart                         // a goroutine of ours failed and was restarted: Text is its name
	OnParked                          // Count messages were parked in the store
	OnUnhandled                       // an attempt found no handler for the message's kind
)

var occasionNames = []string{"", "claim", "start", "end", "settled", "settle-group", "lease-lost",
	"breaker", "stuck", "paused", "restart", "parked", "unhandled"}

// String returns the occasion in lower case.
func (o Occasion) String() string { return text.Enum(occasionNames, o) }

// Observation is one thing that happened. Fields that do not apply are zero.
type Observation struct {
	Occasion   Occasion
	Queue      string
	Delivery   *redrive.Delivery
	Settlement *driver.Settlement
	Err        error
	Count      int
	Duration   time.Duration
	Text       string
}

// Observers is a list of observers as one.
type Observers []Observer

// Observe implements Observer.
func (l Observers) Observe(o *Observation) {
	for _, v := range l {
		v.Observe(o)
	}
}
