package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive"
)

// Counter is what a scrape asks of a store. Both are cheap: O(1) a queue.
type Counter interface {
	Counts(ctx context.Context, queues ...string) ([]redrive.Counts, error)
	Now(ctx context.Context) (time.Time, error)
}

// scrapeTimeout bounds what a scrape may wait for the store.
const scrapeTimeout = 5 * time.Second

var (
	storeUp   = desc("redrive_store_up", "Whether the store answered this scrape.")
	messages  = desc("redrive_queue_messages", "Messages in a queue; waiting excludes leased and blocked ones.", "queue", "state")
	byLane    = desc("redrive_queue_lane_messages", "Waiting messages by lane, leased and blocked ones included.", "queue", "lane")
	dueNow    = desc("redrive_queue_due_messages", "Messages that are due now, counted up to 10,000.", "queue")
	bytes     = desc("redrive_queue_bytes", "Size of waiting messages.", "queue")
	oldest    = desc("redrive_oldest_message_age_seconds", "How long the oldest due message of a lane, or the oldest due suspect, has been due, and the oldest dead letter dead.", "queue", "state", "lane")
	dead      = desc("redrive_dead_letters", "Dead letters by reason.", "queue", "reason")
	ledger    = desc("redrive_ledger_messages_total", "The books of a queue: what entered and what left.", "queue", "entry")
	imbalance = desc("redrive_ledger_imbalance_messages", "Entered - left - waiting - dead, without sign, over all queues; it must be 0.")
	breaker   = desc("redrive_breaker_state", "The worst breaker of a queue: 0 closed, 1 probing, 2 open.", "queue")
	slots     = desc("redrive_queue_slots", "Handlers of a queue that may run at once.", "queue")
	busy      = desc("redrive_queue_busy_slots", "Handlers that run.", "queue")
	stuck     = desc("redrive_queue_stuck_slots", "Handlers that ignore their context.", "queue")
	budget    = desc("redrive_retry_budget", "Retries of a queue that may be claimed now; at 0 they wait.", "queue")
	paused    = desc("redrive_queue_pauses", "Pauses in force.", "queue")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// gauges reads the state at each scrape.
type gauges struct {
	store  Counter
	status func() []redrive.QueueStatus
	label  func(queue string) string
	sparse func() bool // leave out what is zero, and queues that never held anything
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeUp, messages, byLane, dueNow, bytes, oldest, dead, ledger, imbalance, breaker, slots, busy, stuck, budget, paused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	if g.store != nil {
		g.collectStore(ch)
	}
	if g.status != nil {
		g.collectStatus(ch)
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// collectStore reads the counts. A store that does not answer is shown as down and
// does not fail the rest of the scrape.
func (g *gauges) collectStore(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	counts, err := g.store.Counts(ctx)
	now, errNow := g.store.Now(ctx)
	if err != nil || errNow != nil {
		gauge(ch, storeUp, 0)
		return
	}
	gauge(ch, storeUp, 1)
	off, sparse := 0.0, g.sparse()
	sums := make(map[string]*redrive.Counts)
	for i := range counts {
		c := &counts[i]
		off += abs(c.Books.Entered() - c.Books.Left() - c.AllWaiting() - c.AllDead())
		if sparse && c.Books.Entered() == 0 {
			continue
		}
		label := g.label(c.Queue)
		if sum := sums[label]; sum != nil {
			addCounts(sum, c)
			continue
		}
		first := redrive.Counts{Dead: make(map[redrive.Reason]int64)}
		addCounts(&first, c)
		sums[label] = &first
	}
	gauge(ch, imbalance, off)
	for label, c := range sums {
		collectQueue(ch, label, c, now, sparse)
	}
}

func abs(n int64) float64 { return float64(max(n, -n)) }

// addCounts adds what queues that share a label hold.
func addCounts(sum, c *redrive.Counts) {
	for i := range c.Waiting {
		sum.Waiting[i] += c.Waiting[i]
	}
	sum.Leased += c.Leased
	sum.Blocked += c.Blocked
	sum.Suspects += c.Suspects
	sum.Due += c.Due
	sum.Bytes += c.Bytes
	for i := range c.OldestDue {
		sum.OldestDue[i] = earlier(sum.OldestDue[i], c.OldestDue[i])
	}
	sum.OldestSuspect = earlier(sum.OldestSuspect, c.OldestSuspect)
	sum.OldestDead = earlier(sum.OldestDead, c.OldestDead)
	for r, n := range c.Dead {
		sum.Dead[r] += n
	}
	for i, column := range columns(&sum.Books) {
		*column.n += *columns(&c.Books)[i].n
	}
}

// earlier returns the earlier of two times that may be zero, which is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// column is one entry of the books.
type column struct {
	name string
	n    *int64
}

// columns returns every entry of the books.
func columns(b *redrive.Books) [9]column {
	return [...]column{
		{"published", &b.Published}, {"parked", &b.Parked}, {"imported", &b.Imported}, {"moved_in", &b.MovedIn}, {"repeated", &b.Repeated},
		{"done", &b.Done}, {"dropped", &b.Dropped}, {"archived", &b.Archived}, {"moved_out", &b.MovedOut},
	}
}

func collectQueue(ch chan<- prometheus.Metric, label string, c *redrive.Counts, now time.Time, sparse bool) {
	some := func(d *prometheus.Desc, v float64, labels ...string) {
		if v != 0 || !sparse {
			gauge(ch, d, v, labels...)
		}
	}
	gauge(ch, messages, float64(max(c.AllWaiting()-c.Leased-c.Blocked, 0)), label, "waiting")
	some(messages, float64(c.Leased), label, "leased")
	some(messages, float64(c.Blocked), label, "blocked")
	gauge(ch, messages, float64(c.AllDead()), label, "dead")
	for lane, n := range c.Waiting {
		some(byLane, float64(n), label, redrive.Lane(lane).String())
	}
	some(dueNow, float64(c.Due), label)
	some(bytes, float64(c.Bytes), label)
	age := func(since time.Time, state, lane string) {
		v := 0.0
		if !since.IsZero() {
			v = max(now.Sub(since), 0).Seconds()
		}
		some(oldest, v, label, state, lane)
	}
	for lane, due := range c.OldestDue {
		age(due, "due", redrive.Lane(lane).String())
	}
	age(c.OldestSuspect, "suspect", "")
	age(c.OldestDead, "dead", "")
	for _, r := range redrive.Reasons() {
		some(dead, float64(c.Dead[r]), label, r.String())
	}
	for _, col := range columns(&c.Books) {
		if *col.n != 0 || !sparse {
			ch <- prometheus.MustNewConstMetric(ledger, prometheus.CounterValue, float64(*col.n), label, col.name)
		}
	}
}

// collectStatus reads what the engine does.
func (g *gauges) collectStatus(ch chan<- prometheus.Metric) {
	type sum struct{ breaker, slots, busy, stuck, budget, paused float64 }
	sums, sparse := make(map[string]*sum), g.sparse()
	for _, s := range g.status() {
		if sparse && s.Busy == 0 && len(s.Paused) == 0 && len(s.Breakers) == 0 {
			continue
		}
		v := sums[g.label(s.Queue)]
		if v == nil {
			v = new(sum)
			sums[g.label(s.Queue)] = v
		}
		v.slots += float64(s.Slots)
		v.busy += float64(s.Busy)
		v.stuck += float64(s.Stuck)
		v.budget += float64(s.RetryBudget)
		v.paused += float64(len(s.Paused))
		for _, b := range s.Breakers {
			v.breaker = max(v.breaker, breakerValue(b.State))
		}
	}
	for label, v := range sums {
		gauge(ch, breaker, v.breaker, label)
		gauge(ch, slots, v.slots, label)
		gauge(ch, busy, v.busy, label)
		gauge(ch, stuck, v.stuck, label)
		gauge(ch, budget, v.budget, label)
		gauge(ch, paused, v.paused, label)
	}
}

func breakerValue(state string) float64 {
	switch state {
	case redrive.BreakerProbing:
		return 1
	case redrive.BreakerOpen:
		return 2
	}
	return 0
}
