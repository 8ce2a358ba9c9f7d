package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestDelivers(t *testing.T) {
	body := "\x00\xff{\"a\": 1}\r\n "
	var got *http.Request
	var gotBody []byte
	before := time.Now().Unix()
	h := serve(t, Target{URL: "/hook?x=1", Secrets: []string{vectorSecret, NewSecret()}, Headers: map[string]string{"x-env": "test", "authorization": "Bearer abc"}},
		func(_ http.ResponseWriter, r *http.Request) {
			got = r
			gotBody, _ = io.ReadAll(r.Body)
		})
	d := message(body)
	d.Headers.Add("content-type", "application/json; charset=utf-8")
	d.Headers.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	d.Headers.Add("tracestate", "a=1")
	d.Headers.Add("x-tenant", "gold")
	if err := h.ServeDelivery(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(gotBody, []byte(body)) || got.ContentLength != int64(len(body)) || len(got.TransferEncoding) != 0 {
		t.Errorf("got body %q of length %d, encoding %v", gotBody, got.ContentLength, got.TransferEncoding)
	}
	if got.Method != "POST" || got.URL.String() != "/hook?x=1" {
		t.Errorf("got %s %s", got.Method, got.URL)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Webhook-Id": "m-1", "Redrive-Attempt": "3",
		"Redrive-Queue": "hooks", "Redrive-Kind": "order.paid", "User-Agent": "redrive/1.2.3", "X-Tenant": "gold",
		"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate": "a=1",
		"X-Env": "test", "Authorization": "Bearer abc", "Accept-Encoding": "",
	} {
		if v := strings.Join(got.Header.Values(name), "|"); v != want {
			t.Errorf("%s: got %q, want %q", name, v, want)
		}
	}
	if at, _ := strconv.ParseInt(got.Header.Get("Webhook-Timestamp"), 10, 64); at < before || at > time.Now().Unix() {
		t.Errorf("webhook-timestamp %d", at)
	}
	if n := len(strings.Fields(got.Header.Get("Webhook-Signature"))); n != 2 {
		t.Errorf("%d signatures, want one a secret", n)
	}
	key, _ := ParseSecret(vectorSecret)
	if err := Verify([][]byte{key}, got.Header, gotBody, time.Now(), 0); err != nil {
		t.Error(err)
	}
}

func TestDeliversAnEmptyBody(t *testing.T) {
	h := serve(t, Target{}, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || r.Header.Get("Content-Type") != DefaultContentType {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	if err := h.ServeDelivery(t.Context(), message("")); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	const ok = "https://example.com/"
	for _, c := range []struct {
		name   string
		target Target
	}{
		{"no url", Target{}},
		{"no scheme", Target{URL: "example.com/canary"}},
		{"another scheme", Target{URL: "ftp://example.com/canary"}},
		{"no host", Target{URL: "http:///canary"}},
		{"opaque", Target{URL: "http:canary"}},
		{"port 0", Target{URL: "http://example.com:0/canary"}},
		{"port too large", Target{URL: "http://example.com:65536/canary"}},
		{"empty port", Target{URL: "http://example.com:/canary"}},
		{"port is a password", Target{URL: "http://user:canary/secret@example.com"}},
		{"a control character", Target{URL: "http://example.com/\ncanary"}},
		{"negative timeout", Target{URL: ok, Timeout: -1}},
		{"negative concurrency", Target{URL: ok, Concurrency: -1}},
		{"negative rate", Target{URL: ok, Rate: -1}},
		{"negative burst", Target{URL: ok, Burst: -1}},
		{"max response too large", Target{URL: ok, MaxResponse: 1 << 30}},
		{"an empty network", Target{URL: ok, AllowCIDRs: make([]netip.Prefix, 1)}},
		{"a status that is none", Target{URL: ok, Statuses: redrive.Table{Permanent: []string{"999"}}}},
		{"a secret that is none", Target{URL: ok, Secrets: []string{"canary"}}},
		{"a header name", Target{URL: ok, Headers: map[string]string{"x y": "canary"}}},
		{"a header value", Target{URL: ok, Headers: map[string]string{"x": "canary\r\ny: z"}}},
		{"a reserved header", Target{URL: ok, Headers: map[string]string{"Host": "canary"}}},
		{"a signature header", Target{URL: ok, Headers: map[string]string{"webhook-signature": "canary"}}},
		{"a header twice", Target{URL: ok, Headers: map[string]string{"X-A": "canary", "x-a": "canary"}}},
		{"two authorizations", Target{URL: "https://u:canary@example.com/", Headers: map[string]string{"authorization": "canary"}}},
	} {
		_, err := New(c.target, Options{})
		var e *redrive.Error
		switch {
		case !errors.Is(err, redrive.ErrInvalid):
			t.Errorf("%s: %v, want ErrInvalid", c.name, err)
		case strings.Contains(err.Error(), "canary"):
			t.Errorf("%s: the error repeats what may be secret: %v", c.name, err)
		case errors.As(err, &e) && e.Hint == "":
			t.Errorf("%s: no hint: %v", c.name, err)
		}
	}
}

func TestTargetIsShownWithoutSecrets(t *testing.T) {
	h := mustNew(t, Target{URL: "https://user:canary@example.com:8443/a%2Fb?token=canary#canary"}, Options{})
	if got, want := h.Target(), "https://example.com:8443"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUserinfoBecomesAuthorization(t *testing.T) {
	var user, password string
	h := serve(t, Target{}, func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() })
	h2 := mustNew(t, Target{URL: strings.Replace(h.Target(), "http://", "http://me:p%40ss@", 1), AllowPrivate: true}, Options{})
	if err := h2.ServeDelivery(t.Context(), message("x")); err != nil || user != "me" || password != "p@ss" {
		t.Errorf("got %q %q, %v", user, password, err)
	}
}

func TestStatuses(t *testing.T) {
	table := redrive.Table{Permanent: []string{"301", "5xx"}, Release: []string{"423"}, Transient: []string{"404", "410", "503"}}
	for _, c := range []struct {
		status int
		retry  string
		table  redrive.Table
		want   driver.Classification
	}{
		{status: 302, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 400, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{status: 401, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 404, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{status: 410, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonDisabled}},
		{status: 413, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonOversize}},
		{status: 429, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 429, retry: "7", want: driver.Classification{Outcome: redrive.OutcomeRetry, After: 7 * time.Second}},
		{status: 503, retry: "1.5", want: driver.Classification{Outcome: redrive.OutcomeRetry, After: 1500 * time.Millisecond}},
		{status: 503, retry: "1000000000", want: driver.Classification{Outcome: redrive.OutcomeRetry, After: time.Hour}},
		{status: 502, retry: "3", want: driver.Classification{Outcome: redrive.OutcomeRetry, After: 3 * time.Second}},
		{status: 504, retry: "-3", want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 500, retry: "3", want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 503, retry: "soon", want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 301, table: table, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{status: 500, table: table, want: driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{status: 423, table: table, want: driver.Classification{Outcome: redrive.OutcomeRelease, After: minRelease}},
		{status: 404, table: table, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 410, table: table, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 429, retry: "7", table: table, want: driver.Classification{Outcome: redrive.OutcomeRetry, After: 7 * time.Second}},
		{status: 999, want: driver.Classification{Outcome: redrive.OutcomeRetry}},
	} {
		h := serve(t, Target{Statuses: c.table}, func(w http.ResponseWriter, _ *http.Request) {
			if c.retry != "" {
				w.Header().Set("Retry-After", c.retry)
			}
			w.WriteHeader(c.status)
			_, _ = fmt.Fprintf(w, "said %d", c.status)
		})
		err := h.ServeDelivery(t.Context(), message("x"))
		if got := driver.Classify(nil, err); got != c.want {
			t.Errorf("%d, Retry-After %q: got %+v, want %+v", c.status, c.retry, got, c.want)
		}
		var status redrive.StatusError
		var detailed redrive.DetailedError
		if !errors.As(err, &status) || status.HTTPStatus() != c.status || !errors.As(err, &detailed) {
			t.Fatalf("%d: %#v", c.status, err)
		}
		details := detailed.FailureDetails()
		want := fmt.Sprintf("said %d", c.status)
		if c.status == 304 {
			want = ""
		}
		if details["http.status"] != strconv.Itoa(c.status) || details["http.response"] != want || details["target"] != h.Target() {
			t.Errorf("%d: details %v", c.status, details)
		}
	}
}

// A receiver's word about the message goes before its status and before the target's table.
func TestReceiverDecides(t *testing.T) {
	table := redrive.Table{Transient: []string{"5xx"}}
	for _, c := range []struct {
		status int
		word   string
		want   driver.Classification
	}{
		{500, "abort-message", driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{503, "Abort-Message", driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}},
		{429, "disable", driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonDisabled}},
		{500, "retry", driver.Classification{Outcome: redrive.OutcomeRetry}},
		{status: 200, word: "abort-message"},
	} {
		h := serve(t, Target{Statuses: table}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(HeaderDelivery, c.word)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
		})
		err := h.ServeDelivery(t.Context(), message("x"))
		if c.status == http.StatusOK {
			if err != nil {
				t.Errorf("%d, %s: %v", c.status, c.word, err)
			}
			continue
		}
		if got := driver.Classify(nil, err); got != c.want {
			t.Errorf("%d, %s: got %+v, want %+v", c.status, c.word, got, c.want)
		}
		var response *ResponseError
		if !errors.As(err, &response) || response.Status != c.status {
			t.Errorf("%d, %s: the answer is not in %v", c.status, c.word, err)
		}
	}
}

func TestRetryAfterAsDate(t *testing.T) {
	h := serve(t, Target{}, func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		w.Header().Set("Retry-After", now.Add(90*time.Second).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	err := h.ServeDelivery(t.Context(), message("x"))
	if got := driver.Classify(nil, err).After; got < 89*time.Second || got > 91*time.Second {
		t.Errorf("after %s, want 90s", got)
	}
}

func TestRetryAfterHoldsTheTarget(t *testing.T) {
	h := serve(t, Target{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	gate := h.Gates()[0]
	now := time.Now()
	if g := gate.Reserve(now, driver.Ask{Max: 5}); g.N != 5 {
		t.Fatalf("granted %d before", g.N)
	}
	_ = h.ServeDelivery(t.Context(), message("x"))
	g := gate.Reserve(now.Add(time.Second), driver.Ask{Max: 5})
	if g.N != 0 || g.Until.Before(now.Add(20*time.Second)) || g.Reason == "" {
		t.Errorf("granted %+v while the target asked to wait", g)
	}
	if g := gate.Reserve(g.Until, driver.Ask{Max: 5}); g.N != 5 {
		t.Errorf("granted %d after", g.N)
	}
}

func TestReferences(t *testing.T) {
	var signature, token string
	file := filepath.Join(t.TempDir(), "token")
	h := serve(t, Target{Secrets: []string{"env:REDRIVE_TEST_SECRET"}, Headers: map[string]string{"authorization": "file:" + file}},
		func(_ http.ResponseWriter, r *http.Request) {
			signature, token = r.Header.Get("Webhook-Signature"), r.Header.Get("Authorization")
		})
	refused := func(want string) {
		t.Helper()
		err := h.ServeDelivery(t.Context(), message("x"))
		var e *RefusedError
		if !errors.As(err, &e) || driver.Classify(nil, err).Outcome != redrive.OutcomeRelease || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a refusal that says %q", err, want)
		}
	}
	refused("REDRIVE_TEST_SECRET is not set")
	t.Setenv("REDRIVE_TEST_SECRET", "whsec_canary!!")
	refused("not base64")
	t.Setenv("REDRIVE_TEST_SECRET", vectorSecret)
	refused("no such file")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Bearer a\x00b")
	refused("control characters")
	write("Bearer first\n")
	if err := h.ServeDelivery(t.Context(), message("x")); err != nil || signature == "" || token != "Bearer first" {
		t.Errorf("got %q %q, %v", signature, token, err)
	}
	write("Bearer second\n")
	if err := h.ServeDelivery(t.Context(), message("x")); err != nil || token != "Bearer second" {
		t.Errorf("a changed secret: got %q, %v", token, err)
	}
}

func TestBadID(t *testing.T) {
	h := mustNew(t, Target{URL: "http://127.0.0.1:1/"}, Options{})
	d := message("x")
	d.ID = "a.1614265330"
	if v := driver.Classify(nil, h.ServeDelivery(t.Context(), d)); v.Outcome != redrive.OutcomeDead {
		t.Errorf("an id with a point: %+v", v)
	}
}
