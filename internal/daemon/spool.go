package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/internal/daemon/gateway/spool"
	"github.com/redrive/redrive/telemetry"
)

// openSpool puts the spool in front of a sink, if the configuration names a folder for
// it. What it still holds goes on when the daemon runs.
func (s *Server) openSpool(ctx context.Context, a *app, sink redrive.Sink) (redrive.Sink, error) {
	c := s.cfg.Spool
	if c.Dir == "" {
		return sink, nil
	}
	store, err := backend.Open(ctx, "sqlite:"+c.Dir, s.o.embedded()...)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	a.mask(store)
	s.closers.add(func() {
		if err := store.Close(); err != nil {
			s.log.LogAttrs(context.Background(), slog.LevelError, "spool", slog.Any("error", err))
		}
	})
	s.spool, err = spool.Open(ctx, sink, store, spool.Options{
		Messages: c.Messages, Bytes: int64(c.Bytes), Accepted: a.metrics.Spooled, Logger: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	a.metrics.Registry().MustRegister(telemetry.NewSpool(s.spool.Held, s.spool.Away))
	return s.spool, nil
}
