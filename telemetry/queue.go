package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// latencies are the buckets that the OpenTelemetry conventions for messaging have,
// and two for long attempts.
var latencies = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}

// ages are the buckets of a message's whole life, retries included.
var ages = []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}

// tries are the buckets of the attempts of one message.
var tries = []float64{1, 2, 3, 5, 10, 25}

// The counters by queue.
var (
	attempts = counterBy("redrive_attempts_total", "Attempts that ended, by what became of the message.", "outcome", "queue")
	duration = histogramBy("redrive_attempt_duration_seconds", "How long attempts took.", inSeconds, latencies, "queue")
	endToEnd = histogramBy("redrive_end_to_end_seconds", "Time from when a message was accepted, or wanted, until it was done.", inSeconds, ages, "queue")
	took     = histogramBy("redrive_message_attempts", "Attempts that messages took until they were done, dead or dropped, since they were published or redriven.", asNumbers, tries, "queue")
	died     = counterBy("redrive_dead_lettered_total", "Messages that became dead letters.", "queue", "reason")
	redriven = counterBy("redrive_redriven_total", "Redriven messages that ended, by how.", "outcome", "queue")
	lost     = counterBy("redrive_leases_lost_total", "Leases that were lost while a message was handled or settled.", "queue")
	pauses   = counterBy("redrive_pauses_total", "Pauses of a target, by a person or by a refusal of our own.", "queue")
	noKind   = counterBy("redrive_unhandled_attempts_total", "Attempts that found no handler for the message's kind.", "queue")
	opened   = counterBy("redrive_breaker_opened_total", "How often a breaker opened.", "queue")
)

// queueSeries makes the series of a queue when they are first needed.
type queueSeries struct {
	label string
	made  atomic.Pointer[queueMetrics]
}

func (s *queueSeries) metrics() *queueMetrics {
	if q := s.made.Load(); q != nil {
		return q
	}
	s.made.CompareAndSwap(nil, &queueMetrics{duration: duration.make(), endToEnd: endToEnd.make(), took: took.make()})
	return s.made.Load()
}

// queueMetrics are the counters of one queue.
type queueMetrics struct {
	attempts [redrive.OutcomeDrop + 1]atomic.Int64
	bySelf   atomic.Int64 // attempts that the handler settled itself
	redriven [redrive.OutcomeDrop + 1]atomic.Int64
	dead     [driver.LastReason + 1]atomic.Int64
	duration distribution
	endToEnd distribution
	took     distribution
	lost     atomic.Int64
	pauses   atomic.Int64
	opened   atomic.Int64
	noKind   atomic.Int64
}

// writeCounters writes the counters of queues, family by family.
func writeCounters(p *page, queues []*queueSeries) {
	each := func(write func(label string, q *queueMetrics)) {
		for _, s := range queues {
			if q := s.made.Load(); q != nil {
				write(s.label, q)
			}
		}
	}
	each(func(label string, q *queueMetrics) {
		for o := redrive.OutcomeDone; o <= redrive.OutcomeDrop; o++ {
			p.some(attempts, float64(q.attempts[o].Load()), o.String(), label)
		}
		p.some(attempts, float64(q.bySelf.Load()), "settled", label)
	})
	each(func(label string, q *queueMetrics) { p.histogram(duration, &q.duration, label) })
	each(func(label string, q *queueMetrics) { p.histogram(endToEnd, &q.endToEnd, label) })
	each(func(label string, q *queueMetrics) { p.histogram(took, &q.took, label) })
	each(func(label string, q *queueMetrics) {
		for _, r := range redrive.Reasons() {
			p.some(died, float64(q.dead[r].Load()), label, r.String())
		}
	})
	each(func(label string, q *queueMetrics) {
		for o := redrive.OutcomeDone; o <= redrive.OutcomeDrop; o++ {
			if o.Terminal() {
				p.some(redriven, float64(q.redriven[o].Load()), o.String(), label)
			}
		}
	})
	each(func(label string, q *queueMetrics) { p.some(lost, float64(q.lost.Load()), label) })
	each(func(label string, q *queueMetrics) { p.some(pauses, float64(q.pauses.Load()), label) })
	each(func(label string, q *queueMetrics) { p.some(noKind, float64(q.noKind.Load()), label) })
	each(func(label string, q *queueMetrics) { p.some(opened, float64(q.opened.Load()), label) })
}

// ended counts an attempt. A settlement with values that are none is left to
// whoever validates it.
func (q *queueMetrics) ended(o *engine.Observation) {
	q.duration.observe(duration, int64(o.Duration))
	if o.Settlement == nil {
		q.bySelf.Add(1)
	}
	if s := o.Settlement; s != nil && s.Outcome >= redrive.OutcomeDone && s.Outcome <= redrive.OutcomeDrop {
		q.attempts[s.Outcome].Add(1)
	}
}

// settled counts what became durable.
func (q *queueMetrics) settled(o *engine.Observation, now time.Time) {
	s, d := o.Settlement, o.Delivery
	if s == nil || d == nil || s.Outcome < redrive.OutcomeDone || s.Outcome > redrive.OutcomeDrop {
		return
	}
	if s.Outcome.Terminal() && d.Attempt > 0 {
		q.took.observe(took, int64(d.Attempt))
	}
	if d.Redrives > 0 && s.Outcome.Terminal() {
		q.redriven[s.Outcome].Add(1)
	}
	switch {
	case s.Outcome == redrive.OutcomeDead && s.Reason > 0 && s.Reason <= driver.LastReason:
		q.dead[s.Reason].Add(1)
	case s.Outcome == redrive.OutcomeDone && !d.PublishedAt.IsZero():
		from := d.PublishedAt
		if d.DeliverAt.After(from) { // it was not wanted earlier
			from = d.DeliverAt
		}
		q.endToEnd.observe(endToEnd, int64(max(now.Sub(from), 0)))
	}
}
