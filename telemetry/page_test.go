package telemetry_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/telemetry"
)

// used are metrics with series of every family, of a queue with an odd name, too.
func used() *telemetry.Metrics {
	now := time.Now()
	odd := "odd \"name\\\n\xff"
	held := driver.Counts{Queue: odd, Waiting: [driver.Lanes]int64{3, 2, 1}, Leased: 1, Due: 4, Bytes: 10,
		OldestDue: [driver.Lanes]time.Time{now.Add(-1500 * time.Millisecond)}, Dead: map[redrive.Reason]int64{redrive.ReasonManual: 1}}
	held.Ledger.Published = 7
	m := telemetry.New(telemetry.Options{
		Queues: []string{odd}, Store: &counts{all: []driver.Counts{held}, now: now},
		Status: func() []engine.QueueStatus { return []engine.QueueStatus{{Queue: odd, Slots: 4}} },
	})
	d := &redrive.Delivery{Message: redrive.Message{Queue: odd, PublishedAt: now.Add(-time.Second)}}
	for _, o := range []engine.Occasion{engine.OnEnd, engine.OnSettled} {
		m.Observe(&engine.Observation{Occasion: o, Queue: odd, Delivery: d, Settlement: &driver.Settlement{Outcome: redrive.OutcomeDone}, Duration: 1234567})
	}
	return m
}

// The page is what Prometheus reads, and its names keep to its conventions.
func TestThePageIsInPrometheusFormat(t *testing.T) {
	text := scrape(t, used())
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	want(t, text, `redrive_queue_messages{queue="odd \"name\\\n�",state="dead"} 1`, `redrive_attempt_duration_seconds_sum{queue="odd \"name\\\n�"} 0.001234567`,
		`redrive_attempt_duration_seconds_bucket{queue="odd \"name\\\n�",le="+Inf"} 1`, `redrive_oldest_message_age_seconds{lane="fresh",queue="odd \"name\\\n�",state="due"} 1.5`)
}

func TestThePageIsCompressedForThoseWhoAsk(t *testing.T) {
	m := used()
	get := func(encoding string) *http.Response {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		m.Handler().ServeHTTP(w, r)
		return w.Result()
	}
	for encoding, compressed := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "": false, "gzip;q=0, br": false} {
		resp := get(encoding)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != compressed {
			t.Errorf("Accept-Encoding %q: compressed: %t", encoding, got)
		}
		var page io.Reader = resp.Body
		if compressed {
			z, err := gzip.NewReader(page)
			if err != nil {
				t.Fatal(err)
			}
			page = z
		}
		text, err := io.ReadAll(page)
		if err != nil || !strings.Contains(string(text), "redrive_breaker_opened_total") {
			t.Errorf("Accept-Encoding %q: %v, %d bytes", encoding, err, len(text))
		}
	}
}

// Queues are replaced while things happen in one that stays: nothing of it is lost.
func TestCountersOutliveANewConfiguration(t *testing.T) {
	m := telemetry.New(telemetry.Options{Queues: []string{"stays"}})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			m.SetQueues([]string{"stays", "new"})
			m.SetQueues([]string{"stays"})
		}
	})
	for range 10_000 {
		m.Observe(&engine.Observation{Occasion: engine.OnLeaseLost, Queue: "stays"})
	}
	wg.Wait()
	want(t, scrape(t, m), `redrive_leases_lost_total{queue="stays"} 10000`)
}
