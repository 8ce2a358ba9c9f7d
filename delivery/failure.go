package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Attempt is what every failure of a delivery tells. It is free of secrets: the
// target has no user and no query.
type Attempt struct {
	Target   string        // the URL
	Duration time.Duration // until the failure
	Timeout  time.Duration // in force
	Dropped  int           // headers of the message that HTTP does not allow
}

// CallTimeout returns Timeout; by this method the engine finds it and writes it into the
// failure.
func (a *Attempt) CallTimeout() time.Duration { return a.Timeout }

func (a *Attempt) details() map[string]string {
	d := map[string]string{
		"target":   a.Target,
		"duration": a.Duration.Round(time.Microsecond).String(),
		"timeout":  a.Timeout.String(),
	}
	if a.Dropped > 0 {
		d["dropped_headers"] = strconv.Itoa(a.Dropped)
	}
	return d
}

// ResponseError says that the target answered with something else than 2xx. It
// implements [redrive.StatusError] and [redrive.DetailedError].
type ResponseError struct {
	Attempt
	Status     int
	Location   string        // where a redirect would have led, without query
	RetryAfter time.Duration // what the target asked for; 0: nothing
	Excerpt    string        // head and tail of the answer, redacted
}

// Error tells the status only, so that failures of one cause read the same.
func (e *ResponseError) Error() string {
	s := fmt.Sprintf("the target answered %d", e.Status)
	if text := http.StatusText(e.Status); text != "" {
		s += " " + text
	}
	if e.Status/100 == 3 && e.Location != "" {
		s += ": redirects are not followed; set deliver.url to where it leads"
	}
	return s
}

// ErrorName implements [redrive.NamedError].
func (*ResponseError) ErrorName() string { return "delivery.ResponseError" }

// HTTPStatus implements redrive.StatusError.
func (e *ResponseError) HTTPStatus() int { return e.Status }

// FailureDetails implements redrive.DetailedError.
func (e *ResponseError) FailureDetails() map[string]string {
	d := e.details()
	d[driver.DetailStatus] = strconv.Itoa(e.Status)
	if e.Excerpt != "" {
		d[driver.DetailAnswer] = e.Excerpt
	}
	if e.Location != "" {
		d["http.location"] = e.Location
	}
	if e.RetryAfter > 0 {
		d["http.retry_after"] = e.RetryAfter.String()
	}
	return d
}

// TransportError says that there was no answer, or no whole one where it is needed.
// Whether the target saw the message is not known. It implements
// [redrive.DetailedError] and has the Timeout method of a net.Error.
type TransportError struct {
	Attempt
	Text string // what happened, redacted
	Err  error  // the cause, for its types
}

// Error returns the text.
func (e *TransportError) Error() string { return e.Text }

// ErrorName implements [redrive.NamedError].
func (*TransportError) ErrorName() string { return "delivery.TransportError" }

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// Timeout reports whether time ran out.
func (e *TransportError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// FailureDetails implements redrive.DetailedError.
func (e *TransportError) FailureDetails() map[string]string { return e.details() }

// RefusedError says that we did not deliver: the target is at an address where
// nothing is delivered to, or a secret is missing. The target is paused and the
// message given back. It implements [redrive.DetailedError].
type RefusedError struct {
	Target string
	Err    error
}

// Error tells what to do about it.
func (e *RefusedError) Error() string { return "refused: " + e.Err.Error() }

// ErrorName implements [redrive.NamedError].
func (*RefusedError) ErrorName() string { return "delivery.RefusedError" }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// FailureDetails implements redrive.DetailedError.
func (e *RefusedError) FailureDetails() map[string]string {
	return map[string]string{"target": e.Target}
}

// refusalPause is how long a target rests after a refusal of ours. It is then asked
// again, as a name may resolve to something else, and a secret may be there.
const refusalPause = time.Minute

// transportFailure turns an error of the round trip into what the engine receives.
// parent is the context that the handler was given.
func (h *Handler) transportFailure(parent context.Context, a Attempt, c *credentials, err error) error {
	err = h.transportError(parent, a, c, err)
	var refused *RefusedError
	if errors.As(err, &refused) {
		return redrive.TargetDown(refused, refusalPause)
	}
	return h.classify(err, 0, false)
}

// transportError says why there was no answer, without what must not be shown.
func (h *Handler) transportError(parent context.Context, a Attempt, c *credentials, err error) error {
	var blocked *blockedError
	if errors.As(err, &blocked) {
		return &RefusedError{Target: a.Target, Err: blocked} // not wrapped: the error around it names the address
	}
	return h.describe(parent, a, c, err)
}

// describe says why there was no answer.
func (h *Handler) describe(parent context.Context, a Attempt, c *credentials, err error) *TransportError {
	e := &TransportError{Attempt: a, Err: err}
	var dns *net.DNSError
	switch {
	case parent.Err() != nil && !errors.Is(context.Cause(parent), context.DeadlineExceeded):
		e.Err = context.Cause(parent)
		e.Text = "interrupted: " + e.Err.Error()
	case errors.As(err, &dns) && !dns.IsTimeout:
		e.Text = "the target's name does not resolve: " + dns.Err
	case e.Timeout():
		e.Text = "the target did not answer in time"
	default:
		e.Text = excerpt(redact(err.Error(), c.hide), 384, 128)
	}
	return e
}

// classify applies the target's own table and what HTTP says about waiting. What it
// returns as it is, is for the policy and the defaults to decide.
func (h *Handler) classify(err error, after time.Duration, asked bool) error {
	if marked := h.statuses.Classify(err); marked != nil {
		switch driver.Classify(nil, marked).Outcome {
		case redrive.OutcomeRelease:
			return redrive.Uncounted(err, max(after, minRelease))
		case redrive.OutcomeRetry:
			if asked {
				return redrive.RetryAfter(err, after)
			}
		}
		return marked // a listed 404 is retried: the defaults cannot make it permanent again
	}
	var response *ResponseError
	if errors.As(err, &response) && response.Status == http.StatusGone {
		return redrive.TargetGone(err)
	}
	if asked {
		return redrive.RetryAfter(err, after)
	}
	return err
}

// minRelease keeps a released message from coming back at once, over and over.
const minRelease = time.Second
