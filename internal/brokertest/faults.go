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
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/servertest"
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
	waiting  map[string]bool // accepted, not handled
	handled  map[string]int
	attempts int // most of one message

	store  *memory.Store
	enough func() // ends publishing
	stop   func() // ends handling
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
	delete(l.waiting, d.ID)
	return nil
}

// left counts the accepted messages that are not handled.
func (l *load) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// count counts the accepted messages.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
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
			if err == nil || errors.Is(err, redrive.ErrUnknown) || errors.Is(err, redrive.ErrBacklogged) {
				l.offered[msgs[i].ID]++
			}
			if err == nil || errors.Is(err, redrive.ErrDuplicate) {
				l.accepted[msgs[i].ID] = true
				if l.handled[msgs[i].ID] == 0 {
					l.waiting[msgs[i].ID] = true
				}
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

// UnderLoad publishes to sources and handles their messages while faults happen, each
// after some hundred messages more, and accounts for them: what was acknowledged is
// handled, and no message more often than it was published and claimed anew by a
// fault. Publishing goes on until the last fault is over. A fault that kills the server
// brings it back, too.
func UnderLoad(t *testing.T, faults int, fault func(i int), sources ...backendtest.SourceSink) {
	t.Helper()
	loads := make([]*load, len(sources))
	for i, s := range sources {
		loads[i] = newLoad(t, s)
	}
	for i := range faults {
		more(t, loads)
		fault(i)
	}
	more(t, loads)
	for _, l := range loads {
		l.finish(t, faults)
	}
}

// newLoad begins to publish to a source and to handle what comes.
func newLoad(t *testing.T, s backendtest.SourceSink) *load {
	t.Helper()
	l := &load{offered: make(map[string]int), accepted: make(map[string]bool), waiting: make(map[string]bool), handled: make(map[string]int), store: memory.New()}
	l.stop = Consume(t, l.store, 0, l.handle, engine.QueueOptions{Sources: []driver.Source{s}, Concurrency: 16, Policies: soon})
	over, cancel := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for at := 0; over.Err() == nil; at += loadBatch {
			for l.left() > loadBacklog && over.Err() == nil {
				pause(over, 5*time.Millisecond)
			}
			l.publish(t.Context(), s, at)
		}
	})
	l.enough = func() { cancel(); publisher.Wait() }
	return l
}

// more waits until each load has some hundred messages more.
func more(t *testing.T, loads []*load) {
	t.Helper()
	const between = 300
	for _, l := range loads {
		before := l.count()
		servertest.Until(t, "messages are accepted", func() bool { return l.count() >= before+between })
	}
}

func (l *load) finish(t *testing.T, faults int) {
	t.Helper()
	l.enough()
	servertest.Until(t, "all are handled", func() bool { return l.left() == 0 })
	l.stop()
	l.check(t, faults)
}

func (l *load) check(t *testing.T, faults int) {
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
	counts, err := l.store.Counts(t.Context(), Queue)
	if err != nil || len(counts) != 1 || counts[0].AllDead() != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}
