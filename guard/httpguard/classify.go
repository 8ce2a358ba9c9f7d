package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/guard"
)

func permanent(err error) error { return redrive.Permanent(err) }

// Classify says what an answer means, for [guard.Provider]. 429, and 503 with a
// Retry-After that can be read (seconds or a date, at most an hour), are limits, and
// had no effect; 408, 425 and other 5xx are the provider's failure; all other answers
// are those of a provider that is well, for the caller to judge. Errors are left to
// the defaults, which know a connection that was never made.
func Classify(resp Response, err error) (guard.Outcome, bool) {
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return guard.Outcome{Class: guard.ClassPermanent}, true
		}
		return guard.Outcome{}, false
	}
	v := guard.Outcome{Class: guard.ClassSuccess, Reason: fmt.Sprintf("the provider answered %d", resp.Status)}
	after, asked := retryAfter(resp.Header)
	switch s := resp.Status; {
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable && asked:
		v.Class, v.RetryAfter, v.Effect = guard.ClassLimited, after, guard.NoEffect
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s >= 500:
		v.Class = guard.ClassTransient
	case s >= 400:
		v.Class, v.Effect = guard.ClassPermanent, guard.NoEffect
	}
	return v, true
}

// retryAfter compares a date with the answer's own where there is one, as the
// provider's clock may differ from ours.
func retryAfter(h http.Header) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	now := time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return delivery.ParseRetryAfter(value, now)
}
