package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// endsKept is how long the ends of topics are taken for current.
const endsKept = 5 * time.Second

// ends are those of the topics, as they were asked for last.
type ends struct {
	mu   sync.Mutex
	at   time.Time
	of   map[place]int64
	dead int64
}

// SourceStats tells of the partitions that are ours. Lag is what Kafka's own tools call
// so, the ends less the committed offsets; it and Dead count offsets, of which the ends of transactions
// take one each. They are at most five seconds old.
func (s *Source) SourceStats(ctx context.Context) (driver.SourceStats, error) {
	stats := driver.SourceStats{Dead: driver.Unknown, Reconnects: driver.Unknown}
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	if time.Since(s.ends.at) > endsKept {
		if err := s.measure(ctx); err != nil {
			return stats, &redrive.Error{Op: "stats", Queue: s.o.Queue, Err: err}
		}
	}
	if s.o.Native {
		stats.Dead = s.ends.dead
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.epochs {
		stats.Buffered += int64(len(p.buffer) + p.behindLocked())
		stats.Unacked += int64(len(p.inflight))
		for _, h := range p.inflight {
			stats.OldestUnacked = max(stats.OldestUnacked, now.Sub(h.since))
		}
		stats.Uncommitted += p.window.above()
		if end, ok := s.ends.of[p.place]; ok && (p.next >= 0 || p.known) {
			stats.Lag += max(end-p.window.committed, 0)
		}
	}
	return stats, nil
}

// measure asks for the ends of the topics, and how many dead letters there are.
func (s *Source) measure(ctx context.Context) error {
	topics := []string{s.topic}
	if s.o.Native {
		topics = append(append(topics, s.tierTopics()...), s.dlq)
	}
	found, err := s.admin.ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = found.Error()
	}
	if err != nil {
		return err
	}
	of, dead := make(map[place]int64), int64(0)
	found.Each(func(o kadm.ListedOffset) {
		of[place{o.Topic, o.Partition}] = o.Offset
		if s.o.Native && o.Topic == s.dlq {
			dead += o.Offset
		}
	})
	if s.o.Native {
		starts, err := s.admin.ListStartOffsets(ctx, s.dlq)
		if err == nil {
			err = starts.Error()
		}
		if err != nil {
			return err
		}
		starts.Each(func(o kadm.ListedOffset) { dead -= o.Offset })
	}
	s.ends.of, s.ends.dead, s.ends.at = of, dead, time.Now()
	return nil
}
