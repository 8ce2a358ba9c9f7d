package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive/guard"
)

// GuardReport is what a scrape reads of one guard.
type GuardReport struct {
	Guard     string
	Providers []guard.Stats
	Totals    guard.Totals
	Tokens    map[string]int64 // calls by token
}

var (
	guardState    = desc("redrive_guard_state", "State of a provider: 0 healthy, 1 limited, 2 recovering, 3 down, 4 isolated.", "guard", "provider")
	guardShare    = desc("redrive_guard_share", "Share of the live calls that goes through to a provider.", "guard", "provider")
	guardCap      = desc("redrive_guard_rate_cap", "Calls a second that a limited provider gets; absent without a cap.", "guard", "provider")
	guardDrain    = desc("redrive_guard_drain_rate", "Calls of the backlog a second that a provider gets at most.", "guard", "provider")
	guardDemand   = desc("redrive_guard_demand", "Live calls a second that are asked of a provider.", "guard", "provider")
	guardInUse    = desc("redrive_guard_calls_in_flight", "Calls of a provider that are under way.", "guard", "provider")
	guardCalls    = desc("redrive_guard_calls_total", "Calls of a provider that ended, by what their end says.", "guard", "provider", "class")
	guardRefused  = desc("redrive_guard_refused_total", "Live calls that a provider was not asked for.", "guard", "provider")
	guardDeferred = desc("redrive_guard_deferred_total", "Requests that were put off, or could not be, by reason.", "guard", "reason")
	guardFailover = desc("redrive_guard_failovers_total", "Requests that were tried with a second provider.", "guard")
	guardTokens   = desc("redrive_guard_token_calls_total", "Calls by token.", "guard", "token")
)

// Guards collects the metrics of guards: counters of their changes of state, and all
// else from their own counts at each scrape. It is safe for concurrent use.
type Guards struct {
	report      func() []GuardReport
	transitions *prometheus.CounterVec
}

// NewGuards returns a collector of what report tells at each scrape.
func NewGuards(report func() []GuardReport) *Guards {
	return &Guards{
		report: report,
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "redrive_guard_transitions_total", Help: "Changes of state of a provider."}, []string{"guard", "provider", "from", "to"}),
	}
}

// Observe counts an event of a guard; it is meant for guard.Config.OnEvent.
func (g *Guards) Observe(e *guard.Event) {
	if e.Provider != "" {
		g.transitions.WithLabelValues(e.Guard, e.Provider, e.From.String(), e.To.String()).Inc()
	}
}

// Describe implements prometheus.Collector.
func (g *Guards) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{guardState, guardShare, guardCap, guardDrain, guardDemand, guardInUse, guardCalls, guardRefused,
		guardDeferred, guardFailover, guardTokens} {
		ch <- d
	}
	g.transitions.Describe(ch)
}

// Collect implements prometheus.Collector.
func (g *Guards) Collect(ch chan<- prometheus.Metric) {
	g.transitions.Collect(ch)
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, r := range g.report() {
		for i := range r.Providers {
			p := &r.Providers[i]
			gauge(ch, guardState, stateValue(p.State), r.Guard, p.Provider)
			gauge(ch, guardShare, p.Share, r.Guard, p.Provider)
			gauge(ch, guardDrain, p.Drain, r.Guard, p.Provider)
			gauge(ch, guardDemand, p.Demand, r.Guard, p.Provider)
			gauge(ch, guardInUse, float64(p.InUse), r.Guard, p.Provider)
			if p.RateCap > 0 {
				gauge(ch, guardCap, p.RateCap, r.Guard, p.Provider)
			}
			for _, class := range slices.Sorted(maps.Keys(p.Calls)) {
				count(guardCalls, p.Calls[class], r.Guard, p.Provider, class)
			}
			count(guardRefused, p.Refused, r.Guard, p.Provider)
		}
		for reason, n := range r.Totals.Deferred {
			count(guardDeferred, n, r.Guard, reason)
		}
		count(guardFailover, r.Totals.Failovers, r.Guard)
		for token, n := range r.Tokens {
			count(guardTokens, n, r.Guard, token)
		}
	}
}

// stateValue orders the states by how sick they are.
func stateValue(state string) float64 {
	s, _ := guard.ParseState(state)
	switch s {
	case guard.Limited:
		return 1
	case guard.Recovering:
		return 2
	case guard.Down:
		return 3
	case guard.Isolated:
		return 4
	}
	return 0
}
