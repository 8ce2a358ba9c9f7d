package engine

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// ended is what is known when an attempt has ended. decide, which is pure, makes a
// settlement of it.
type ended struct {
	d         *redrive.Delivery
	policy    *redrive.Policy
	err       error
	now       time.Time // by the store's clock, as far as we know it
	uncounted bool      // it was in flight when the breaker opened
	lost      bool      // its lease was lost
	shutdown  bool      // it was cancelled by a shutdown
	random    func() float64
	failure   func(r redrive.Reason) *redrive.Failure // builds the failure history; called at most once
}

// decide returns the settlement of an attempt that ended, and reports false if there
// is nothing to settle.
func decide(e *ended) (driver.Settlement, bool) {
	s := driver.Settlement{Receipt: e.d.Receipt, Outcome: redrive.OutcomeDone}
	switch {
	case e.err == nil:
		return s, true
	case errors.Is(e.err, redrive.ErrSettled):
		return s, false
	case errors.Is(e.err, redrive.ErrNoHandler):
		return unrouted(e, s), true
	}

	c := driver.Classify(e.policy.Classifier, e.err)
	switch {
	case c.Request: // it repeats, or is snoozed
		s.Outcome, s.After = c.Outcome, c.After
	case e.shutdown || e.lost: // whatever it failed of, its context was cancelled
		s.Outcome = redrive.OutcomeRelease
	case c.Outcome == redrive.OutcomeRelease:
		s.Outcome, s.After, s.Failure = redrive.OutcomeRelease, c.After, e.failure(0)
	case c.Outcome == redrive.OutcomeDead:
		if c.Reason == 0 {
			c.Reason = redrive.ReasonPermanent
		}
		s.Outcome, s.Reason, s.Failure = redrive.OutcomeDead, c.Reason, e.failure(c.Reason)
	case e.uncounted:
		s.Outcome, s.Failure = redrive.OutcomeRelease, e.failure(0)
		s.After = retryDelay(e, c.After)
	case e.d.Failures+1 >= e.policy.MaxAttempts:
		s.Outcome, s.Reason, s.Failure = redrive.OutcomeDead, redrive.ReasonExhausted, e.failure(redrive.ReasonExhausted)
	default:
		s.Outcome, s.Failure = redrive.OutcomeRetry, e.failure(0)
		s.After = retryDelay(e, c.After)
	}
	return s, true
}

// unrouted decides about a message whose kind nobody handles: it is retried by its policy,
// as a deploy may catch up.
func unrouted(e *ended, s driver.Settlement) driver.Settlement {
	switch {
	case e.shutdown || e.lost:
		s.Outcome = redrive.OutcomeRelease
	case e.d.Failures+1 >= e.policy.MaxAttempts:
		s.Outcome, s.Reason, s.Failure = redrive.OutcomeDead, redrive.ReasonUnroutable, e.failure(redrive.ReasonUnroutable)
	default:
		s.Outcome, s.Failure, s.After = redrive.OutcomeRetry, e.failure(0), retryDelay(e, 0)
	}
	return s
}

// retryDelay is the policy's backoff with a floor, but no longer than the message
// lives: it comes back when it expires, so that it then ends.
func retryDelay(e *ended, floor time.Duration) time.Duration {
	delay := max(e.policy.Backoff.Delay(e.d.Failures+1, e.random), floor, 0)
	if at := expiry(e.d, e.policy); !at.IsZero() {
		delay = min(delay, max(at.Sub(e.now), 0))
	}
	return delay
}

// expiry returns when the message is no longer worth delivering; zero: never. The age
// counts from publication, so one that was redriven on purpose is exempt from it.
func expiry(d *redrive.Delivery, p *redrive.Policy) time.Time {
	at := d.ExpiresAt
	if p.MaxAge > 0 && d.Redrives == 0 && !d.PublishedAt.IsZero() {
		if old := d.PublishedAt.Add(p.MaxAge); at.IsZero() || old.Before(at) {
			at = old
		}
	}
	return at
}

// unfit decides about a message that must not be tried: its source could not read it,
// it expired, or the process died of it too often. It reports false for all others.
func unfit(d *redrive.Delivery, p *redrive.Policy, failure func(err error, r redrive.Reason) *redrive.Failure) (driver.Settlement, bool) {
	s := driver.Settlement{Receipt: d.Receipt}
	if d.Unfit != 0 {
		s.Outcome, s.Reason = redrive.OutcomeDead, d.Unfit
		err := errUnfit
		if d.Unfit == redrive.ReasonCorrupt {
			err = errCorrupt
		}
		s.Failure = failure(err, d.Unfit)
		return s, true
	}
	if at := expiry(d, p); !at.IsZero() && !d.LeasedAt.Before(at) {
		s.Outcome, s.Reason = redrive.OutcomeDead, redrive.ReasonExpired
		if p.DropExpired {
			s.Outcome = redrive.OutcomeDrop
		}
		s.Failure = failure(errExpired, redrive.ReasonExpired)
		return s, true
	}
	if d.Crashes > p.MaxCrashes {
		s.Outcome, s.Reason = redrive.OutcomeDead, redrive.ReasonCrashed
		s.Failure = failure(&CrashError{Crashes: d.Crashes}, redrive.ReasonCrashed)
		return s, true
	}
	return s, false
}

var (
	errUnfit   = errors.New("undeliverable message at the source")
	errCorrupt = errors.New("the message does not match its checksum")
	errExpired = errors.New("not delivered in time")
)

// CrashError is the failure of a message that the process died of.
type CrashError struct{ Crashes int }

// Error says how often.
func (e *CrashError) Error() string {
	return "the process died " + text.Plural(e.Crashes, "time") + " while this message was isolated in it"
}

// ErrorName implements [redrive.NamedError].
func (*CrashError) ErrorName() string { return "engine.CrashError" }

func randomShare() float64 { return rand.Float64() }
