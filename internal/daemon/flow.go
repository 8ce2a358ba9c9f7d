package daemon

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/wire"
)

const (
	flowMinutes = 15
	flowKinds   = 64 // of a queue and minute that are counted by themselves
)

// flows count what this process delivered, by queue and minute, for the last minutes. It is
// an observer of the engine. The zero value is ready.
type flows struct {
	mu     sync.RWMutex
	queues map[string]*flow
}

// flow is what became of a queue's attempts.
type flow struct {
	mu      sync.Mutex
	minutes [flowMinutes]flowMinute

	// What came from the queue's source, and not from the store whose ledger counts, ended so often.
	ended [redrive.OutcomeDrop + 1]atomic.Int64
}

type flowMinute struct {
	minute            int64 // since 1970
	delivered, failed int64
	kinds             map[string]int64 // delivered, by kind
}

// Observe implements engine.Observer.
func (s *flows) Observe(o *engine.Observation) {
	failed := o.Occasion == engine.OnEnd && o.Err != nil
	settled := o.Occasion == engine.OnSettled && o.Settlement != nil
	if settled && o.Delivery != nil && o.Delivery.Identity != 0 {
		s.of(o.Queue).ended[o.Settlement.Outcome].Add(1)
	}
	delivered := settled && o.Settlement.Outcome == redrive.OutcomeDone
	if !failed && !delivered {
		return
	}
	kind := ""
	if o.Delivery != nil {
		kind = o.Delivery.Kind
	}
	s.of(o.Queue).note(time.Now(), kind, delivered)
}

func (s *flows) of(queue string) *flow {
	s.mu.RLock()
	f := s.queues[queue]
	s.mu.RUnlock()
	if f != nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = make(map[string]*flow)
	}
	if s.queues[queue] == nil {
		s.queues[queue] = new(flow)
	}
	return s.queues[queue]
}

// source returns what became of what a queue's source delivered. Its dead letters are the store's,
// unless the source keeps them.
func (s *flows) source(queue string, native bool) *wire.QueueSource {
	f := s.of(queue)
	out := &wire.QueueSource{Done: f.ended[redrive.OutcomeDone].Load(), Dropped: f.ended[redrive.OutcomeDrop].Load()}
	if native {
		out.Dead = f.ended[redrive.OutcomeDead].Load()
	}
	return out
}

func (f *flow) note(now time.Time, kind string, delivered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	minute := now.Unix() / 60
	m := &f.minutes[minute%flowMinutes]
	if m.minute != minute {
		*m = flowMinute{minute: minute}
	}
	if !delivered {
		m.failed++
		return
	}
	m.delivered++
	if m.kinds == nil {
		m.kinds = make(map[string]int64)
	}
	if _, known := m.kinds[kind]; known || len(m.kinds) < flowKinds {
		m.kinds[kind]++
	}
}

// flowed is what became of a queue's attempts in some minutes.
type flowed struct {
	delivered, failed, kindDelivered int64
	minutes                          int // in which anything ended
}

// in sums up the minutes that were named, or all of the last ones if none were.
func (s *flows) in(queue string, minutes map[int64]bool, kinds map[string]bool, now time.Time) (sum flowed) {
	f := s.of(queue)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.minutes {
		m := &f.minutes[i]
		if ago := now.Unix()/60 - m.minute; ago < 0 || ago >= flowMinutes || len(minutes) > 0 && !minutes[m.minute] {
			continue
		}
		sum.minutes++
		sum.delivered += m.delivered
		sum.failed += m.failed
		for kind, n := range m.kinds {
			if kinds[kind] {
				sum.kindDelivered += n
			}
		}
	}
	return sum
}
