package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive"
)

// latencies are the buckets that the OpenTelemetry conventions for messaging have,
// and two for long attempts.
var latencies = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}

// ages are the buckets of a message's whole life, retries included.
var ages = []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}

// vectors are the metrics by queue.
type vectors struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	endToEnd *prometheus.HistogramVec
	dead     *prometheus.CounterVec
	redriven *prometheus.CounterVec
	lost     *prometheus.CounterVec
	pauses   *prometheus.CounterVec
	opened   *prometheus.CounterVec
}

func newVectors() vectors {
	return vectors{
		attempts: counter("redrive_attempts_total", "Attempts that ended, by what became of the message.", "queue", "outcome"),
		duration: histograms("redrive_attempt_duration_seconds", "How long attempts took.", latencies, "queue"),
		endToEnd: histograms("redrive_end_to_end_seconds", "Time from when a message was accepted, or wanted, until it was done.", ages, "queue"),
		dead:     counter("redrive_dead_lettered_total", "Messages that became dead letters.", "queue", "reason"),
		redriven: counter("redrive_redriven_total", "Redriven messages that ended, by how.", "queue", "outcome"),
		lost:     counter("redrive_leases_lost_total", "Leases that were lost while a message was handled or settled.", "queue"),
		pauses:   counter("redrive_pauses_total", "Pauses of a target, by a person or by a refusal of our own.", "queue"),
		opened:   counter("redrive_breaker_opened_total", "How often a breaker opened.", "queue"),
	}
}

func (v *vectors) collectors() []prometheus.Collector {
	return []prometheus.Collector{v.attempts, v.duration, v.endToEnd, v.dead, v.redriven, v.lost, v.pauses, v.opened}
}

// queueSeries makes the children of a queue when they are first needed.
type queueSeries struct {
	name string
	of   *vectors
	made atomic.Pointer[queueMetrics]
}

// metrics may make them twice; the vectors hold them once.
func (s *queueSeries) metrics() *queueMetrics {
	q := s.made.Load()
	if q == nil {
		q = s.of.of(s.name)
		s.made.Store(q)
	}
	return q
}

// queueMetrics are the children of one queue, looked up once.
type queueMetrics struct {
	attempts [redrive.OutcomeDrop + 1]prometheus.Counter
	redriven [redrive.OutcomeDrop + 1]prometheus.Counter
	dead     [redrive.ReasonManual + 1]prometheus.Counter
	duration prometheus.Observer
	endToEnd prometheus.Observer
	lost     prometheus.Counter
	pauses   prometheus.Counter
	opened   prometheus.Counter
}

func (v *vectors) of(queue string) *queueMetrics {
	q := &queueMetrics{
		duration: v.duration.WithLabelValues(queue),
		endToEnd: v.endToEnd.WithLabelValues(queue),
		lost:     v.lost.WithLabelValues(queue),
		pauses:   v.pauses.WithLabelValues(queue),
		opened:   v.opened.WithLabelValues(queue),
	}
	for o := redrive.OutcomeDone; o <= redrive.OutcomeDrop; o++ {
		q.attempts[o] = v.attempts.WithLabelValues(queue, o.String())
		if o.Terminal() {
			q.redriven[o] = v.redriven.WithLabelValues(queue, o.String())
		}
	}
	for _, r := range redrive.Reasons() {
		q.dead[r] = v.dead.WithLabelValues(queue, r.String())
	}
	return q
}

// ended counts an attempt. A settlement with values that are none is left to
// whoever validates it.
func (q *queueMetrics) ended(o *redrive.Observation) {
	q.duration.Observe(o.Duration.Seconds())
	if s := o.Settlement; s != nil && s.Outcome >= redrive.OutcomeDone && s.Outcome <= redrive.OutcomeDrop {
		q.attempts[s.Outcome].Inc()
	}
}

// settled counts what became durable.
func (q *queueMetrics) settled(o *redrive.Observation, now time.Time) {
	s, d := o.Settlement, o.Delivery
	if s == nil || d == nil || s.Outcome < redrive.OutcomeDone || s.Outcome > redrive.OutcomeDrop {
		return
	}
	if d.Redrives > 0 && s.Outcome.Terminal() {
		q.redriven[s.Outcome].Inc()
	}
	switch {
	case s.Outcome == redrive.OutcomeDead && s.Reason > 0 && s.Reason <= redrive.ReasonManual:
		q.dead[s.Reason].Inc()
	case s.Outcome == redrive.OutcomeDone && !d.PublishedAt.IsZero():
		from := d.PublishedAt
		if d.DeliverAt.After(from) { // it was not wanted earlier
			from = d.DeliverAt
		}
		q.endToEnd.Observe(max(now.Sub(from), 0).Seconds())
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func single(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
