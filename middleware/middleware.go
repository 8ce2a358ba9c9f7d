package middleware

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Middleware wraps a handler. The engine recovers from the panics of every handler;
// [Recover] is for a middleware that shall see them as errors.
type Middleware func(redrive.Handler) redrive.Handler

// Chain wraps a handler in middlewares; the first is the outermost. What it returns
// knows the kinds that h handles and their options, if h does, as a [redrive.Mux] does. A
// middleware of this package keeps them also where it is called by itself; one of your own
// hides them then, so that all kinds are claimed and the options are lost.
func Chain(h redrive.Handler, m ...Middleware) redrive.Handler {
	wrapped := h
	for i := len(m) - 1; i >= 0; i-- {
		wrapped = m[i](wrapped)
	}
	return keep(h, wrapped)
}

// keep returns the wrapped handler with what h knows of its kinds.
func keep(h, wrapped redrive.Handler) redrive.Handler {
	if r, ok := h.(driver.Registry); ok {
		return &chained{Handler: wrapped, Registry: r}
	}
	return wrapped
}

// chained keeps what is known of a wrapped handler's kinds visible.
type chained struct {
	redrive.Handler
	driver.Registry
}

// Timeout bounds an attempt at d, as [redrive.Policy.Timeout] does, for the wrapped handler
// only. d of 0 or less bounds nothing.
func Timeout(d time.Duration) Middleware {
	return func(h redrive.Handler) redrive.Handler {
		if d <= 0 {
			return h
		}
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, m *redrive.Delivery) error {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return h.ServeDelivery(ctx, m)
		}))
	}
}

// Recover makes a panic of the wrapped handler a [*redrive.PanicError] with its stack, for the
// middlewares around it.
func Recover() Middleware {
	return func(h redrive.Handler) redrive.Handler {
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = &redrive.PanicError{Value: r, Stack: string(debug.Stack())}
				}
			}()
			return h.ServeDelivery(ctx, d)
		}))
	}
}

// Ending is how an attempt ended, as its handler said.
type Ending string

// The endings.
const (
	Done    Ending = "done"    // without an error
	Settled Ending = "settled" // by the handler itself: [redrive.ErrSettled]
	Again   Ending = "repeat"  // done, and it runs again: [redrive.RepeatAfter]
	Snoozed Ending = "snooze"  // put off, which is no failure
	Failed  Ending = "failed"  // with an error; the policy decides what follows
)

// endingOf tells how an attempt ended.
func endingOf(err error) Ending {
	if err == nil {
		return Done
	}
	switch asked, ok := driver.Asked(err); {
	case !ok:
		return Failed
	case asked == redrive.OutcomeRepeat:
		return Again
	case asked == redrive.OutcomeRelease:
		return Snoozed
	}
	return Settled
}

// Metrics calls observe after each attempt with how long it took, how it ended, and the
// handler's error if it failed. It must be safe for concurrent use. A panic is passed on,
// and not observed; put [Recover] inside to count it.
func Metrics(observe func(d *redrive.Delivery, took time.Duration, how Ending, err error)) Middleware {
	return func(h redrive.Handler) redrive.Handler {
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			began := time.Now()
			err := h.ServeDelivery(ctx, d)
			how := endingOf(err)
			observe(d, time.Since(began), how, failure(how, err))
			return err
		}))
	}
}

// failure is the error of an attempt that failed, or nil.
func failure(how Ending, err error) error {
	if how == Failed {
		return err
	}
	return nil
}

// Tracing calls start before each attempt, which returns the context for the handler, with
// a span in it, and a function that ends the span, with the error of an attempt that
// failed. The message's headers hold the
// traceparent of who published it. It must be safe for concurrent use. This package knows
// no tracing library; with OpenTelemetry start is a few lines.
func Tracing(start func(ctx context.Context, d *redrive.Delivery) (context.Context, func(err error))) Middleware {
	return func(h redrive.Handler) redrive.Handler {
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) (err error) {
			ctx, end := start(ctx, d)
			ended := false
			defer func() {
				if !ended {
					end(errPanicked)
				}
			}()
			err = h.ServeDelivery(ctx, d)
			ended = true
			end(failure(endingOf(err), err))
			return err
		}))
	}
}

// errPanicked is what a span ends with when its handler panicked.
var errPanicked = errors.New("the handler panicked")

// said is what the log says of an attempt.
var said = map[Ending]string{
	Done: "attempt succeeded", Settled: "settled by the handler", Again: "attempt succeeded, runs again", Snoozed: "snoozed", Failed: "attempt failed",
}

// Logging writes a line for each attempt: at level info with the error when it failed, at
// level debug when it did not.
func Logging(l *slog.Logger) Middleware {
	return func(h redrive.Handler) redrive.Handler {
		return keep(h, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			began := time.Now()
			err := h.ServeDelivery(ctx, d)
			how, level := endingOf(err), slog.LevelDebug
			if how == Failed {
				level = slog.LevelInfo
			}
			if !l.Enabled(ctx, level) {
				return err
			}
			attrs := []slog.Attr{slog.String("queue", d.Queue), slog.String("id", d.ID), slog.String("kind", d.Kind),
				slog.Int("attempt", d.Attempt), slog.Duration("took", time.Since(began))}
			if how == Failed {
				attrs = append(attrs, slog.Any("error", err))
			}
			l.LogAttrs(ctx, level, said[how], attrs...)
			return err
		}))
	}
}
