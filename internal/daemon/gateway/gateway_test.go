package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
)

// sink keeps what is published and lets a test answer for it.
type sink struct {
	mu      sync.Mutex
	msgs    []redrive.Message
	answer  func(msgs []redrive.Message) []error // nil: all accepted
	level   driver.Level
	backoff time.Duration
}

func (s *sink) Publish(_ context.Context, msgs []redrive.Message) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range msgs {
		if msgs[i].ID == "" {
			msgs[i].ID = fmt.Sprintf("id-%d", len(s.msgs)+1)
		}
		s.msgs = append(s.msgs, msgs[i])
	}
	if s.answer != nil {
		return s.answer(msgs)
	}
	return nil
}

func (s *sink) Level(string) (driver.Level, time.Duration) { return s.level, s.backoff }

func (s *sink) Room(string) (left, limit int64, reset time.Duration) { return 0, 0, 0 }

func (s *sink) published() []redrive.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msgs
}

func failing(err error) *sink {
	return &sink{backoff: 3 * time.Second, answer: func(msgs []redrive.Message) []error {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}}
}

const path = "/v1/queues/{queue}/messages"

func mount(s redrive.Sink, o gateway.Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+path, gateway.New(s, o))
	return mux
}

func post(body io.Reader, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/queues/sms/messages", body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, name string) *problem.Problem {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d, no problem: %v: %s", w.Code, err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Name() != name || p.Title == "" || p.Instance == "" || w.Header().Get("Content-Type") != problem.ContentType {
		t.Fatalf("got %d %+v, want %d %s", w.Code, p, status, name)
	}
	return &p
}

func TestOneMessage(t *testing.T) {
	s := new(sink)
	w := serve(mount(s, gateway.Options{}), post(strings.NewReader("to=1\x00\xff"),
		"redrive-id", "order-1", "redrive-kind", "sms.send", "redrive-key", "k", "redrive-delay", "1.5s",
		"redrive-deliver-at", "2026-01-31T08:00:00Z", "redrive-expires-at", "2026-02-01T08:00:00.5Z", "redrive-reply-to", "answers",
		"Redrive-Header-Tenant", "gold", "redrive-header-tenant", "silver", "redrive-header-a", "b",
		"Content-Type", "text/plain", "traceparent", "00-1-2-01", "Idempotency-Key", "not used", "Authorization", "Bearer x"))
	if w.Code != http.StatusAccepted || w.Body.String() != `{"queue":"sms","id":"order-1","result":"/v1/queues/answers/messages/`+driver.ResultID(&redrive.Message{Queue: "sms", ID: "order-1"})+`"}`+"\n" ||
		w.Header().Get("Location") != "/v1/queues/sms/messages/order-1" {
		t.Fatalf("got %d %s %v", w.Code, w.Body, w.Header())
	}
	h := func(name, value string) redrive.Header { return redrive.Header{Name: name, Value: []byte(value)} }
	want := []redrive.Message{{
		ID: "order-1", Queue: "sms", Kind: "sms.send", Key: "k", Delay: 1500 * time.Millisecond, ReplyTo: "answers",
		DeliverAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), ExpiresAt: time.Date(2026, 2, 1, 8, 0, 0, 5e8, time.UTC),
		Headers: redrive.Headers{h("a", "b"), h("tenant", "gold"), h("tenant", "silver"), h("content-type", "text/plain"), h("traceparent", "00-1-2-01")},
		Body:    []byte("to=1\x00\xff"),
	}}
	if d := cmp.Diff(want, s.published()); d != "" {
		t.Error(d)
	}
}

func TestIdempotencyKey(t *testing.T) {
	for key, want := range map[string]string{
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"two words"`:                            driver.DeriveID("idempotency-key", "two words"),
		`"a\"b"`:                                 driver.DeriveID("idempotency-key", `a"b`),
	} {
		s := new(sink)
		if w := serve(mount(s, gateway.Options{}), post(strings.NewReader("x"), "Idempotency-Key", key)); w.Code != http.StatusAccepted {
			t.Errorf("%s: %d %s", key, w.Code, w.Body)
		} else if got := s.published()[0].ID; got != want {
			t.Errorf("%s: id %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{`""`, strings.Repeat("x", 257)} {
		wantProblem(t, serve(mount(new(sink), gateway.Options{}), post(nil, "Idempotency-Key", key)), 400, "invalid-header")
	}
}

func TestRefusalsOfOneMessage(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		status  int
		problem string
	}{
		"bad id":          {[]string{"redrive-id", "a.b"}, 400, "invalid"},
		"bad delay":       {[]string{"redrive-delay", "5"}, 400, "invalid-header"},
		"bad time":        {[]string{"redrive-deliver-at", "soon"}, 400, "invalid-header"},
		"misspelt header": {[]string{"redrive-dealy", "5s"}, 400, "invalid-header"},
		"header twice":    {[]string{"redrive-id", "a", "redrive-id", "b"}, 400, "invalid-header"},
		"reserved header": {[]string{"redrive-header-redrive-reason", "x"}, 400, "invalid-header"},
		"compressed":      {[]string{"Content-Encoding", "gzip"}, 415, "content-encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(sink)
			wantProblem(t, serve(mount(s, gateway.Options{}), post(strings.NewReader("x"), c.headers...)), c.status, c.problem)
			if len(s.published()) != 0 {
				t.Error("it was published")
			}
		})
	}
}

func TestErrorsOfTheSink(t *testing.T) {
	for err, want := range map[error]struct {
		status     int
		name       string
		retryAfter string
	}{
		redrive.ErrBacklogged:                {429, "backlogged", "3"},
		redrive.ErrFull:                      {507, "store-full", "1"},
		redrive.ErrClosed:                    {503, "shutting-down", "1"},
		redrive.ErrConflict:                  {409, "conflict", ""},
		redrive.ErrUnknown:                   {503, "outcome-unknown", "1"},
		errors.New("10.0.0.7: disk on fire"): {500, "internal", ""},
	} {
		w := serve(mount(failing(err), gateway.Options{}), post(strings.NewReader("x")))
		p := wantProblem(t, w, want.status, want.name)
		if got := w.Header().Get("Retry-After"); got != want.retryAfter || strings.Contains(p.Detail, "10.0.0.7") {
			t.Errorf("%v: Retry-After %q, want %q; %+v", err, got, want.retryAfter, p)
		}
	}
	w := serve(mount(failing(redrive.ErrDuplicate), gateway.Options{}), post(strings.NewReader("x"), "redrive-id", "a"))
	if w.Code != http.StatusAccepted || w.Body.String() != `{"queue":"sms","id":"a","duplicate":true}`+"\n" {
		t.Errorf("duplicate: %d %s", w.Code, w.Body)
	}
}

func TestOversizeBody(t *testing.T) {
	for _, limit := range []int64{10, 100_000} {
		h := mount(new(sink), gateway.Options{MaxBody: limit})
		for name, body := range map[string]func(n int64) io.Reader{
			"announced": func(n int64) io.Reader { return strings.NewReader(strings.Repeat("x", int(n))) },
			"chunked":   func(n int64) io.Reader { return io.LimitReader(endless{}, n) },
		} {
			if w := serve(h, post(body(limit))); w.Code != http.StatusAccepted {
				t.Errorf("%s, %d bytes: %d %s", name, limit, w.Code, w.Body)
			}
			wantProblem(t, serve(h, post(body(limit+1))), 413, "oversize")
		}
	}
}

// endless yields the letter x.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBodiesInFlightAreBounded(t *testing.T) {
	var shed []string
	o := gateway.Options{MaxInFlight: 100_000, Shed: func(reason string, n int) { shed = append(shed, fmt.Sprint(reason, n)) }}
	h := mount(new(sink), o)
	for range 3 { // what was held is given back
		wantProblem(t, serve(h, post(io.LimitReader(endless{}, 200_000))), 503, "overloaded")
		if w := serve(h, post(io.LimitReader(endless{}, 50_000))); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if want := []string{"overloaded1", "overloaded1", "overloaded1"}; !cmp.Equal(shed, want) {
		t.Errorf("shed %v", shed)
	}
}

func TestQueues(t *testing.T) {
	unknown := problem.New(404, "queue-not-found", "Queue not found", "", "")
	h := mount(new(sink), gateway.Options{AllowQueue: func(queue string) error {
		if queue != "sms" {
			return unknown
		}
		return nil
	}})
	for queue, want := range map[string]int{
		"sms": 202, "mail": 404, "SMS": 400, "_results": 403, "%2e%2e": 400, "a%2Fb": 400, "a%00": 400, strings.Repeat("a", 65): 400,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/queues/"+queue+"/messages", strings.NewReader("x"))
		if w := serve(h, r); w.Code != want {
			t.Errorf("%s: %d %s, want %d", queue, w.Code, w.Body, want)
		}
	}
}

func TestOnlyPOST(t *testing.T) {
	w := serve(gateway.New(new(sink), gateway.Options{}), httptest.NewRequest(http.MethodGet, "/x", nil))
	wantProblem(t, w, 405, "method")
	if w.Header().Get("Allow") != http.MethodPost {
		t.Error("no Allow")
	}
}
