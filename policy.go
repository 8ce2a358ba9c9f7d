package redrive

import (
	"fmt"
	"time"
)

// Policy says how often, how long and when a message is tried. The zero value of a
// field means its default.
type Policy struct {
	// Name is shown in failures. Defaults to "default".
	Name string
	// MaxAttempts is how many recorded failures make a message dead (exhausted).
	// Defaults to 25.
	MaxAttempts int
	// MaxCrashes is how often the process may die while a suspect is isolated in it;
	// one more makes it dead (crashed). Defaults to 3.
	MaxCrashes int
	// MaxAge is how long after its publication a message is still worth
	// delivering, unless it was redriven. Defaults to no limit.
	MaxAge time.Duration
	// Timeout bounds one attempt. Defaults to 30 s.
	Timeout time.Duration
	// Inline is how many more tries a failed attempt gets at once, in the same slot
	// and within the same timeout, before it counts as failed. Defaults to none.
	Inline int
	// DropExpired drops what expired instead of keeping it as a dead letter.
	DropExpired bool
	// Backoff is the delay before the next attempt. Defaults to [DefaultBackoff].
	Backoff Backoff
	// Classifier says what errors mean, before the defaults. Optional.
	Classifier Classifier
}

// Defaults of Policy.
const (
	DefaultMaxAttempts = 25
	DefaultMaxCrashes  = 3
	DefaultTimeout     = 30 * time.Second
)

// WithDefaults returns the policy with every zero field that has a default set.
func (p Policy) WithDefaults() Policy {
	if p.Name == "" {
		p.Name = "default"
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.MaxCrashes == 0 {
		p.MaxCrashes = DefaultMaxCrashes
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Backoff == nil {
		p.Backoff = DefaultBackoff
	}
	return p
}

// Check reports a policy that makes no sense.
func (p *Policy) Check() error {
	switch {
	case p.MaxAttempts < 0, p.MaxCrashes < 0, p.Inline < 0:
		return fmt.Errorf("%w policy %q: counts are zero (default) or more", ErrInvalid, p.Name)
	case p.MaxAge < 0, p.Timeout < 0:
		return fmt.Errorf("%w policy %q: durations are zero (default) or more", ErrInvalid, p.Name)
	}
	return nil
}
