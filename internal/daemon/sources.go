package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/telemetry"
)

// openSources opens what the queues take messages from beside the store.
func (s *Server) openSources(ctx context.Context) error {
	s.sources = make(map[string]backend.SourceSink)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Queues)) {
		q := s.cfg.Queues[name]
		if q == nil || q.Source == "" {
			continue
		}
		address, err := q.Source.Resolve()
		if err != nil {
			return fmt.Errorf("queue %s: source: %w", name, err)
		}
		src, err := openSource(ctx, address, backend.SourceOptions{Queue: name, Native: q.DeadLetters == config.DeadLettersNative,
			Ordered: q.Order == "key", Log: s.log})
		if err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
		s.app.mask(src)
		s.sources[name] = &replyChecked{SourceSink: src, app: s.app}
		s.closers.add(func() {
			if err := src.Close(); err != nil {
				s.log.LogAttrs(context.Background(), slog.LevelWarn, "closing a source failed", slog.String("queue", name), slog.Any("error", err))
			}
		})
		if err := s.probe(ctx, src); err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	if stats := s.sourceStats(); len(stats) > 0 {
		s.app.metrics.Registry().MustRegister(telemetry.NewSourceStats(stats))
	}
	return nil
}

// sourceStats returns the sources that tell of themselves.
func (s *Server) sourceStats() map[string]driver.StatsSource {
	by := make(map[string]driver.StatsSource)
	for name, src := range s.sources {
		if of, ok := driver.As[driver.StatsSource](src); ok {
			by[name] = of
		}
	}
	return by
}

func openSource(ctx context.Context, address string, o backend.SourceOptions) (backend.SourceSink, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return backend.OpenSource(ctx, address, o)
}

// sourcesOf returns what a queue takes messages from beside the store.
func (s *Server) sourcesOf(queue string) []driver.Source {
	if src, ok := s.sources[queue]; ok {
		return []driver.Source{src}
	}
	return nil
}

// deadLettersOf returns what takes a queue's dead letters instead of the store, also those
// that died there: a source that is to keep them and cannot take its retries back.
func (s *Server) deadLettersOf(queue string) driver.DeadLetterSink {
	if q := s.cfg.Queues[queue]; q == nil || q.DeadLetters != config.DeadLettersNative {
		return nil
	}
	sink, _ := driver.As[driver.DeadLetterSink](s.sources[queue])
	return sink
}

// routed is the store, but that what is published to a queue with a source goes there,
// unless it asks for what the source cannot do. Both feed the same consumer.
type routed struct {
	driver.Store
	sources map[string]backend.SourceSink
	answers func(queue string) bool // see [app.answersInto]
}

// Publish implements redrive.Sink.
func (r *routed) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if len(r.sources) == 0 {
		return r.Store.Publish(ctx, msgs)
	}
	by := make(map[redrive.Sink][]int)
	for i := range msgs {
		sink := r.sinkOf(&msgs[i])
		by[sink] = append(by[sink], i)
	}
	if len(by) == 1 {
		for sink := range by {
			return sink.Publish(ctx, msgs)
		}
	}
	errs := make([]error, len(msgs))
	for sink, of := range by {
		part := make([]redrive.Message, len(of))
		for i, at := range of {
			part[i] = msgs[at]
		}
		each := sink.Publish(ctx, part)
		for i, at := range of {
			msgs[at].ID = part[i].ID
			if each != nil {
				errs[at] = each[i]
			}
		}
	}
	return errs
}

// sinkOf chooses where a message goes. An id that the caller chose is remembered only by
// what can remember ids.
func (r *routed) sinkOf(m *redrive.Message) redrive.Sink {
	src, ok := r.sources[m.Queue]
	if !ok {
		return r.Store
	}
	caps := src.Caps()
	switch {
	case caps.ReadOnly,
		m.ID != "" && !caps.Remembers,
		!m.DeliverAt.IsZero() && caps.MaxDelay != driver.Never,
		m.Delay > caps.MaxDelay,
		!m.ExpiresAt.IsZero() && !caps.Expires,
		m.ReplyTo != "" && !r.answers(m.ReplyTo): // its header would not be believed
		return r.Store
	}
	return src
}
