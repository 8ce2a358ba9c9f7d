package jetstream

import (
	"context"

	"github.com/redrive/redrive/driver"
)

// SourceStats tells how far the consumer is, and what this process holds. It asks the
// server.
func (s *Source) SourceStats(ctx context.Context) (driver.SourceStats, error) {
	stats := driver.SourceStats{Lag: driver.Unknown, Uncommitted: 0, Dead: driver.Unknown, OldestUnacked: driver.Unknown, Reconnects: int64(s.nc.Stats().Reconnects)} //nolint:gosec // a count
	s.mu.Lock()
	stats.Buffered, stats.Unacked = int64(len(s.buffer)), int64(s.inFlight)
	s.mu.Unlock()
	stream, err := s.js.Stream(ctx, s.at.stream)
	if err != nil {
		return stats, err
	}
	consumer, err := stream.Consumer(ctx, s.at.consumer)
	if err != nil {
		return stats, err
	}
	stats.Lag = int64(consumer.CachedInfo().NumPending) //nolint:gosec // a count
	if s.o.Native {
		dead, err := s.js.Stream(ctx, s.at.dlq)
		if err != nil {
			return stats, err
		}
		stats.Dead = int64(dead.CachedInfo().State.Msgs) //nolint:gosec // a count
	}
	return stats, nil
}
