package httpguard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/httpguard"
)

func TestClassify(t *testing.T) {
	date := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		status int
		header http.Header
		class  guard.Class
		after  time.Duration
		effect guard.Effect
	}{
		{200, nil, guard.ClassSuccess, 0, 0},
		{302, nil, guard.ClassSuccess, 0, 0},
		{404, nil, guard.ClassPermanent, 0, guard.NoEffect},
		{408, nil, guard.ClassTransient, 0, 0},
		{425, nil, guard.ClassTransient, 0, 0},
		{500, nil, guard.ClassTransient, 0, 0},
		{503, nil, guard.ClassTransient, 0, 0},
		{503, http.Header{"Retry-After": {"soon"}}, guard.ClassTransient, 0, 0},
		{503, http.Header{"Retry-After": {"7"}}, guard.ClassLimited, 7 * time.Second, guard.NoEffect},
		{429, nil, guard.ClassLimited, 0, guard.NoEffect},
		{429, http.Header{"Retry-After": {"999999"}}, guard.ClassLimited, time.Hour, guard.NoEffect},
		{429, http.Header{"Retry-After": {date.Add(time.Minute).Format(http.TimeFormat)}, "Date": {date.Format(http.TimeFormat)}},
			guard.ClassLimited, time.Minute, guard.NoEffect},
	}
	for _, tt := range tests {
		v, ok := httpguard.Classify(httpguard.Response{Status: tt.status, Header: tt.header}, nil)
		if !ok || v.Class != tt.class || v.RetryAfter != tt.after || v.Effect != tt.effect {
			t.Errorf("%d %v: got %+v", tt.status, tt.header, v)
		}
	}
}

func newGuard(t *testing.T, store driver.Store, bases ...string) *guard.Guard[httpguard.Request, httpguard.Response] {
	t.Helper()
	c := guard.Config[httpguard.Request, httpguard.Response]{Name: "api", Store: store}
	for i, base := range bases {
		call, err := httpguard.Call(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, base)
		if err != nil {
			t.Fatal(err)
		}
		c.Providers = append(c.Providers, guard.Provider[httpguard.Request, httpguard.Response]{
			Name: string(rune('a' + i)), Call: call, Classify: httpguard.Classify, Timeout: 5 * time.Second})
	}
	g, err := guard.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTransport(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Path", r.URL.RequestURI())
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write(append([]byte("got "), body...))
	}))
	defer server.Close()
	store := memory.New()
	client := &http.Client{Transport: &httpguard.Transport{Guard: newGuard(t, store, server.URL+"/base/")}}
	post := func() (*http.Response, string) {
		resp, err := client.Post("https://anywhere.example/send?x=1", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	if resp, body := post(); resp.StatusCode != 200 || body != "got hello" || resp.Header.Get("X-Path") != "/base/send?x=1" {
		t.Errorf("answered %d %q at %s", resp.StatusCode, body, resp.Header.Get("X-Path"))
	}
	status.Store(404)
	if resp, body := post(); resp.StatusCode != 404 || body != "got hello" {
		t.Errorf("the provider's own refusal: %d %q", resp.StatusCode, body)
	}
	status.Store(500)
	resp, _ := post()
	if resp.StatusCode != 202 || resp.Header.Get("Location") == "" || resp.Header.Get("Retry-After") != "5" {
		t.Fatalf("put off: %d %v", resp.StatusCode, resp.Header)
	}
	found, err := store.Get(t.Context(), []redrive.Ref{{Queue: "api", ID: resp.Header.Get(httpguard.HeaderTicket)}})
	if err != nil || found[0] == nil {
		t.Errorf("its message: %v, %v", found, err)
	}
	large, err := client.Post("https://anywhere.example/", "text/plain", strings.NewReader(strings.Repeat("x", httpguard.MaxBody+1)))
	if err == nil {
		_ = large.Body.Close()
		t.Error("a body that is too large was taken")
	}
}

func TestFailoverOverHTTP(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	alive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer alive.Close()
	g := newGuard(t, memory.New(), dead.URL, alive.URL)
	res, err := g.Do(t.Context(), httpguard.Request{Method: "GET", URL: "/"})
	if err != nil || res.Provider != "b" || res.Value.Status != 204 || res.Attempts != 2 {
		t.Errorf("got %+v, %v", res, err)
	}
}
