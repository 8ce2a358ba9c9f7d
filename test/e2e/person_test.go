package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shop is a target with two faults of its own and one order that it cannot read.
type shop struct {
	mended    atomic.Bool
	mu        sync.Mutex
	delivered map[string]string // body by message id
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var order struct {
		Currency string
		Country  string
		Amount   json.Number
	}
	switch err := json.Unmarshal(body, &order); {
	case err != nil:
		http.Error(w, "cannot read the order: "+err.Error(), http.StatusBadRequest)
		return
	case order.Country != "" && !s.mended.Load():
		http.Error(w, "no rates for country "+order.Country, http.StatusUnprocessableEntity)
		return
	case order.Currency != "" && !s.mended.Load():
		http.Error(w, "no such currency", http.StatusNotFound)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delivered[r.Header.Get("webhook-id")] = string(body)
}

// TestFromThousandDeadLettersToNone is what a person does who has never seen the program:
// only what one command prints leads to the next.
func TestFromThousandDeadLettersToNone(t *testing.T) {
	t.Parallel()
	target := &shop{delivered: make(map[string]string)}
	site := httptest.NewServer(target)
	defer site.Close()
	d := newDaemon(t, fmt.Sprintf("queues:\n  orders: {deliver: {url: %q, allow_private: true}}\n", site.URL+"/orders"))
	// Orders that arrive are among them, or the breaker would take it for an outage.
	d.publishMany("orders", "order", 1600, func(i int) string {
		switch {
		case i == 500:
			return `"body":{"amount":"12,50"}`
		case i%8 < 3:
			return fmt.Sprintf(`"body":{"amount":%d}`, i)
		case i%8 < 5:
			return fmt.Sprintf(`"body":{"amount":%d,"currency":"EUR"}`, i)
		}
		return fmt.Sprintf(`"body":{"amount":%d,"country":"PT"}`, i)
	})
	until(t, "1,000 are dead", time.Minute, func() bool { q := d.queue("orders"); return q.Dead == 1000 && q.Ledger.Done == 600 })

	// What died, and of what?
	out := d.redrive("queues").ok(t).out
	if !regexp.MustCompile(`orders .* 1,000 `).MatchString(out) {
		t.Errorf("queues does not show 1,000 dead letters:\n%s", out)
	}
	out = d.redrive("dead", "causes").ok(t).out
	rows := groupRows(out)
	if len(rows) != 3 || !strings.HasPrefix(rows[0], "600 ") || !strings.HasPrefix(rows[1], "399 ") || !strings.HasPrefix(rows[2], "1 ") ||
		!strings.Contains(rows[0], "422") || !strings.Contains(rows[1], "404") || !strings.Contains(rows[2], "400") {
		t.Fatalf("dead causes:\n%s", out)
	}

	// The single one: its failure history says what the target did not like.
	odd := regexp.MustCompile(`orders/\S+`).FindString(rows[2])
	out = d.redrive("dead", "show", odd).ok(t).out
	for _, want := range []string{"dead (permanent)", "400 Bad Request", "cannot read the order", `12,50`} {
		if !strings.Contains(out, want) {
			t.Errorf("dead show %s does not say %q:\n%s", odd, want, out)
		}
	}
	r := d.redrive("dead", "edit", odd, "--body", `{"amount":12.50}`).ok(t)
	if !strings.Contains(r.out, "is edited; its original is kept") || !strings.Contains(r.stderr, "redrive dead redrive "+odd) {
		t.Errorf("dead edit: %s%s", r.out, r.stderr)
	}
	if out = d.redrive("dead", "show", odd).ok(t).out; !strings.Contains(out, "before it was edited") || !strings.Contains(out, "12,50") {
		t.Errorf("the original is not shown:\n%s", out)
	}

	// Too early: the target is not mended, and the canary says so before harm is done.
	signature := regexp.MustCompile(`2-[0-9a-f]{16}`).FindString(rows[0])
	r = d.redrive("dead", "redrive", "--signature", signature, "--canary", "10", "--wait", "--yes")
	r.fails(t, 1, "stopped", "10 of 600 redriven", "of the canary's 10 died again of the same cause", "422", signature, "redrive plans resume")
	until(t, "the canary is at its end", time.Minute, func() bool { return d.queue("orders").Dead == 1000 })
	plan := regexp.MustCompile(`plans resume (\S+?);`).FindStringSubmatch(r.stderr)
	if plan == nil {
		t.Fatalf("it does not name the plan: %s", r.stderr)
	}
	out = d.redrive("plans", "results", plan[1]).ok(t).out
	if strings.Count(out, " dead ") != 10 || !strings.Contains(out, "422") {
		t.Errorf("plans results:\n%s", out)
	}
	d.redrive("plans").fails(t, 0, "stopped")
	d.redrive("plans", "cancel", plan[1]).fails(t, 0, "cancelled")

	// The target is mended: one redrive of everything, ten first.
	target.mended.Store(true)
	d.redrive("dead", "redrive", "--queue", "orders", "--dry-run").fails(t, 0, "1,000 dead letters would be redriven")
	r = d.redrive("dead", "redrive", "--queue", "orders", "--canary", "10", "--rate", "1000/s", "--wait", "--yes").ok(t)
	if !strings.Contains(r.out, "1,000 of 1,000 redriven") || !strings.Contains(r.out, "the canary of 10 was delivered") {
		t.Errorf("dead redrive: %s%s", r.out, r.stderr)
	}
	until(t, "everything is delivered", time.Minute, func() bool { return d.queue("orders").Ledger.Done == 1600 })
	d.redrive("dead", "causes").fails(t, 0, "there are no dead letters")
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
	target.mu.Lock()
	defer target.mu.Unlock()
	if len(target.delivered) != 1600 || target.delivered["order-500"] != `{"amount":12.50}` {
		t.Errorf("%d orders arrived, the edited one as %s", len(target.delivered), target.delivered["order-500"])
	}
}

// groupRows returns the lines of a table below its head, trimmed.
func groupRows(out string) (rows []string) {
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		rows = append(rows, strings.TrimSpace(line))
	}
	return rows
}
