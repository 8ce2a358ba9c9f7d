package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/servertest"
)

// revokedIsCancelled takes partitions away from handlers that do not end: the group goes on
// without them, they are cancelled, and what they say afterwards is not committed.
func revokedIsCancelled(t *testing.T, c *cluster) {
	address := c.topic(t, 2)
	const n = 20
	s := connect(t, address, Options{Queue: brokertest.Queue, Drain: time.Millisecond})
	publishN(t, s, n)
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	var mu sync.Mutex
	begun, cancelled, handled := map[string]bool{}, map[string]bool{}, map[string]bool{}
	stopFirst := brokertest.Consume(t, memory.New(), 0, func(ctx context.Context, d *redrive.Delivery) error {
		mu.Lock()
		begun[d.ID] = true
		mu.Unlock()
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, redrive.ErrLeaseLost) {
				t.Errorf("%s: %v", d.ID, cause)
			}
			mu.Lock()
			cancelled[d.ID] = true
			mu.Unlock()
		case <-release:
		}
		return nil // it says that it is done all the same
	}, engine.QueueOptions{Sources: []driver.Source{s}, Lease: time.Second, Concurrency: n})
	defer stopFirst()
	defer end()
	servertest.Until(t, "the first has all in flight", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(begun) == n
	})

	other := connect(t, address, Options{Queue: brokertest.Queue})
	stopOther := brokertest.Consume(t, memory.New(), 0, func(_ context.Context, d *redrive.Delivery) error {
		<-release
		mu.Lock()
		handled[d.ID] = true
		mu.Unlock()
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{other}, Concurrency: n})
	defer stopOther()
	defer end()
	var theirs int64
	servertest.Until(t, "the other has what the first had, whose handlers are cancelled", func() bool {
		stats, err := other.SourceStats(t.Context())
		mu.Lock()
		defer mu.Unlock()
		theirs = stats.Unacked
		return err == nil && theirs > 0 && stats.Buffered == 0 && stats.Lag == theirs && int64(len(cancelled)) == theirs
	})
	servertest.Until(t, "their results came too late", func() bool {
		stats, err := s.SourceStats(t.Context())
		return err == nil && stats.Unacked == n-theirs
	})
	if committed := c.sum(t, s); committed != 0 {
		t.Errorf("%d are committed, and nobody has ended who may", committed)
	}
	end()
	servertest.Until(t, "all are committed", func() bool { return c.sum(t, s) == n })
	mu.Lock()
	defer mu.Unlock()
	for id := range cancelled {
		if !handled[id] {
			t.Errorf("%s was cancelled and not handled again", id)
		}
	}
}

// sum is how many records of the topic are committed, in a partition from its start.
func (c *cluster) sum(t *testing.T, s *Source) (n int64) {
	t.Helper()
	offsets, err := c.admin.FetchOffsets(t.Context(), s.group)
	if err != nil {
		return -1
	}
	for _, at := range offsets[s.topic] {
		n += max(at.At, 0)
	}
	return n
}
