package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/telemetry"
)

// counts is a store that holds what the test says.
type counts struct {
	all []driver.Counts
	now time.Time
	err error
}

func (c *counts) Counts(context.Context, ...string) ([]driver.Counts, error) { return c.all, c.err }
func (c *counts) Now(context.Context) (time.Time, error)                     { return c.now, nil }

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			t.Errorf("missing: %s", l)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestGauges(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	store := &counts{now: now, all: []driver.Counts{
		{
			Queue: "sms", Waiting: [driver.Lanes]int64{7, 2, 1}, Leased: 3, Blocked: 1, Due: 5, Bytes: 1000,
			OldestDue: [driver.Lanes]time.Time{now.Add(-90 * time.Second), {}, now.Add(-time.Second)}, OldestSuspect: now.Add(-time.Minute), OldestDead: now.Add(-time.Hour),
			Dead:   map[redrive.Reason]int64{redrive.ReasonExhausted: 4, redrive.ReasonCrashed: 1},
			Ledger: driver.Ledger{Published: 30, Parked: 1, Imported: 2, MovedIn: 3, Repeated: 4, Done: 20, Dropped: 2, Archived: 2, MovedOut: 1},
		},
		{Queue: "invented-1", Waiting: [driver.Lanes]int64{1}, Ledger: driver.Ledger{Published: 2}},
		{Queue: "invented-2", Waiting: [driver.Lanes]int64{2}, Ledger: driver.Ledger{Published: 1}},
	}}
	status := []engine.QueueStatus{{
		Queue: "sms", Slots: 64, Busy: 3, Stuck: 1, Paused: make([]engine.PauseStatus, 1), AllRefusedSince: time.Now(),
		Breakers: []engine.BreakerStatus{{State: engine.BreakerClosed}, {State: engine.BreakerOpen}},
	}}
	m := telemetry.New(telemetry.Options{Queues: []string{"sms", "idle"}, Store: store, Status: func() []engine.QueueStatus { return status }})
	text := scrape(t, m)
	want(t, text,
		`redrive_store_up 1`,
		`redrive_queue_messages{queue="sms",state="waiting"} 6`, `redrive_queue_messages{queue="sms",state="leased"} 3`,
		`redrive_queue_messages{queue="sms",state="blocked"} 1`, `redrive_queue_messages{queue="sms",state="dead"} 5`,
		`redrive_queue_messages{queue="other",state="waiting"} 3`,
		`redrive_queue_lane_messages{lane="fresh",queue="sms"} 7`, `redrive_queue_lane_messages{lane="retry",queue="sms"} 2`, `redrive_queue_lane_messages{lane="redrive",queue="sms"} 1`,
		`redrive_oldest_message_age_seconds{lane="fresh",queue="sms",state="due"} 90`, `redrive_oldest_message_age_seconds{lane="retry",queue="sms",state="due"} 0`,
		`redrive_oldest_message_age_seconds{lane="redrive",queue="sms",state="due"} 1`, `redrive_oldest_message_age_seconds{lane="",queue="sms",state="suspect"} 60`,
		`redrive_oldest_message_age_seconds{lane="",queue="sms",state="dead"} 3600`,
		`redrive_dead_letters{queue="sms",reason="exhausted"} 4`, `redrive_dead_letters{queue="sms",reason="manual"} 0`,
		`redrive_ledger_messages_total{entry="published",queue="sms"} 30`, `redrive_ledger_messages_total{entry="parked",queue="sms"} 1`,
		`redrive_ledger_messages_total{entry="imported",queue="sms"} 2`, `redrive_ledger_messages_total{entry="moved_in",queue="sms"} 3`,
		`redrive_ledger_messages_total{entry="repeated",queue="sms"} 4`, `redrive_ledger_messages_total{entry="done",queue="sms"} 20`,
		`redrive_ledger_messages_total{entry="dropped",queue="sms"} 2`, `redrive_ledger_messages_total{entry="archived",queue="sms"} 2`,
		`redrive_ledger_messages_total{entry="moved_out",queue="sms"} 1`,
		`redrive_ledger_messages_total{entry="published",queue="other"} 3`,
		`redrive_ledger_imbalance_messages 2`, // 1 too few in one queue, 1 too many in another: they do not cancel out
		`redrive_breaker_state{queue="sms"} 2`, `redrive_queue_stuck_slots{queue="sms"} 1`, `redrive_queue_pauses{queue="sms"} 1`,
		`redrive_queue_all_refused{queue="sms"} 1`,
	)
	if strings.Contains(text, "invented") {
		t.Error("an invented name became a label")
	}
}

func TestAStoreThatDoesNotAnswerIsShown(t *testing.T) {
	m := telemetry.New(telemetry.Options{Store: &counts{err: errors.New("down")}})
	want(t, scrape(t, m), `redrive_store_up 0`)
}

func TestCounters(t *testing.T) {
	m := telemetry.New(telemetry.Options{Queues: []string{"sms"}})
	d := &redrive.Delivery{Message: redrive.Message{Queue: "sms", PublishedAt: time.Now().Add(-2 * time.Second), Lineage: redrive.Lineage{Redrives: 1}}, Attempt: 3}
	done := &driver.Settlement{Outcome: redrive.OutcomeDone}
	gone := &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonExhausted}
	for _, o := range []engine.Observation{
		{Occasion: engine.OnEnd, Queue: "sms", Delivery: d, Settlement: done, Duration: 30 * time.Millisecond},
		{Occasion: engine.OnSettled, Queue: "sms", Delivery: d, Settlement: done},
		{Occasion: engine.OnEnd, Queue: "invented", Delivery: d, Settlement: gone, Duration: time.Millisecond},
		{Occasion: engine.OnSettled, Queue: "invented", Delivery: d, Settlement: gone},
		{Occasion: engine.OnSettled, Queue: "sms", Delivery: d, Settlement: &driver.Settlement{Outcome: redrive.OutcomeRetry}}, // it goes on
		{Occasion: engine.OnLeaseLost, Queue: "sms", Delivery: d},
		{Occasion: engine.OnSettleGroup, Count: 20, Duration: time.Millisecond},
		{Occasion: engine.OnUnhandled, Queue: "sms", Delivery: d},
		{Occasion: engine.OnEnd, Queue: "sms"}, {Occasion: engine.OnSettled, Queue: "sms"}, // incomplete ones do no harm
	} {
		m.Observe(&o)
	}
	m.Accepted("sms", 5)
	m.Shed("overloaded", 1)
	m.Shed("backlogged", 3)
	want(t, scrape(t, m),
		`redrive_accepted_total{ingress="http"} 5`,
		`redrive_attempts_total{outcome="done",queue="sms"} 1`, `redrive_attempts_total{outcome="dead",queue="other"} 1`,
		`redrive_attempts_total{outcome="retry",queue="sms"} 0`,
		`redrive_attempt_duration_seconds_bucket{queue="sms",le="0.05"} 2`,
		`redrive_end_to_end_seconds_bucket{queue="sms",le="1"} 0`, `redrive_end_to_end_seconds_bucket{queue="sms",le="5"} 1`,
		`redrive_message_attempts_bucket{queue="sms",le="2"} 0`, `redrive_message_attempts_bucket{queue="sms",le="3"} 1`,
		`redrive_message_attempts_sum{queue="sms"} 3`, `redrive_message_attempts_count{queue="sms"} 1`, `redrive_message_attempts_count{queue="other"} 1`,
		`redrive_dead_lettered_total{queue="other",reason="exhausted"} 1`,
		`redrive_redriven_total{outcome="done",queue="sms"} 1`, `redrive_redriven_total{outcome="dead",queue="other"} 1`,
		`redrive_unhandled_attempts_total{queue="sms"} 1`, `redrive_attempts_total{outcome="settled",queue="sms"} 1`,
		`redrive_leases_lost_total{queue="sms"} 1`, `redrive_settle_group_messages_sum 20`,
		`redrive_shed_total{reason="backlogged"} 3`, `redrive_shed_total{reason="overloaded"} 1`,
	)
	m.SetQueues([]string{"mail", "sms"})
	want(t, scrape(t, m), `redrive_attempts_total{outcome="done",queue="sms"} 1`, `redrive_attempts_total{outcome="done",queue="mail"} 0`)
}

func TestObservingDoesNotAllocate(t *testing.T) {
	m := telemetry.New(telemetry.Options{Queues: []string{"sms"}})
	d := &redrive.Delivery{Message: redrive.Message{Queue: "sms", PublishedAt: time.Now()}}
	s := &driver.Settlement{Outcome: redrive.OutcomeDone}
	end := &engine.Observation{Occasion: engine.OnEnd, Queue: "sms", Delivery: d, Settlement: s, Duration: time.Millisecond}
	settled := &engine.Observation{Occasion: engine.OnSettled, Queue: "sms", Delivery: d, Settlement: s}
	group := &engine.Observation{Occasion: engine.OnSettleGroup, Count: 10, Duration: time.Millisecond}
	if n := testing.AllocsPerRun(100, func() {
		m.Observe(end)
		m.Observe(settled)
		m.Observe(group)
		m.Accepted("sms", 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := telemetry.New(telemetry.Options{Queues: []string{"sms"}})
	end := &engine.Observation{Occasion: engine.OnEnd, Queue: "sms", Settlement: &driver.Settlement{Outcome: redrive.OutcomeDone}, Duration: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(end)
	}
}

// Of more queues than fit, only those that held something have series.
func TestManyQueues(t *testing.T) {
	store := &counts{now: time.Now()}
	var names []string
	var status []engine.QueueStatus
	for i := range 1000 {
		names = append(names, "q"+strconv.Itoa(i))
		store.all = append(store.all, driver.Counts{Queue: names[i]})
		status = append(status, engine.QueueStatus{Queue: names[i], Slots: 64})
	}
	store.all[7].Waiting[redrive.LaneFresh], store.all[7].Ledger.Published = 2, 2
	status[7].Busy = 1
	m := telemetry.New(telemetry.Options{Queues: names, Store: store, Status: func() []engine.QueueStatus { return status }})
	m.Observe(&engine.Observation{Occasion: engine.OnLeaseLost, Queue: "q8"})
	text := scrape(t, m)
	want(t, text, `redrive_queue_messages{queue="q7",state="waiting"} 2`, `redrive_queue_messages{queue="q7",state="dead"} 0`,
		`redrive_ledger_messages_total{entry="published",queue="q7"} 2`, `redrive_leases_lost_total{queue="q8"} 1`)
	for _, none := range []string{`queue="q9"`, `lane="retry",queue="q7"`} {
		if strings.Contains(text, none) {
			t.Errorf("it has %s", none)
		}
	}
}

// A scrape with ten thousand queues in the store: all of them configured, and all or a
// hundred in use; a hundred configured; none. Those that are not configured share one
// label. What the store takes for its counts is its own.
func BenchmarkScrape(b *testing.B) {
	var names []string
	all, used := &counts{now: time.Now()}, &counts{now: time.Now()}
	for i := range 10_000 {
		names = append(names, "q"+strconv.Itoa(i))
		c := driver.Counts{Queue: names[i], Waiting: [driver.Lanes]int64{7, 2, 1}, Dead: map[redrive.Reason]int64{redrive.ReasonExhausted: 4}}
		c.Ledger.Published, c.Ledger.Done = 20, 6
		all.all = append(all.all, c)
		if i >= 100 {
			c = driver.Counts{Queue: names[i]}
		}
		used.all = append(used.all, c)
	}
	for _, c := range []struct {
		name   string
		store  *counts
		queues []string
		active int
	}{
		{"configured=10000/used=10000", all, names, 10_000}, {"configured=10000/used=100", used, names, 100},
		{"configured=100", all, names[:100], 100}, {"configured=0", all, nil, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := telemetry.New(telemetry.Options{Queues: c.queues, Store: c.store})
			for _, name := range names[:c.active] {
				m.Observe(&engine.Observation{Occasion: engine.OnLeaseLost, Queue: name})
			}
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			}
		})
	}
}
