package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

// TestTheRateLimitHeadersFallWithTheBacklogLimits fills a queue.
func TestTheRateLimitHeadersFallWithTheBacklogLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		defer store.Close()
		limiter := backlog.New(store, func(string) backlog.Limits { return backlog.Limits{Depth: 10, Soft: 0.5} }, backlog.Options{})
		h := mount(limiter, gateway.Options{})
		post := func(contentType, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/v1/queues/q/messages", strings.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for n := 1; n <= 12; n++ {
			w := post("text/plain", "x")
			policy, state := w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit")
			if n < 5 {
				if policy != "" || state != "" {
					t.Errorf("below the soft limit, with %d: %s %s", n, policy, state)
				}
				continue
			}
			status, want := http.StatusAccepted, fmt.Sprintf(`"backlog";r=%d;t=`, max(10-n, 0))
			if n > 10 {
				status = http.StatusTooManyRequests
			}
			if w.Code != status || policy != `"backlog";q=10` || !strings.HasPrefix(state, want) {
				t.Errorf("with %d: %d %s %s, want %s", n, w.Code, policy, state, want)
			}
		}
		for _, contentType := range []string{"text/plain", "application/x-ndjson"} {
			w := post(contentType, "{}")
			if after := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || after != "5" || w.Header().Get("RateLimit") != `"backlog";r=0;t=5` {
				t.Errorf("nothing was seen to drain: %d, Retry-After %s, %v", w.Code, after, w.Header())
			}
		}
		drain(t, store, 2)
		<-time.After(time.Second)
		limiter.Level("q")
		<-time.After(time.Second)
		w := post("text/plain", "x")
		if after := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || after == "" || w.Header().Get("RateLimit") != `"backlog";r=0;t=`+after {
			t.Errorf("it drains, and is not below the soft limit: %d, Retry-After %s, %v", w.Code, after, w.Header())
		}
		drain(t, store, 4)
		<-time.After(time.Second)
		limiter.Level("q")
		if w := post("text/plain", "x"); w.Code != http.StatusAccepted || !strings.HasPrefix(w.Header().Get("RateLimit"), `"backlog";r=5;`) {
			t.Errorf("open again: %d %v", w.Code, w.Header())
		}
	})
}

// drain ends messages of the queue.
func drain(t *testing.T, store driver.Store, n int) {
	t.Helper()
	ds, err := store.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Max: n, Lease: time.Minute, Instance: "i"})
	if err != nil {
		t.Fatal(err)
	}
	s := make([]driver.Settlement, len(ds))
	for i, d := range ds {
		s[i] = driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
	}
	if err := driver.FirstError(store.Settle(t.Context(), s)); err != nil || len(s) != n {
		t.Fatal(len(s), err)
	}
}
