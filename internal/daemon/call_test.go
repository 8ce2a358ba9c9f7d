package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// provider is a third party that answers as the test says.
type provider struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	calls  []*http.Request
	bodies []string
}

func newProvider(t *testing.T) *provider {
	p := &provider{status: http.StatusCreated}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		status := p.status
		p.calls, p.bodies = append(p.calls, r), append(p.bodies, string(body))
		p.mu.Unlock()
		if status == 0 { // sent, and nobody knows what became of it
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Receipt", "r-1")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Security-Policy", "default-src *")
		w.WriteHeader(status)
		fmt.Fprintf(w, "sent %s", body)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) answers(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *provider) last(t *testing.T) (*http.Request, string, int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) == 0 {
		t.Fatal("the provider was not called")
	}
	return p.calls[len(p.calls)-1], p.bodies[len(p.bodies)-1], len(p.calls)
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

const fastGuard = "exit: {after: 50ms}, pace: {fixed: 200/s}"

func guardedDaemon(t *testing.T, p *provider, guard string) *rig {
	return start(t, parse(t, fmt.Sprintf(`queues:
  results: {}
  sms:
    deliver: {url: "%s/send?key=secret", timeout: 5s, allow_private: true, secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, headers: {X-Account: "7"}}
    guard: {%s}
`, p.URL, guard)), memory.New())
}

func TestACallIsAnsweredByTheProvider(t *testing.T) {
	p := newProvider(t)
	d := guardedDaemon(t, p, fastGuard)
	resp, body := d.send(http.MethodPost, "/v1/call/sms", `{"to":"1"}`, "Content-Type", "application/json", "redrive-id", "c-1",
		"redrive-header-x-own", "mine", "redrive-header-authorization", "Bearer stolen")
	if resp.StatusCode != http.StatusCreated || string(body) != `sent {"to":"1"}` || resp.Header.Get("X-Receipt") != "r-1" ||
		resp.Header.Get("Redrive-Provider") != "default" || resp.Header.Get("Redrive-Id") != "c-1" {
		t.Fatalf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	if resp.Header.Get("Set-Cookie") != "" || strings.Contains(resp.Header.Get("Content-Security-Policy"), "*") {
		t.Errorf("the provider set what is ours: %v", resp.Header)
	}
	r, sent, _ := p.last(t)
	if r.Method != http.MethodPost || r.URL.RequestURI() != "/send?key=secret" || r.Header.Get("Content-Type") != "application/json" ||
		r.Header.Get("X-Own") != "mine" || r.Header.Get("X-Account") != "7" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent %s %s %v", r.Method, r.URL, r.Header)
	}
	key, err := delivery.ParseSecret("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz")
	if err != nil {
		t.Fatal(err)
	}
	if err := delivery.Verify([][]byte{key}, r.Header, []byte(sent), time.Now(), 0); err != nil || r.Header.Get("Webhook-Id") != "c-1" {
		t.Errorf("the signature: %v in %v", err, r.Header)
	}
	p.answers(http.StatusConflict)
	if resp, body := d.send(http.MethodPost, "/v1/call/sms", "x"); resp.StatusCode != http.StatusConflict || string(body) != "sent x" {
		t.Errorf("the provider's own refusal: %d %s", resp.StatusCode, body)
	}
	p.answers(http.StatusFound)
	if resp, body := d.send(http.MethodPost, "/v1/call/sms", "x"); resp.StatusCode != http.StatusFound {
		t.Errorf("a redirect was followed: %d %s", resp.StatusCode, body)
	}
}

func TestACallIsPutOffAndItsResultFetched(t *testing.T) {
	p := newProvider(t)
	d := guardedDaemon(t, p, fastGuard)
	p.answers(http.StatusInternalServerError)
	resp, body := d.send(http.MethodPost, "/v1/call/sms", "hello", "redrive-id", "c-1", "redrive-reply-to", "results")
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") != "/v1/call/sms/c-1" || resp.Header.Get("Retry-After") != "5" ||
		string(body) != `{"queue":"sms","id":"c-1"}`+"\n" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	// The same call again is not sent a second time.
	if s := get[wire.CallStatus](d, http.StatusAccepted, http.MethodPost, "/v1/call/sms", "hello", "redrive-id", "c-1"); s.ID != "c-1" || s.State == "" {
		t.Errorf("the same call: %+v", s)
	}
	p.answers(http.StatusCreated)
	d.eventually("its result", func() bool {
		resp, body := d.send(http.MethodGet, "/v1/call/sms/c-1", "")
		if resp.StatusCode == http.StatusAccepted {
			return false
		}
		if resp.StatusCode != http.StatusCreated || string(body) != "sent hello" || resp.Header.Get("X-Receipt") != "r-1" || resp.Header.Get("Redrive-Provider") != "default" {
			t.Fatalf("the result is %d %s %v", resp.StatusCode, body, resp.Header)
		}
		return true
	})
	d.eventually("the result in the queue it was asked for", func() bool {
		page, err := d.store.Find(t.Context(), redrive.Query{Queue: "results", Bodies: true})
		return err == nil && len(page.Entries) == 1 && strings.Contains(string(page.Entries[0].Body), `"status":201`)
	})
	d.refused(http.StatusNotFound, "not-found", http.MethodGet, "/v1/call/sms/unknown", "")
	_, metrics := d.send(http.MethodGet, "/metrics", "")
	for _, line := range []string{"redrive_guard_deferred_total{guard=\"sms\",reason=\"failed\"} 1", "redrive_guard_state{guard=\"sms\",provider=\"default\"}",
		"redrive_guard_calls_total{class=\"transient\",guard=\"sms\",provider=\"default\"}"} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}

func TestACallThatMustNotBeRepeatedIsUncertain(t *testing.T) {
	p := newProvider(t)
	d := guardedDaemon(t, p, fastGuard)
	p.answers(0)
	problem := d.refused(http.StatusBadGateway, "uncertain", http.MethodPost, "/v1/call/sms?repeat=never", "pay", "redrive-id", "c-1")
	if !strings.Contains(problem.Hint, "--confirm-uncertain") || strings.Contains(problem.Detail, "key=") {
		t.Errorf("problem %+v", problem)
	}
	if m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/sms/dead-letters/c-1", ""); *m.Reason != redrive.ReasonUncertain || strings.Contains(fmt.Sprint(m.History.First), "secret") {
		t.Errorf("kept as %+v", m)
	}
	d.refused(http.StatusBadGateway, "uncertain", http.MethodGet, "/v1/call/sms/c-1", "")
	p.answers(http.StatusCreated)
	plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["sms/c-1"]}`)
	d.eventually("a plan that does not confirm leaves it", func() bool {
		now := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+plan.ID, "")
		return now.Ended() && now.Done == 0
	})
	get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["sms/c-1"],"confirm_uncertain":true}`)
	d.eventually("its result", func() bool {
		resp, body := d.send(http.MethodGet, "/v1/call/sms/c-1", "")
		return resp.StatusCode == http.StatusCreated && string(body) == "sent pay"
	})
	if _, _, n := p.last(t); n != 2 {
		t.Errorf("the provider was called %d times", n)
	}
}

func TestAMessageThatIsPublishedToAGuardedQueue(t *testing.T) {
	p := newProvider(t)
	d := guardedDaemon(t, p, fastGuard)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "hello", "redrive-id", "m-1", "redrive-kind", "otp")
	d.eventually("it is delivered", func() bool { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Ledger.Done == 1 })
	if r, body, _ := p.last(t); body != "hello" || r.Header.Get("Webhook-Id") != "m-1" || r.Header.Get("Redrive-Kind") != "otp" || r.Header.Get("Redrive-Published") != "" {
		t.Errorf("delivered %q %v", body, r.Header)
	}
	p.answers(http.StatusUnprocessableEntity)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "bad", "redrive-id", "m-2")
	d.eventually("a refusal is no success", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "")
		return q.DeadBy[redrive.ReasonPermanent] == 1
	})
	// Who may publish does not choose where it goes.
	p.answers(http.StatusOK)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", `{"method":"DELETE","url":"/admin","header":{"Authorization":["x"]}}`,
		"redrive-id", "m-3", "redrive-kind", "guard.sms")
	d.eventually("it is delivered", func() bool { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Ledger.Done == 2 })
	if r, _, _ := p.last(t); r.Method != http.MethodPost || r.URL.Path != "/send" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent %s %s %v", r.Method, r.URL, r.Header)
	}
}

func TestCallsThatAreRefused(t *testing.T) {
	p := newProvider(t)
	d := guardedDaemon(t, p, fastGuard)
	d.refused(http.StatusNotFound, "guard-not-found", http.MethodPost, "/v1/call/results", "x")
	d.refused(http.StatusBadRequest, "invalid", http.MethodPost, "/v1/call/sms?repeat=always", "x")
	d.refused(http.StatusBadRequest, "invalid", http.MethodPost, "/v1/call/sms", "x", "redrive-delay", "5s")
	d.refused(http.StatusBadRequest, "invalid-header", http.MethodPost, "/v1/call/sms", "x", "redrive-dealy", "5s")
	d.refused(http.StatusNotFound, "queue-not-found", http.MethodPost, "/v1/call/sms", "x", "redrive-reply-to", "nowhere")
	for _, to := range []string{"session:x/1", "_results"} {
		d.refused(http.StatusForbidden, "system-queue", http.MethodPost, "/v1/call/sms", "x", "redrive-reply-to", to)
	}
	byURL := d.refused(http.StatusBadRequest, "invalid", http.MethodPost, "/v1/call/sms", "x", "redrive-reply-to", "https://me:hunter2@caller.example/hook")
	if !strings.Contains(byURL.Hint, "result_to") || strings.Contains(byURL.Detail+byURL.Hint, "hunter2") {
		t.Errorf("a URL as the queue of the result: %+v", byURL)
	}
	d.refused(http.StatusRequestEntityTooLarge, "oversize", http.MethodPost, "/v1/call/sms", strings.Repeat("x", 1<<20+1))
	d.refused(http.StatusNotFound, "guard-not-found", http.MethodGet, "/v1/guards/results", "")
	d.refused(http.StatusBadRequest, "invalid", http.MethodPost, "/v1/guards/sms/force", `{"state":"ill"}`)
	d.refused(http.StatusNotFound, "not-found", http.MethodPost, "/v1/guards/sms/force", `{"state":"down","provider":"x"}`)
}

// fullStore refuses what is published to it.
type fullStore struct{ driver.Store }

func (fullStore) Publish(_ context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = redrive.ErrFull
	}
	return errs
}

func TestAForcedStateAndAQueueThatRefuses(t *testing.T) {
	p := newProvider(t)
	cfg := parse(t, fmt.Sprintf("queues: {sms: {deliver: {url: '%s', allow_private: true}, guard: {}}}", p.URL))
	d := start(t, cfg, fullStore{memory.New()})
	g := get[wire.Guard](d, 200, http.MethodPost, "/v1/guards/sms/force", `{"state":"isolated","for":"1m"}`)
	if len(g.Providers) != 1 || g.Providers[0].State != "isolated" || g.Providers[0].Until.IsZero() {
		t.Fatalf("forced: %+v", g)
	}
	problem := d.refused(http.StatusServiceUnavailable, "not-queued", http.MethodPost, "/v1/call/sms", "x")
	if problem.RetryAfter < 1 || !strings.Contains(problem.Detail, "full") {
		t.Errorf("problem %+v", problem)
	}
	get[wire.Guard](d, 200, http.MethodPost, "/v1/guards/sms/force", `{"state":"healthy","provider":"default"}`)
	if resp, body := d.send(http.MethodPost, "/v1/call/sms", "x"); resp.StatusCode != http.StatusCreated {
		t.Errorf("healthy again: %d %s", resp.StatusCode, body)
	}
	list := get[wire.List[wire.Guard]](d, 200, http.MethodGet, "/v1/guards", "")
	if len(list.Items) != 1 || list.Items[0].Deferred["refused by the queue"] != 1 {
		t.Errorf("guards %+v", list)
	}
	if log := d.log.String(); !strings.Contains(log, "provider isolated") || !strings.Contains(log, "actor=local") {
		t.Error("the log does not tell who forced it")
	}
}

func TestATargetThatIsNotAllowedIsNoDeadLetter(t *testing.T) {
	p := newProvider(t)
	cfg := parse(t, fmt.Sprintf("queues: {sms: {deliver: {url: '%s'}, policy: {max_attempts: 1}, guard: {%s}}}", p.URL, fastGuard))
	d := start(t, cfg, memory.New())
	if resp, body := d.send(http.MethodPost, "/v1/call/sms?repeat=never", "x"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	d.eventually("it was tried and given back", func() bool {
		g := get[wire.Guard](d, 200, http.MethodGet, "/v1/guards/sms", "")
		return g.Providers[0].Calls["transient"] > 1
	})
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", ""); q.Dead != 0 || q.Waiting.All != 1 {
		t.Errorf("queue %+v", q)
	}
	if p.count() != 0 {
		t.Error("it was called")
	}
}

func TestCallsCountForTheirToken(t *testing.T) {
	p := newProvider(t)
	cfg := parse(t, fmt.Sprintf("queues: {sms: {deliver: {url: '%s', allow_private: true}, guard: {}}, mail: {}}", p.URL))
	cfg.Tokens = []config.Token{
		{Name: "team", Hash: hash("secret-team"), Scopes: []config.Scope{config.ScopeCall}, Queues: []string{"sms"}},
		{Name: "limited", Hash: hash("secret-limited"), Scopes: []config.Scope{config.ScopeCall}, Quota: config.Rate{Count: 1, Per: 24 * time.Hour}},
		{Name: "reader", Hash: hash("secret-reader"), Scopes: []config.Scope{config.ScopeRead}},
	}
	d := start(t, cfg, memory.New())
	d.token = "secret-team"
	for range 3 {
		if resp, body := d.send(http.MethodPost, "/v1/call/sms", "x"); resp.StatusCode != http.StatusCreated {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	d.refused(http.StatusForbidden, "forbidden-queue", http.MethodPost, "/v1/call/mail", "x")
	d.refused(http.StatusForbidden, "forbidden-queue", http.MethodPost, "/v1/call/sms", "x", "redrive-reply-to", "mail")
	d.refused(http.StatusForbidden, "forbidden", http.MethodGet, "/v1/guards", "")
	d.token = "secret-limited"
	d.send(http.MethodPost, "/v1/call/sms", "x")
	if resp, body := d.send(http.MethodPost, "/v1/call/sms", "x"); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(body), "quota-exceeded") {
		t.Errorf("beyond the quota: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	d.token = "secret-reader"
	d.refused(http.StatusForbidden, "forbidden", http.MethodPost, "/v1/call/sms", "x")
	list := get[wire.List[wire.Guard]](d, 200, http.MethodGet, "/v1/guards", "")
	if b, _ := json.Marshal(list.Items[0].Tokens); string(b) != `{"limited":1,"team":3}` {
		t.Errorf("calls by token: %s", b)
	}
}

func TestTheSecondEndpointStandsIn(t *testing.T) {
	south := newProvider(t)
	gone := httptest.NewServer(nil)
	gone.Close()
	d := start(t, parse(t, fmt.Sprintf(`queues:
  sms:
    deliver:
      allow_private: true
      endpoints: [{name: north, url: "%s"}, {name: south, url: "%s", headers: {Authorization: "Bearer south"}}]
    guard: {preset: sms, result_to: "http://127.0.0.1:1/results"}
`, gone.URL, south.URL)), memory.New())
	resp, body := d.send(http.MethodPost, "/v1/call/sms", "x")
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Redrive-Provider") != "south" {
		t.Fatalf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	if r, _, _ := south.last(t); r.Header.Get("Authorization") != "Bearer south" {
		t.Errorf("sent %v", r.Header)
	}
	g := get[wire.Guard](d, 200, http.MethodGet, "/v1/guards/sms", "")
	if g.Failovers != 1 || g.Providers[0].Calls["network"] != 1 {
		t.Errorf("guard %+v", g)
	}
	get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms_results", "")
}
