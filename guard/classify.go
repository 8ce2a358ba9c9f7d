package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Classify is the default classification of an error. No error is a success;
// [RateLimitError] and HTTP 429 are limits; [redrive.Permanent] and HTTP 4xx but 408,
// 425 and 429 are the request's own fault; end of file, resets and all that package
// net reports are network errors; all else is the provider's failure. Only a
// connection that was never made, and a refusal for now, are known to have had no
// effect.
func Classify(err error) Outcome {
	if err == nil {
		return Outcome{Class: ClassSuccess}
	}
	var limit *RateLimitError
	if errors.As(err, &limit) {
		return Outcome{Class: ClassLimited, RetryAfter: limit.After, Effect: NoEffect}
	}
	var status redrive.StatusError
	if errors.As(err, &status) {
		switch s := status.HTTPStatus(); {
		case s == 429:
			return Outcome{Class: ClassLimited, Effect: NoEffect}
		case s == 408, s == 425, s >= 500:
			return Outcome{Class: ClassTransient}
		case s >= 400:
			return Outcome{Class: ClassPermanent, Effect: NoEffect}
		}
	}
	if driver.Classify(nil, err).Outcome == redrive.OutcomeDead {
		return Outcome{Class: ClassPermanent, Effect: NoEffect}
	}
	var timeout interface{ Timeout() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() && !neverSent(err) {
		return Outcome{Class: ClassTransient}
	}
	if isNetwork(err) {
		v := Outcome{Class: ClassNetwork}
		if neverSent(err) {
			v.Effect = NoEffect
		}
		return v
	}
	return Outcome{Class: ClassTransient}
}

func isNetwork(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) || errors.As(err, &dns) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// neverSent reports whether there was no connection to send the request over.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.Is(err, syscall.ECONNREFUSED)
}
