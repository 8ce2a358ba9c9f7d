package guard

import (
	"context"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// Call is a call of a provider. It must respect its context.
type Call[Req, Resp any] func(ctx context.Context, req Req) (Resp, error)

// State is how a provider is taken to be.
type State = machine.State

// The states.
const (
	Healthy    = machine.Healthy    // all calls go through
	Limited    = machine.Limited    // calls go through up to a rate that the provider bears
	Down       = machine.Down       // none but single probes
	Recovering = machine.Recovering // a growing share goes through
	Isolated   = machine.Isolated   // none, because a person said so
)

// ParseState is the reverse of State.String; it reports false for a name that is none.
func ParseState(name string) (State, bool) { return machine.ParseState(name) }

// Class is what the end of a call says about its provider.
type Class = machine.Class

// The classes.
const (
	ClassSuccess   = machine.ClassSuccess
	ClassPermanent = machine.ClassPermanent // the request was refused for good: the provider is alive
	ClassTransient = machine.ClassTransient // the provider failed
	ClassLimited   = machine.ClassLimited   // the provider asks for less: a 429
	ClassNetwork   = machine.ClassNetwork   // there was no answer, or no whole one
	ClassIgnored   = machine.ClassIgnored   // it says nothing, as when the caller left
)

// Effect is what is known of the effect of a call that failed.
type Effect uint8

// The effects.
const (
	EffectUnknown Effect = iota // the provider may have carried it out
	NoEffect                    // it has not: the connection was refused, or the answer says so
)

// Outcome is what the end of a call means.
type Outcome struct {
	Class      Class
	RetryAfter time.Duration // for ClassLimited: what the provider asked for; 0: nothing
	Effect     Effect
	Reason     string // for people, where there is no error
}

// Classifier says what a call's end means. It reports false where it has no opinion;
// [Classify] then decides.
type Classifier[Resp any] func(resp Resp, err error) (Outcome, bool)

// Repeat says how far a request may be repeated whose effect is unknown.
type Repeat uint8

// The ways.
const (
	// RepeatSame repeats it with the provider that has seen it, which knows it by its
	// idempotency key, and never sends it to another.
	RepeatSame Repeat = iota
	// RepeatAnywhere repeats it with any provider.
	RepeatAnywhere
	// RepeatNever does not repeat it: the caller receives an [UncertainError], and the
	// request is kept as a dead letter (uncertain).
	RepeatNever
)

// Deferral says how one request may be put off.
type Deferral struct {
	// ID names the request's message, so that a repeated request is recognised.
	// Defaults to a new id.
	ID string
	// Forbidden refuses to put it off: the caller gets ErrUnavailable.
	Forbidden bool
	// Repeat says how far it may be repeated if its effect is unknown.
	Repeat Repeat
	// Key keeps requests of one key in order: while one of them waits, later ones wait
	// behind it. It holds within one process. Empty: no order.
	Key string
	// TTL is how long it is worth sending; then it is a dead letter (expired). 0: for
	// ever.
	TTL time.Duration
	// ReplyTo is the queue that gets the later result; see [redrive.Message.ReplyTo].
	ReplyTo string
}
