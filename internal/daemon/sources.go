package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/telemetry"
)

// Waits of a source whose server is away at the start.
const (
	sourceFirst    = 5 * time.Second // how long the start waits for it
	sourcePause    = time.Second     // before the second try; then twice as long each time
	sourcePauseMax = 10 * time.Second
)

// sources are what queues take messages from beside the store. A nil one has none.
type sources struct {
	mu      sync.RWMutex
	open    map[string]backend.SourceSink // by queue
	waiting map[string]bool               // by queue; the server is away since the start
}

func (s *sources) of(queue string) backend.SourceSink {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.open[queue]
}

// awaits reports whether the source of a queue could not be opened yet.
func (s *sources) awaits(queue string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.waiting[queue]
}

// away returns how many could not be opened yet.
func (s *sources) away() int {
	if s == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.waiting)
}

func (s *sources) put(queue string, src backend.SourceSink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[queue] = src
	delete(s.waiting, queue)
}

// stats returns the sources that tell of themselves, and those that could not be opened yet.
func (s *sources) stats() map[string]driver.StatsSource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	by := make(map[string]driver.StatsSource)
	for name := range s.waiting {
		by[name] = absent{}
	}
	for name, src := range s.open {
		if of, ok := driver.As[driver.StatsSource](src); ok {
			by[name] = of
		}
	}
	return by
}

// openSources opens what the queues take messages from beside the store. A server that is away
// keeps only its own queue waiting.
func (s *Server) openSources(ctx context.Context) error {
	s.sources = &sources{open: make(map[string]backend.SourceSink), waiting: make(map[string]bool)}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Queues)) {
		q := s.cfg.Queues[name]
		if q == nil || q.Source == "" {
			continue
		}
		src, err := s.openSource(ctx, name, q, sourceFirst)
		switch {
		case err == nil:
			s.sources.put(name, src)
		case isAway(err):
			s.sources.waiting[name] = true
			s.outages.opening(name)
			s.log.LogAttrs(ctx, slog.LevelError, "opening a source", slog.String("queue", name), slog.Any("error", fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)))
		default:
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	if len(s.sources.open)+len(s.sources.waiting) > 0 {
		s.app.metrics.Registry().MustRegister(telemetry.NewSourceStats(s.sources.stats))
	}
	return nil
}

// isAway reports whether a server did not answer, which another try may mend.
func isAway(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.Is(err, redrive.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) || errors.As(err, &dns)
}

// openSource opens the source of a queue, and checks what its settings promise.
func (s *Server) openSource(ctx context.Context, name string, q *config.Queue, timeout time.Duration) (backend.SourceSink, error) {
	address, err := q.Source.Resolve()
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	src, err := backend.OpenSource(short, address, backend.SourceOptions{Queue: name, Native: q.DeadLetters == config.DeadLettersNative,
		Ordered: q.Order == "key", Log: s.log})
	if err != nil {
		return nil, err
	}
	if err := s.probe(ctx, src); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	s.app.mask(src)
	s.closers.add(func() {
		if err := src.Close(); err != nil {
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "closing a source failed", slog.String("queue", name), slog.Any("error", err))
		}
	})
	return &replyChecked{SourceSink: src, app: s.app}, nil
}

// awaitSources opens the sources whose servers were away at the start, each when it answers, and
// then consumes its queue.
func (s *Server) awaitSources(ctx context.Context) {
	var all sync.WaitGroup
	for name := range maps.Clone(s.sources.waiting) {
		all.Go(func() { s.awaitSource(ctx, name) })
	}
	all.Wait()
}

func (s *Server) awaitSource(ctx context.Context, name string) {
	q := s.cfg.Queues[name] // a change of the source needs a restart
	said := ""
	for pause := sourcePause; ; pause = min(2*pause, sourcePauseMax) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		src, err := s.openSource(ctx, name, q, openTimeout)
		switch {
		case err == nil:
			if err = s.consumeFrom(name, src); err != nil {
				s.log.LogAttrs(ctx, slog.LevelError, "cannot consume a queue", slog.String("queue", name), slog.Any("error", err))
			}
			s.outages.opened(ctx, s.log, name)
			return
		case ctx.Err() == nil && !isAway(err) && err.Error() != said: // it answers, and is not as it should be
			said = err.Error()
			s.log.LogAttrs(ctx, slog.LevelError, "the source of a queue is refused: it is tried again", slog.String("queue", name), slog.Any("error", err))
		}
	}
}

// consumeFrom takes a source that was opened late, and consumes its queue by the configuration in
// force.
func (s *Server) consumeFrom(name string, src backend.SourceSink) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.sources.put(name, src)
	cfg := s.app.conf()
	q := cfg.Queues[name]
	if q == nil || q.Deliver == nil {
		return nil
	}
	c, err := s.consumedBy(cfg, name, q.Deliver)
	if err != nil {
		return err
	}
	return s.handle(name, c)
}

// sourcesOf returns what a queue takes messages from beside the store.
func (s *Server) sourcesOf(queue string) []driver.Source {
	if src := s.sources.of(queue); src != nil {
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
	sink, _ := driver.As[driver.DeadLetterSink](s.sources.of(queue))
	return sink
}

// absent takes nothing: the server of a queue's source was not reached yet, and what it can do is
// not known.
type absent struct{}

// SourceStats implements driver.StatsSource.
func (absent) SourceStats(context.Context) (driver.SourceStats, error) {
	return driver.SourceStats{}, redrive.ErrUnavailable
}

// Publish implements redrive.Sink.
func (absent) Publish(_ context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	for i := range msgs {
		errs[i] = &redrive.Error{Op: "publish", Queue: msgs[i].Queue, Err: redrive.ErrUnavailable, Hint: "the server of the queue's source does not answer; publish again later"}
	}
	return errs
}

// routed is the store, but that what is published to a queue with a source goes there,
// unless it asks for what the source cannot do. Both feed the same consumer.
type routed struct {
	driver.Store
	sources *sources
	answers func(queue string) bool // see [app.answersInto]
}

// Publish implements redrive.Sink.
func (r *routed) Publish(ctx context.Context, msgs []redrive.Message) []error {
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
	src := r.sources.of(m.Queue)
	switch {
	case src != nil:
	case r.sources.awaits(m.Queue):
		return absent{}
	default:
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
