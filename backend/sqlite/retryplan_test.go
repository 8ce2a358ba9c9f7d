package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// examining counts the entries that look-ups examine.
type examining struct {
	*Store
	examined, finds atomic.Int64
}

func (s *examining) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	page, err := s.Store.Find(ctx, q)
	s.examined.Add(int64(page.Examined))
	s.finds.Add(1)
	return page, err
}

// TestFortyThousandRetries: after an outage a plan makes 40,000 messages due that wait for an hour, and looks at
// each once; what else waits in the queue is looked at once, too.
func TestFortyThousandRetries(t *testing.T) {
	const n, others = 40_000, 10_000
	s := &examining{Store: open(t, t.TempDir())}
	now, err := s.Now(t.Context())
	noErr(t, err)
	put := func(n int, change func(e *redrive.Entry)) {
		for range n / 1000 {
			list := make([]redrive.Entry, 1000)
			for i := range list {
				list[i] = redrive.Entry{Message: message("q", "x"), State: redrive.StateWaiting, Lane: redrive.LaneRetry, Attempts: 1, Due: now.Add(time.Hour),
					History: redrive.History{Count: 1, First: &redrive.Failure{Message: "down", Signature: "down"}}}
				change(&list[i])
			}
			errs, err := s.Apply(t.Context(), driver.Batch{Put: list})
			noErr(t, append(errs, err)...)
		}
	}
	put(n, func(*redrive.Entry) {})
	put(others, func(e *redrive.Entry) { e.Lane = redrive.LaneFresh })
	plans := plan.New(s, plan.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- plans.Run(ctx) }()
	began := time.Now()
	p, err := plans.Create(t.Context(), plan.Request{Action: driver.ActDueNow, Query: redrive.Query{Queue: "q"}, Rate: 100_000})
	noErr(t, err)
	for p.State == plan.Running {
		select {
		case <-time.After(20 * time.Millisecond):
		case err := <-ended:
			t.Fatal(err)
		}
		p, err = plans.Get(t.Context(), p.ID)
		noErr(t, err)
	}
	t.Logf("%d were due after %s; %d entries examined by %d look-ups", p.Done, time.Since(began), s.examined.Load(), s.finds.Load())
	if p.State != plan.Done || p.Total != n || p.Done != n || p.Failed != 0 {
		t.Errorf("%s: %d of %d, %v", p.State, p.Done, p.Total, p.Errors)
	}
	if most := int64(n + others + 1000); s.examined.Load() > most {
		t.Errorf("%d entries were examined, want at most %d", s.examined.Load(), most)
	}
	counts, err := s.Counts(t.Context(), "q")
	if err != nil || fmt.Sprint(counts[0].Waiting[:2]) != fmt.Sprint([]int64{others, n}) {
		t.Errorf("%+v, %v", counts, err)
	}
	cancel()
	noErr(t, <-ended)
}
