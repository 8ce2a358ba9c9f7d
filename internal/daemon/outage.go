package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redrive/redrive"
)

const (
	outageTick  = time.Second      // how often a store that is away is asked whether it is back
	outageQuiet = 15 * time.Second // after which a source with no further failure is taken to be back
	outageAsk   = 5 * time.Second  // how long the store may take to answer
)

// outages tells of servers that cannot be reached, by what is logged about them: one line
// when the store, or a queue's source, goes away and one when it is back, whatever number of
// calls fail in between. The others are logged at debug level.
type outages struct {
	source func(queue string) bool // whether a queue has a server of its own

	mu    sync.Mutex
	spans map[string]*outage // by queue of a source, "" for the store
	begun chan struct{}
}

// outage is a time in which a server is away.
type outage struct {
	since, last time.Time // the first failure and the newest
	failed      int       // calls
}

func newOutages(source func(queue string) bool) *outages {
	return &outages{source: source, spans: make(map[string]*outage), begun: make(chan struct{}, 1)}
}

// logger returns a logger of which outages are kept.
func (o *outages) logger(log *slog.Logger) *slog.Logger {
	return slog.New(&outageLog{log.Handler(), o})
}

// failed counts a call that failed because a server is away, and reports whether it is the
// first. An unknown outcome counts while the server is away, but is no sign that it is.
func (o *outages) failed(queue string, err error) (counted, first bool) {
	unavailable := errors.Is(err, redrive.ErrUnavailable)
	if !unavailable && !errors.Is(err, redrive.ErrUnknown) {
		return false, false
	}
	if !o.source(queue) {
		queue = ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	span := o.spans[queue]
	if span == nil {
		if !unavailable {
			return false, false
		}
		span = &outage{since: now}
		o.spans[queue] = span
		first = true
		select {
		case o.begun <- struct{}{}:
		default:
		}
	}
	span.last = now
	span.failed++
	return true, first
}

// away returns since when servers are away, by queue of a source; "" is the store.
func (o *outages) away() map[string]time.Time {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]time.Time, len(o.spans))
	for queue, span := range o.spans {
		all[queue] = span.since
	}
	return all
}

// watch tells, until ctx ends, when a server is back: the store answers and nothing failed
// since the last look.
func (o *outages) watch(ctx context.Context, log *slog.Logger, now func(context.Context) (time.Time, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.begun:
		}
		tick := time.NewTicker(outageTick)
		for left := true; left; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			asked, cancel := context.WithTimeout(ctx, outageAsk)
			_, err := now(asked)
			cancel()
			left = o.end(ctx, log, err == nil)
		}
		tick.Stop()
	}
}

// end ends the outages that are over and reports whether some are left.
func (o *outages) end(ctx context.Context, log *slog.Logger, answers bool) (left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for queue, span := range o.spans {
		quiet := time.Since(span.last)
		if queue == "" && !answers || queue == "" && quiet < outageTick || queue != "" && quiet < outageQuiet {
			continue
		}
		delete(o.spans, queue)
		what, after := "store is back", time.Since(span.since)
		attrs := []slog.Attr{slog.Int("failed_calls", span.failed)}
		if queue != "" {
			what, after = "source is back", span.last.Sub(span.since)
			attrs = append(attrs, slog.String("queue", queue))
		}
		log.LogAttrs(ctx, slog.LevelWarn, what, append(attrs, slog.Duration("after", after.Round(time.Millisecond)))...)
	}
	return len(o.spans) > 0
}

// outageLog is a handler of what is logged.
type outageLog struct {
	slog.Handler
	o *outages
}

// WithAttrs implements slog.Handler.
func (l *outageLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &outageLog{l.Handler.WithAttrs(attrs), l.o}
}

// WithGroup implements slog.Handler.
func (l *outageLog) WithGroup(name string) slog.Handler {
	return &outageLog{l.Handler.WithGroup(name), l.o}
}

// Handle implements slog.Handler.
func (l *outageLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return l.Handler.Handle(ctx, r)
	}
	var err error
	var queue string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			err, _ = a.Value.Any().(error)
		case "queue":
			queue = a.Value.String()
		}
		return true
	})
	if err == nil {
		return l.Handler.Handle(ctx, r)
	}
	counted, first := l.o.failed(queue, err)
	switch {
	case !counted:
		return l.Handler.Handle(ctx, r)
	case !first:
		if !l.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
		return l.Handler.Handle(ctx, r)
	}
	line := slog.NewRecord(r.Time, slog.LevelError, "store unavailable", r.PC)
	if l.o.source(queue) {
		line.Message = "source unavailable"
		line.AddAttrs(slog.String("queue", queue))
	}
	line.AddAttrs(slog.String("on", r.Message), slog.Any("error", err))
	return l.Handler.Handle(ctx, line)
}
