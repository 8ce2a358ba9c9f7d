package redrive

import (
	"context"
	"log/slog"
	"time"
)

// Middleware wraps a handler. Recovering from panics is not its business: the engine
// does that for every handler.
type Middleware func(Handler) Handler

// Chain wraps a handler in middlewares; the first is the outermost. What it returns
// tells the kinds that h handles, if h does, as a [Mux] does.
func Chain(h Handler, m ...Middleware) Handler {
	wrapped := h
	for i := len(m) - 1; i >= 0; i-- {
		wrapped = m[i](wrapped)
	}
	if k, ok := h.(kinder); ok {
		return &chained{Handler: wrapped, kinder: k}
	}
	return wrapped
}

// kinder is a handler that handles certain kinds only. The engine claims no others.
type kinder interface {
	Kinds() (kinds []string, all bool)
}

// chained keeps the kinds of a wrapped handler visible.
type chained struct {
	Handler
	kinder
}

// Timeout bounds an attempt at d, as [Policy.Timeout] does, for the wrapped handler
// only. d of 0 or less bounds nothing.
func Timeout(d time.Duration) Middleware {
	return func(h Handler) Handler {
		if d <= 0 {
			return h
		}
		return HandlerFunc(func(ctx context.Context, m *Delivery) error {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return h.Handle(ctx, m)
		})
	}
}

// Logging writes a line for each attempt: at level debug when it succeeded, at level
// info with the error when it did not.
func Logging(l *slog.Logger) Middleware {
	return func(h Handler) Handler {
		return HandlerFunc(func(ctx context.Context, d *Delivery) error {
			began := time.Now()
			err := h.Handle(ctx, d)
			level := slog.LevelDebug
			if err != nil {
				level = slog.LevelInfo
			}
			if !l.Enabled(ctx, level) {
				return err
			}
			attrs := []slog.Attr{slog.String("queue", d.Queue), slog.String("id", d.ID), slog.String("kind", d.Kind),
				slog.Int("attempt", d.Attempt), slog.Duration("took", time.Since(began))}
			if err != nil {
				l.LogAttrs(ctx, level, "attempt failed", append(attrs, slog.Any("error", err))...)
				return err
			}
			l.LogAttrs(ctx, level, "attempt succeeded", attrs...)
			return nil
		})
	}
}
