// Package telemetry exports what Redrive does as Prometheus metrics: counters and
// histograms fed by the engine as a [redrive.Observer], and gauges read from the
// store's own counts at each scrape.
package telemetry

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redrive/redrive"
)

// Other is the label value that stands for all queues that are not named in
// [Options], so that nobody makes series by inventing names.
const Other = "other"

// Options configures [New]. Every field has a default.
type Options struct {
	// Queues are the queues that get series of their own.
	Queues []string
	// Store is asked for counts at each scrape. Without one there are no gauges.
	Store Counter
	// Status tells what the engine is doing. Optional.
	Status func() []redrive.QueueStatus
	// Runtime adds the metrics of Go and of the process.
	Runtime bool
}

// Metrics collects. It is safe for concurrent use; nothing on the hot path
// allocates.
type Metrics struct {
	registry *prometheus.Registry
	queues   atomic.Pointer[map[string]*queueSeries]
	byQueue  vectors
	accepted *prometheus.CounterVec
	http     prometheus.Counter // child of accepted: the ingress on the hot path
	shed     *prometheus.CounterVec
	group    prometheus.Histogram
	grouped  prometheus.Histogram
	restarts prometheus.Counter
	parked   prometheus.Counter
}

// IngressHTTP is the ingress of what came in by the gateway's HTTP handler.
const IngressHTTP = "http"

// New returns metrics in a registry of their own.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		byQueue:  newVectors(),
		accepted: counter("redrive_accepted_total", "Messages that were accepted durably.", "ingress"),
		shed:     counter("redrive_shed_total", "Messages that were refused for lack of room or because of a shutdown.", "reason"),
		group:    histogram("redrive_settle_group_duration_seconds", "Time to make a group of settlements durable.", latencies),
		grouped:  histogram("redrive_settle_group_messages", "Settlements that were written in one group.", prometheus.ExponentialBuckets(1, 4, 7)),
		restarts: single("redrive_goroutine_restarts_total", "Goroutines of Redrive that failed and were restarted."),
		parked:   single("redrive_parked_total", "Messages of other sources that were parked in the store."),
	}
	m.http = m.accepted.WithLabelValues(IngressHTTP)
	m.registry.MustRegister(m.accepted, m.shed, m.group, m.grouped, m.restarts, m.parked)
	m.registry.MustRegister(m.byQueue.collectors()...)
	m.registry.MustRegister(&gauges{store: o.Store, status: o.Status, label: m.label, sparse: m.sparse})
	if o.Runtime {
		m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	m.SetQueues(o.Queues)
	return m
}

// manyQueues is how many queues have all of their series from the start, so that a rate
// sees the first event. With more, a million series of zeros would make a scrape take
// seconds: a queue then has counters once something happened in it, and gauges of what is
// not zero.
const manyQueues = 200

// SetQueues replaces the queues that have series of their own. Counters of a queue
// that stays go on. If there are more than 200, a queue's series begin when something
// happens in it.
func (m *Metrics) SetQueues(names []string) {
	queues := make(map[string]*queueSeries, len(names)+1)
	for _, name := range append([]string{Other}, names...) {
		q := &queueSeries{name: name, of: &m.byQueue}
		if len(names) <= manyQueues || name == Other {
			q.metrics()
		}
		queues[name] = q
	}
	m.queues.Store(&queues)
}

// sparse reports that there are too many queues for series that say nothing.
func (m *Metrics) sparse() bool { return len(*m.queues.Load()) > manyQueues+1 }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4})
}

// Registry returns the registry, for further collectors.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Accepted counts messages that came in over HTTP; it has the form that the gateway
// asks for.
func (m *Metrics) Accepted(_ string, n int) { m.http.Add(float64(n)) }

// Shed counts messages that were refused. The reasons are a small closed set.
func (m *Metrics) Shed(reason string, n int) { m.shed.WithLabelValues(reason).Add(float64(n)) }

// label returns the label value of a queue.
func (m *Metrics) label(queue string) string {
	if _, ok := (*m.queues.Load())[queue]; ok {
		return queue
	}
	return Other
}

func (m *Metrics) queue(name string) *queueMetrics {
	queues := *m.queues.Load()
	if q, ok := queues[name]; ok {
		return q.metrics()
	}
	return queues[Other].metrics()
}

// Observe implements redrive.Observer.
func (m *Metrics) Observe(o *redrive.Observation) {
	switch o.Occasion {
	case redrive.OnEnd:
		m.queue(o.Queue).ended(o)
	case redrive.OnSettled:
		m.queue(o.Queue).settled(o, time.Now())
	case redrive.OnSettleGroup:
		m.group.Observe(o.Duration.Seconds())
		m.grouped.Observe(float64(o.Count))
	case redrive.OnLeaseLost:
		m.queue(o.Queue).lost.Inc()
	case redrive.OnPaused:
		m.queue(o.Queue).pauses.Inc()
	case redrive.OnBreaker:
		if o.Text == redrive.BreakerOpen {
			m.queue(o.Queue).opened.Inc()
		}
	case redrive.OnBacklogged:
		m.Shed("backlogged", o.Count)
	case redrive.OnParked:
		m.parked.Add(float64(o.Count))
	case redrive.OnRestart:
		m.restarts.Inc()
	case redrive.OnPublish, redrive.OnClaim, redrive.OnStart, redrive.OnRefused, redrive.OnStuck:
		// The store's books count publishes, the engine's status shows the rest.
	}
}

var _ redrive.Observer = (*Metrics)(nil)
