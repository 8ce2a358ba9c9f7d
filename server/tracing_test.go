package server_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive/server/api"
)

func TestTracesAreSentByOTLP(t *testing.T) {
	var mu sync.Mutex
	var sent strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				body = z
			}
		}
		b, _ := io.ReadAll(body)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&sent, "%s %s", r.URL.Path, b)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	parents := make(chan string, 1)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("traceparent") }))
	defer target.Close()
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}}", target.URL)), newStore(t))
	get[api.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x", "redrive-id", "m-1")
	if parent := <-parents; !strings.HasPrefix(parent, "00-") {
		t.Errorf("traceparent %q", parent)
	}
	d.shutdown() // what is left is sent
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"/v1/traces ", "send hooks", "process hooks", "m-1", "redrive.outcome"} {
		if !strings.Contains(sent.String(), want) {
			t.Errorf("the collector did not get %q", want)
		}
	}
}
