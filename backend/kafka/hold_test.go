package kafka

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/brokertest"
)

// adoptedWhileHandled lets one record hold its partition back: the store adopts it, all is
// committed, and its failure is still recorded when its handler ends, also if another member
// has the partition by then.
func adoptedWhileHandled(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{Queue: brokertest.Queue, Hold: time.Millisecond})
	const n = 50
	publishN(t, s, n)
	store := memory.New()
	end := make(chan struct{})
	var calls atomic.Int64
	handler := func(ctx context.Context, d *redrive.Delivery) error {
		if d.ID != "m3" {
			return nil
		}
		if calls.Add(1) > 1 {
			if d.Attempt != 2 || d.Failures != 1 || string(d.Body) != "body 3" || d.Key != "k3" {
				t.Errorf("after its failure: %+v", d)
			}
			return nil
		}
		select {
		case <-end:
			return redrive.RetryAfter(context.DeadlineExceeded, time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stop := brokertest.Consume(t, store, 0, handler, redrive.QueueOptions{Sources: []redrive.Source{s}})
	defer stop()
	brokertest.Until(t, "all is committed", func() bool { return c.committed(t, s) == n })
	if counts, err := store.Counts(t.Context(), redrive.HeldQueue); err != nil || counts[0].Leased != 1 {
		t.Errorf("the store holds %+v, %v", counts, err)
	}
	other := connect(t, address, Options{Queue: brokertest.Queue})
	publishN(t, other, 1)
	brokertest.Until(t, "the member that came has nothing of it", func() bool {
		return c.committed(t, s) == n+1 || takes(t, other)
	})
	close(end)
	brokertest.Until(t, "it is handled again", func() bool {
		counts, err := store.Counts(t.Context(), brokertest.Queue, redrive.HeldQueue)
		return err == nil && calls.Load() == 2 && counts[0].AllWaiting() == 0 && counts[1].AllWaiting() == 0
	})
}

// takes claims and settles what a source has, and reports whether it was what stands behind
// the records of the test.
func takes(t *testing.T, s *Source) bool {
	t.Helper()
	ds, err := s.Claim(t.Context(), redrive.ClaimRequest{Queue: s.o.Queue, Max: 1, Lease: time.Minute, Instance: "other"})
	if err != nil || len(ds) == 0 {
		return false
	}
	if ds[0].ID != "m0" || !strings.HasSuffix(ds[0].Origin, "/0/50") {
		t.Errorf("the other member got %s at %s", ds[0].ID, ds[0].Origin)
	}
	return redrive.FirstError(s.Settle(t.Context(), done(ds...))) == nil
}

// committed returns the committed offset of the first partition.
func (c *cluster) committed(t *testing.T, s *Source) int64 {
	t.Helper()
	offsets, err := c.admin.FetchOffsets(t.Context(), s.group)
	if err != nil {
		return -1
	}
	at, _ := offsets.Lookup(s.topic, 0)
	return at.At
}

func TestHoldingBack(t *testing.T) {
	now := time.Now()
	old, young := hand{token: 1, since: now.Add(-time.Hour)}, hand{token: 1, since: now}
	for name, p := range map[string]struct {
		window window
		hands  map[int64]hand
		want   int
	}{
		"nothing is finished above":  {window{mark: 5}, map[int64]hand{5: old}, 0},
		"what is above holds nobody": {window{mark: 5, ranges: []span{{6, 9}}}, map[int64]hand{5: old, 9: old}, 1},
		"they are young":             {window{mark: 5, ranges: []span{{6, 20_000}}}, map[int64]hand{5: young}, 0},
		"the window is nearly full":  {window{mark: 5, ranges: []span{{7, 95_000}}}, map[int64]hand{5: young, 6: young, 94_999: young}, 2},
		"far, with nobody behind it": {window{mark: 5, ranges: []span{{6, 95_000}}}, map[int64]hand{95_001: old}, 0},
	} {
		s := &Source{o: Options{Hold: DefaultHold}}
		if got := s.heldBackLocked(&partition{window: p.window, hands: p.hands}, now); len(got) != p.want {
			t.Errorf("%s: %d hold back, want %d", name, len(got), p.want)
		}
	}
}
