// Package telemetry exports what Redrive does as Prometheus metrics: counters and
// histograms fed by the engine as a [engine.Observer], and gauges read from the
// store's own counts at each scrape.
package telemetry

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redrive/redrive/engine"
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
	Status func() []engine.QueueStatus
	// Runtime adds the metrics of Go and of the process.
	Runtime bool
}

// Metrics collects. It is safe for concurrent use; nothing on the hot path
// allocates.
type Metrics struct {
	registry *prometheus.Registry
	others   http.Handler // what is not by queue
	gauges   gauges
	scrapes  chan struct{} // of those under way
	queues   atomic.Pointer[queueSet]
	setting  sync.Mutex // guards replacements of queues
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
		scrapes:  make(chan struct{}, maxScrapes),
		accepted: counter("redrive_accepted_total", "Messages that were accepted durably.", "ingress"),
		shed:     counter("redrive_shed_total", "Messages that were refused for lack of room or because of a shutdown.", "reason"),
		group:    histogram("redrive_settle_group_duration_seconds", "Time to make a group of settlements durable.", latencies),
		grouped:  histogram("redrive_settle_group_messages", "Settlements that were written in one group.", prometheus.ExponentialBuckets(1, 4, 7)),
		restarts: single("redrive_goroutine_restarts_total", "Goroutines of Redrive that failed and were restarted."),
		parked:   single("redrive_parked_total", "Messages of other sources that were parked in the store."),
	}
	m.http = m.accepted.WithLabelValues(IngressHTTP)
	m.registry.MustRegister(m.accepted, m.shed, m.group, m.grouped, m.restarts, m.parked)
	m.gauges = gauges{store: o.Store, status: o.Status, label: m.label}
	if o.Runtime {
		m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	m.others = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, ErrorHandling: promhttp.ContinueOnError, DisableCompression: true})
	m.SetQueues(o.Queues)
	return m
}

// manyQueues is how many queues have all of their series from the start, so that a rate
// sees the first event. With more, a million series of zeros would make a scrape take
// seconds: a queue then has counters once something happened in it, and gauges of what is
// not zero.
const manyQueues = 200

// queueSet is the queues that have series of their own.
type queueSet struct {
	by     map[string]*queueSeries
	sorted []*queueSeries
	sparse bool // there are too many for series that say nothing
}

// SetQueues replaces the queues that have series of their own. Counters of a queue
// that stays go on. If there are more than 200, a queue's series begin when something
// happens in it.
func (m *Metrics) SetQueues(names []string) {
	m.setting.Lock()
	defer m.setting.Unlock()
	var before map[string]*queueSeries
	if old := m.queues.Load(); old != nil {
		before = old.by
	}
	set := &queueSet{by: make(map[string]*queueSeries, len(names)+1), sparse: len(names) > manyQueues}
	for _, name := range append([]string{Other}, names...) {
		if set.by[name] != nil {
			continue
		}
		q := before[name]
		if q == nil {
			q = &queueSeries{label: labelValue(name)}
		}
		if !set.sparse || name == Other {
			q.metrics()
		}
		set.by[name] = q
		set.sorted = append(set.sorted, q)
	}
	slices.SortFunc(set.sorted, func(a, b *queueSeries) int { return strings.Compare(a.label, b.label) })
	m.queues.Store(set)
}

// maxScrapes is how many scrapes may be under way at once.
const maxScrapes = 4

// Handler serves the metrics, in Prometheus' text format.
func (m *Metrics) Handler() http.Handler { return http.HandlerFunc(m.serve) }

func (m *Metrics) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case m.scrapes <- struct{}{}:
		defer func() { <-m.scrapes }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are under way already: try again", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	set := m.queues.Load()
	// Of many queues, a page is large, and to compress it takes longer than to send it.
	if !set.sparse && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer func() { _ = z.Close() }() // nobody is left to receive it
		w = zipped{w, z}
	}
	plain := r.Clone(r.Context())
	plain.Header.Del("Accept") // no other format
	m.others.ServeHTTP(w, plain)
	p := &page{w: w, sparse: set.sparse}
	m.gauges.write(r.Context(), p)
	writeCounters(p, set.sorted)
	p.flush()
}

// zipped is an answer that is compressed.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z zipped) Write(b []byte) (int, error) { return z.z.Write(b) }

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, q, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" && strings.TrimSpace(q) != "q=0" {
			return true
		}
	}
	return false
}

// Registry returns the registry, for further collectors. What is known by queue is not in
// it: [Metrics.Handler] serves both.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Accepted counts messages that came in over HTTP; it has the form that the gateway
// asks for.
func (m *Metrics) Accepted(_ string, n int) { m.http.Add(float64(n)) }

// Shed counts messages that were refused. The reasons are a small closed set.
func (m *Metrics) Shed(reason string, n int) { m.shed.WithLabelValues(reason).Add(float64(n)) }

// label returns the label value of a queue.
func (m *Metrics) label(queue string) string {
	if q := m.queues.Load().by[queue]; q != nil {
		return q.label
	}
	return Other
}

func (m *Metrics) queue(name string) *queueMetrics {
	by := m.queues.Load().by
	if q := by[name]; q != nil {
		return q.metrics()
	}
	return by[Other].metrics()
}

// Observe implements engine.Observer.
func (m *Metrics) Observe(o *engine.Observation) {
	switch o.Occasion {
	case engine.OnEnd:
		m.queue(o.Queue).ended(o)
	case engine.OnSettled:
		m.queue(o.Queue).settled(o, time.Now())
	case engine.OnSettleGroup:
		m.group.Observe(o.Duration.Seconds())
		m.grouped.Observe(float64(o.Count))
	case engine.OnLeaseLost:
		m.queue(o.Queue).lost.Add(1)
	case engine.OnUnhandled:
		m.queue(o.Queue).noKind.Add(1)
	case engine.OnPaused:
		m.queue(o.Queue).pauses.Add(1)
	case engine.OnBreaker:
		if o.Text == engine.BreakerOpen {
			m.queue(o.Queue).opened.Add(1)
		}
	case engine.OnParked:
		m.parked.Add(float64(o.Count))
	case engine.OnRestart:
		m.restarts.Inc()
	case engine.OnClaim, engine.OnStart, engine.OnStuck:
		// The store's ledger counts publishes, the engine's status shows the rest.
	}
}

var _ engine.Observer = (*Metrics)(nil)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func single(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}
