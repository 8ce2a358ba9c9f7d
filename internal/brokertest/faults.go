package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/memory"
)

const (
	loadBatch   = 20
	loadBacklog = 500 // acknowledged and not handled; above it nothing is published
	loadFails   = 7   // each such message fails at its first attempt
)

// load accounts for messages through faults.
type load struct {
	mu       sync.Mutex
	offered  map[string]int // how often it may have been published, by id
	accepted map[string]bool
	handled  map[string]int
	attempts int // most of one message
}

func (l *load) fails(id string) bool {
	var n int
	_, _ = fmt.Sscanf(id, "m%d", &n)
	return n%loadFails == 0
}

func (l *load) handle(_ context.Context, d *redrive.Delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = max(l.attempts, d.Attempt)
	if d.Attempt == 1 && l.fails(d.ID) {
		return errors.New("the line is busy")
	}
	l.handled[d.ID]++
	return nil
}

// left counts the accepted messages that are not handled.
func (l *load) left() (left, accepted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.accepted {
		if l.handled[id] == 0 {
			left++
		}
	}
	return left, len(l.accepted)
}

// publish publishes a batch until each message was acknowledged once.
func (l *load) publish(ctx context.Context, s redrive.Sink, from int) {
	open := make(map[string]bool, loadBatch)
	for i := range loadBatch {
		open[id(from+i)] = true
	}
	for len(open) > 0 && ctx.Err() == nil {
		msgs := make([]redrive.Message, 0, len(open))
		for name := range open {
			msgs = append(msgs, redrive.Message{Queue: Queue, ID: name, Body: []byte("body")})
		}
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		errs := s.Publish(once, msgs)
		cancel()
		l.mu.Lock()
		for i, err := range errs {
			if err == nil || errors.Is(err, redrive.ErrUnknown) {
				l.offered[msgs[i].ID]++
			}
			if err == nil || errors.Is(err, redrive.ErrDuplicate) {
				l.accepted[msgs[i].ID] = true
				delete(open, msgs[i].ID)
			}
		}
		l.mu.Unlock()
		if len(open) > 0 {
			pause(ctx, 50*time.Millisecond)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// UnderLoad publishes and handles messages while faults happen, each after some hundred
// messages more, and accounts for them: what was acknowledged is handled, and no message
// more often than it was published and handed out anew by a fault. Publishing goes on
// until the last fault is over. A fault that kills the server brings it back, too.
func UnderLoad(t *testing.T, s backendtest.SourceSink, faults int, fault func(i int)) {
	t.Helper()
	const between = 300
	l := &load{offered: make(map[string]int), accepted: make(map[string]bool), handled: make(map[string]int)}
	store := memory.New()
	stop := Consume(t, store, 0, l.handle, redrive.QueueOptions{Sources: []redrive.Source{s}, Concurrency: 16, Policy: soon})
	over, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for at := 0; over.Err() == nil; at += loadBatch {
			for left, _ := l.left(); left > loadBacklog && over.Err() == nil; left, _ = l.left() {
				pause(over, 5*time.Millisecond)
			}
			l.publish(t.Context(), s, at)
		}
	})
	for i := range faults {
		_, before := l.left()
		Until(t, "messages are accepted", func() bool { _, now := l.left(); return now >= before+between })
		fault(i)
	}
	_, before := l.left()
	Until(t, "messages are accepted after the last fault", func() bool { _, now := l.left(); return now >= before+between })
	cancel()
	publisher.Wait()
	Until(t, "all are handled", func() bool { left, _ := l.left(); return left == 0 })
	stop()
	l.check(t, store, faults)
}

func (l *load) check(t *testing.T, store redrive.Store, faults int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	again, repeated := 0, 0
	for name, times := range l.handled {
		again += times - 1
		repeated += l.offered[name] - 1
		if most := l.offered[name] * (1 + faults); times > most {
			t.Errorf("%s was handled %d times, published %d times through %d faults", name, times, l.offered[name], faults)
		}
	}
	if most := 2 + faults; l.attempts > most {
		t.Errorf("a message had %d attempts, expected at most %d", l.attempts, most)
	}
	t.Logf("%d messages accepted through %d faults, none lost, %d perhaps published again, %d handled again, at most %d attempts", len(l.accepted), faults, repeated, again, l.attempts)
	counts, err := store.Counts(t.Context(), Queue)
	if err != nil || len(counts) != 1 || counts[0].AllDead() != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}
