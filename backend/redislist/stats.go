package redislist

import (
	"context"
	"errors"
	"sync"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// SourceStats returns what the queues that this source has met hold, asking the server, and
// what this process itself claimed and has not settled. A message whose handler
// never settles it stays in that number until the source is closed.
func (s *Source) SourceStats(ctx context.Context) (driver.SourceStats, error) {
	stats := driver.SourceStats{Unacked: s.held.count(), Reconnects: driver.Unknown, OldestUnacked: driver.Unknown}
	if err := s.enter(ctx); err != nil {
		return stats, err
	}
	s.mu.Lock()
	queues := make([]*queue, 0, len(s.queues))
	for _, q := range s.queues {
		queues = append(queues, q)
	}
	s.mu.Unlock()
	for _, q := range queues {
		st, err := s.stats(ctx, q)
		if err != nil {
			return stats, err
		}
		stats.Lag += st.waiting
		for _, n := range st.delayed {
			stats.Lag += n
		}
		stats.Dead += st.dead
	}
	return stats, nil
}

// claims counts what this process claimed and has not settled yet.
type claims struct {
	mu     sync.Mutex
	claims map[string]struct{} // by the position of their receipts
}

func (h *claims) take(ds []redrive.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims == nil {
		h.claims = make(map[string]struct{})
	}
	for i := range ds {
		h.claims[ds[i].Receipt.Position] = struct{}{}
	}
}

// leave forgets what was settled, or is another's.
func (h *claims) leave(list []driver.Settlement, part []int, errs []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range part {
		if err := errs[i]; err == nil || errors.Is(err, redrive.ErrLeaseLost) || errors.Is(err, redrive.ErrNotFound) {
			delete(h.claims, list[i].Receipt.Position)
		}
	}
}

func (h *claims) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.claims))
}
