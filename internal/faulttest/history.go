// Package faulttest drives a store in tests while its server or its connections fail,
// and accounts for every message afterwards.
package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// History follows messages through faults: what was acknowledged, what was refused and
// what is not known.
type History struct {
	mu       sync.Mutex
	accepted map[string]bool
	unknown  map[string]bool
	refused  map[string]bool
	done     map[string]bool // settled as done, acknowledged
	perhaps  map[string]bool // settled, not known
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{accepted: map[string]bool{}, unknown: map[string]bool{}, refused: map[string]bool{}, done: map[string]bool{}, perhaps: map[string]bool{}}
}

func (h *History) published(id string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, redrive.ErrDuplicate):
		h.accepted[id] = true
	case errors.Is(err, redrive.ErrUnknown):
		h.unknown[id] = true
	default:
		h.refused[id] = true
	}
}

func (h *History) settled(t testing.TB, id string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && h.done[id]:
		t.Errorf("%s was settled as done twice", id)
	case err == nil:
		h.done[id] = true
	case errors.Is(err, redrive.ErrUnknown):
		h.perhaps[id] = true
	}
}

// Check accounts for every message.
func (h *History) Check(t testing.TB, s driver.Store, queue string) {
	t.Helper()
	left := map[string]bool{}
	for _, e := range Entries(t, s, queue) {
		if left[e.ID] {
			t.Errorf("%s is there twice", e.ID)
		}
		left[e.ID] = true
	}
	for id := range h.accepted {
		switch {
		case h.done[id] && left[id]:
			t.Errorf("%s was settled and is there", id)
		case !h.done[id] && !h.perhaps[id] && !left[id]:
			t.Errorf("%s was accepted and is lost", id)
		}
	}
	for id := range left {
		if !h.accepted[id] && !h.unknown[id] {
			t.Errorf("%s was refused and is there", id)
		}
	}
	Audited(t, s)
	t.Logf("accepted %d, unknown %d, refused %d, done %d, perhaps done %d, left %d", len(h.accepted), len(h.unknown), len(h.refused), len(h.done), len(h.perhaps), len(left))
}

// Entries returns all messages of a queue.
func Entries(t testing.TB, s driver.Store, queue string) (all []redrive.Entry) {
	t.Helper()
	q := redrive.Query{Queue: queue, Limit: redrive.MaxPage}
	for {
		page, err := s.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Entries...)
		if q.After = page.Next; q.After == "" {
			return all
		}
	}
}

// Traffic publishes, claims and settles until it is stopped.
func (h *History) Traffic(t testing.TB, s driver.Store, queue string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				h.published(id, driver.FirstError(s.Publish(context.Background(), []redrive.Message{{Queue: queue, ID: id, Body: []byte(id)}})))
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				req := driver.ClaimRequest{Queue: queue, Max: 1 + p*5, Lease: time.Minute, Instance: fmt.Sprint(p)}
				got, err := s.Claim(context.Background(), req)
				if err != nil || len(got) == 0 {
					sleep(ctx, time.Millisecond)
					continue
				}
				list := make([]driver.Settlement, len(got))
				for j := range got {
					list[j] = driver.Settlement{Receipt: got[j].Receipt, Outcome: redrive.OutcomeDone}
					if j%3 == 2 {
						list[j].Outcome, list[j].Reason = redrive.OutcomeDead, redrive.ReasonPermanent
					}
				}
				for try := 0; ; try++ { // what is unknown is repeated, as the engine does
					errs := s.Settle(context.Background(), list)
					unknown := false
					for j := range list {
						var err error
						if errs != nil {
							err = errs[j]
						}
						unknown = unknown || errors.Is(err, redrive.ErrUnknown)
						if list[j].Outcome == redrive.OutcomeDone {
							h.settled(t, got[j].ID, err)
						}
					}
					if !unknown || try == 20 || ctx.Err() != nil {
						break
					}
					sleep(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// Busy waits until messages were published and settled since.
func (h *History) Busy(t testing.TB, n int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	h.mu.Lock()
	accepted, done := len(h.accepted)+n, len(h.done)+n
	h.mu.Unlock()
	for {
		<-poll.C
		h.mu.Lock()
		enough := len(h.accepted) >= accepted && len(h.done) >= done
		h.mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing goes on any more")
		}
	}
}

// Audited checks the ledger of a store.
func Audited(t testing.TB, s driver.Store) {
	t.Helper()
	audits, err := s.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range audits {
		if a.Imbalance() != 0 || len(a.Problems) > 0 {
			t.Errorf("the ledger is wrong: %+v", a)
		}
	}
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
