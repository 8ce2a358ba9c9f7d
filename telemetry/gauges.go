package telemetry

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Counter is what a scrape asks of a store. Both are cheap: O(1) a queue.
type Counter interface {
	Counts(ctx context.Context, queues ...string) ([]driver.Counts, error)
	Now(ctx context.Context) (time.Time, error)
}

// scrapeTimeout bounds what a scrape may wait for the store.
const scrapeTimeout = 5 * time.Second

// The state, read at each scrape.
var (
	storeUp   = gaugeBy("redrive_store_up", "Whether the store answered this scrape.")
	messages  = gaugeBy("redrive_queue_messages", "Messages in a queue; waiting excludes leased and blocked ones.", "queue", "state")
	byLane    = gaugeBy("redrive_queue_lane_messages", "Waiting messages by lane, leased and blocked ones included.", "lane", "queue")
	dueNow    = gaugeBy("redrive_queue_due_messages", "Messages that are due now, counted up to 10,000.", "queue")
	bytes     = gaugeBy("redrive_queue_bytes", "Size of waiting messages.", "queue")
	oldest    = gaugeBy("redrive_oldest_message_age_seconds", "How long the oldest due message of a lane, or the oldest due suspect, has been due, and the oldest dead letter dead.", "lane", "queue", "state")
	dead      = gaugeBy("redrive_dead_letters", "Dead letters by reason.", "queue", "reason")
	ledger    = counterBy("redrive_ledger_messages_total", "The ledger of a queue: what entered and what left.", "entry", "queue")
	imbalance = gaugeBy("redrive_ledger_imbalance_messages", "Entered - left - waiting - dead, without sign, over all queues; it must be 0.")
	breaker   = gaugeBy("redrive_breaker_state", "The worst breaker of a queue: 0 closed, 1 probing, 2 open.", "queue")
	slots     = gaugeBy("redrive_queue_slots", "Handlers of a queue that may run at once.", "queue")
	busy      = gaugeBy("redrive_queue_busy_slots", "Handlers that run.", "queue")
	refused   = gaugeBy("redrive_queue_all_refused", "1 while every delivery of the last minute or longer was refused for its message (HTTP 400, 413, 415, 422).", "queue")
	stuck     = gaugeBy("redrive_queue_stuck_slots", "Handlers that ignore their context.", "queue")
	paused    = gaugeBy("redrive_queue_pauses", "Pauses in force.", "queue")
)

// gauges reads the state at each scrape.
type gauges struct {
	store  Counter
	status func() []engine.QueueStatus
	label  func(queue string) string
}

func (g *gauges) write(ctx context.Context, p *page) {
	if g.store != nil {
		g.writeStore(ctx, p)
	}
	if g.status != nil {
		g.writeStatus(p)
	}
}

// held is what a queue holds, or what those hold together that share a label.
type held struct {
	label string
	*driver.Counts
}

// writeStore reads the counts. A store that does not answer is shown as down and does not
// fail the rest of the scrape.
func (g *gauges) writeStore(ctx context.Context, p *page) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	counts, err := g.store.Counts(ctx)
	now, errNow := g.store.Now(ctx)
	if err != nil || errNow != nil {
		p.put(storeUp, 0)
		return
	}
	p.put(storeUp, 1)
	off := 0.0
	queues := make([]held, 0, len(counts))
	var others *driver.Counts
	for i := range counts {
		c := &counts[i]
		off += abs(c.Ledger.Entered() - c.Ledger.Left() - c.AllWaiting() - c.AllDead())
		if p.sparse && c.Ledger.Entered() == 0 {
			continue
		}
		switch label := g.label(c.Queue); {
		case label != Other:
			queues = append(queues, held{label, c})
		case others == nil:
			others = &driver.Counts{Dead: make(map[redrive.Reason]int64)}
			queues = append(queues, held{label, others})
			fallthrough
		default:
			addCounts(others, c)
		}
	}
	p.put(imbalance, off)
	for _, family := range storeFamilies {
		for i := range queues {
			family(p, &queues[i], now)
		}
	}
}

func abs(n int64) float64 { return float64(max(n, -n)) }

// addCounts adds what queues that share a label hold.
func addCounts(sum, c *driver.Counts) {
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
	for i, column := range columns(&sum.Ledger) {
		*column.n += *columns(&c.Ledger)[i].n
	}
}

// earlier returns the earlier of two times that may be zero, which is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// column is one entry of the ledger.
type column struct {
	name string
	n    *int64
}

// columns returns every entry of the ledger.
func columns(b *driver.Ledger) [9]column {
	return [...]column{
		{"published", &b.Published}, {"parked", &b.Parked}, {"imported", &b.Imported}, {"moved_in", &b.MovedIn}, {"repeated", &b.Repeated},
		{"done", &b.Done}, {"dropped", &b.Dropped}, {"archived", &b.Archived}, {"moved_out", &b.MovedOut},
	}
}

// storeFamilies write the series of a queue in one family each: all series of a family
// stand together.
var storeFamilies = []func(p *page, q *held, now time.Time){
	func(p *page, q *held, _ time.Time) {
		p.put(messages, float64(max(q.AllWaiting()-q.Leased-q.Blocked, 0)), q.label, "waiting")
		p.some(messages, float64(q.Leased), q.label, "leased")
		p.some(messages, float64(q.Blocked), q.label, "blocked")
		p.put(messages, float64(q.AllDead()), q.label, "dead")
	},
	func(p *page, q *held, _ time.Time) {
		for lane, n := range q.Waiting {
			p.some(byLane, float64(n), redrive.Lane(lane).String(), q.label)
		}
	},
	func(p *page, q *held, _ time.Time) { p.some(dueNow, float64(q.Due), q.label) },
	func(p *page, q *held, _ time.Time) { p.some(bytes, float64(q.Bytes), q.label) },
	func(p *page, q *held, now time.Time) {
		age := func(since time.Time, lane, state string) {
			v := 0.0
			if !since.IsZero() {
				v = max(now.Sub(since), 0).Seconds()
			}
			p.some(oldest, v, lane, q.label, state)
		}
		for lane, due := range q.OldestDue {
			age(due, redrive.Lane(lane).String(), "due")
		}
		age(q.OldestSuspect, "", "suspect")
		age(q.OldestDead, "", "dead")
	},
	func(p *page, q *held, _ time.Time) {
		for _, r := range redrive.Reasons() {
			p.some(dead, float64(q.Dead[r]), q.label, r.String())
		}
	},
	func(p *page, q *held, _ time.Time) {
		for _, col := range columns(&q.Ledger) {
			p.some(ledger, float64(*col.n), col.name, q.label)
		}
	},
}

// work is what the engine does with a queue, or with those that share a label.
type work struct {
	label                                        string
	breaker, slots, busy, stuck, paused, refused float64
}

// writeStatus reads what the engine does.
func (g *gauges) writeStatus(p *page) {
	status := g.status()
	queues := make([]work, 0, len(status))
	others := -1
	for i := range status {
		s := &status[i]
		if p.sparse && s.Busy == 0 && len(s.Paused) == 0 && len(s.Breakers) == 0 && s.AllRefusedSince.IsZero() {
			continue
		}
		label, at := g.label(s.Queue), len(queues)
		if label == Other && others >= 0 {
			at = others
		} else {
			queues = append(queues, work{label: label})
		}
		if label == Other {
			others = at
		}
		queues[at].add(s)
	}
	for _, of := range []struct {
		family *family
		value  func(w *work) float64
	}{
		{breaker, func(w *work) float64 { return w.breaker }}, {slots, func(w *work) float64 { return w.slots }},
		{busy, func(w *work) float64 { return w.busy }}, {stuck, func(w *work) float64 { return w.stuck }},
		{paused, func(w *work) float64 { return w.paused }}, {refused, func(w *work) float64 { return w.refused }},
	} {
		for i := range queues {
			p.put(of.family, of.value(&queues[i]), queues[i].label)
		}
	}
}

func (w *work) add(s *engine.QueueStatus) {
	w.slots += float64(s.Slots)
	w.busy += float64(s.Busy)
	w.stuck += float64(s.Stuck)
	w.paused += float64(len(s.Paused))
	if !s.AllRefusedSince.IsZero() {
		w.refused = 1
	}
	for _, b := range s.Breakers {
		w.breaker = max(w.breaker, breakerValue(b.State))
	}
}

func breakerValue(state string) float64 {
	switch state {
	case engine.BreakerProbing:
		return 1
	case engine.BreakerOpen:
		return 2
	}
	return 0
}
