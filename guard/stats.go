package guard

import (
	"iter"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard/internal/machine"
)

// Event is one thing that happened to a guard: a provider changed its state, or a
// request was put off.
type Event struct {
	Guard    string
	Provider string // of a change of state
	At       time.Time
	From, To State
	Deferred redrive.Ref // the request that was put off
	Reason   string
}

// Stats is what a guard shows of one provider.
type Stats struct {
	Provider string           `json:"provider"`
	State    string           `json:"state"`
	Reason   string           `json:"reason,omitempty"` // why it is in that state
	Since    time.Time        `json:"since"`
	Until    time.Time        `json:"until,omitzero"`     // end of a hold, an isolation or a pause
	Share    float64          `json:"share"`              // of the live calls that goes through
	RateCap  float64          `json:"rate_cap,omitempty"` // calls a second while it is limited; 0: none
	Drain    float64          `json:"drain_rate"`         // calls of the backlog a second, at most
	Demand   float64          `json:"demand"`             // live calls a second
	InUse    int              `json:"in_use"`             // calls in flight
	Overdue  int              `json:"overdue,omitempty"`  // of these, past their timeout: they ignore their context
	Calls    map[string]int64 `json:"calls"`              // ended calls by class
	Refused  int64            `json:"refused"`            // live calls that it was not asked for
}

// Snapshot yields the providers by name, in the order of the configuration.
func (g *Guard[Req, Resp]) Snapshot() iter.Seq2[string, Stats] {
	return func(yield func(string, Stats) bool) {
		for _, p := range g.providers {
			if !yield(p.Name, p.stats(g)) {
				return
			}
		}
	}
}

func (p *provider[Req, Resp]) stats(g interface {
	now() time.Duration
	at(d time.Duration) time.Time
}) Stats {
	p.mu.Lock()
	m := p.m.Stats(g.now())
	s := Stats{Provider: p.Name, State: m.State.String(), Reason: m.Reason, Since: g.at(m.Since), Share: m.Share, Drain: m.DrainRate,
		Demand: m.Demand, InUse: m.InUse, Overdue: p.overdue, Refused: p.refused.Load(), Calls: make(map[string]int64)}
	calls := p.calls
	p.unlock()
	if m.Until > 0 {
		s.Until = g.at(m.Until)
	}
	if !math.IsInf(m.RateCap, 1) {
		s.RateCap = m.RateCap
	}
	for c := ClassSuccess; int(c) < machine.Classes; c++ {
		s.Calls[c.String()] = calls[c]
	}
	return s
}

// at turns a machine's time into a date.
func (g *Guard[Req, Resp]) at(d time.Duration) time.Time { return g.origin.Add(d) }

// Totals is what a guard counts beside its providers.
type Totals struct {
	Deferred  map[string]int64 `json:"deferred"`  // requests that were put off, or could not be, by reason
	Failovers int64            `json:"failovers"` // requests that were tried with a second provider
}

// Totals returns what the guard has counted since it was made.
func (g *Guard[Req, Resp]) Totals() Totals {
	return Totals{Deferred: g.deferred.all(), Failovers: g.failovers.n.Load()}
}

// Name returns the guard's name, Queue that of its queue.
func (g *Guard[Req, Resp]) Name() string { return g.cfg.Name }

// Queue returns the name of the queue in which requests wait.
func (g *Guard[Req, Resp]) Queue() string { return g.cfg.Queue }

type counter struct{ n atomic.Int64 }

func (c *counter) add() { c.n.Add(1) }

// counters counts by reason.
type counters struct {
	mu sync.Mutex
	m  map[string]int64
}

func (c *counters) add(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[string]int64)
	}
	c.m[reason]++
}

func (c *counters) all() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.m)
}
