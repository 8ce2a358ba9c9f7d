package daemon

import (
	"sync"
	"sync/atomic"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/wire"
)

// sourceEndings counts what this process delivered from sources, by queue: the store's ledger knows only
// what came through the store. It is an observer of the engine. The zero value is ready.
type sourceEndings struct{ queues sync.Map } // of *endings by queue: as many as there are sources

// endings are how often a delivery ended with each outcome.
type endings [redrive.OutcomeDrop + 1]atomic.Int64

// Observe implements [engine.Observer].
func (s *sourceEndings) Observe(o *engine.Observation) {
	if o.Occasion == engine.OnSettled && o.Settlement != nil && o.Delivery != nil && o.Delivery.Identity != 0 {
		s.of(o.Queue)[o.Settlement.Outcome].Add(1)
	}
}

func (s *sourceEndings) of(queue string) *endings {
	if e, ok := s.queues.Load(queue); ok {
		return e.(*endings) //nolint:forcetypeassert // nothing else is stored
	}
	e, _ := s.queues.LoadOrStore(queue, new(endings))
	return e.(*endings) //nolint:forcetypeassert // nothing else is stored
}

// wire is what an answer says. Dead letters are the store's, unless the source keeps them.
func (e *endings) wire(native bool) *wire.QueueSource {
	out := &wire.QueueSource{Done: e[redrive.OutcomeDone].Load(), Dropped: e[redrive.OutcomeDrop].Load()}
	if native {
		out.Dead = e[redrive.OutcomeDead].Load()
	}
	return out
}
