package daemon_test

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// collector takes traces by OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	sent strings.Builder
}

func newCollector(t *testing.T) *collector {
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				body = z
			}
		}
		b, _ := io.ReadAll(body)
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintf(&c.sent, "%s %s", r.URL.Path, b)
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

// got is all that was sent: texts and, raw, the ids of traces and spans.
func (c *collector) got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.String()
}

// With "trace: child" the attempt is in the trace of the publish.
func TestTraceOfTheAttemptIsTheParents(t *testing.T) {
	newCollector(t)
	parents := make(chan string, 1)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("traceparent") }))
	defer target.Close()
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}, trace: child}}", target.URL)), newStore(t))
	const published = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x", "traceparent", published)
	trace, span := ids(t, published)
	if gotTrace, gotSpan := ids(t, <-parents); gotTrace != trace || gotSpan == span {
		t.Errorf("trace %x, span %x", gotTrace, gotSpan)
	}
}

func TestTracesAreSentByOTLP(t *testing.T) {
	c := newCollector(t)
	parents := make(chan string, 1)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("traceparent") }))
	defer target.Close()
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}}", target.URL)), newStore(t))
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x", "redrive-id", "m-1")
	if parent := <-parents; !strings.HasPrefix(parent, "00-") {
		t.Errorf("traceparent %q", parent)
	}
	d.shutdown() // what is left is sent
	for _, want := range []string{"/v1/traces ", "send hooks", "process hooks", "m-1", "redrive.outcome"} {
		if !strings.Contains(c.got(), want) {
			t.Errorf("the collector did not get %q", want)
		}
	}
}

// ids takes the trace and the span out of a traceparent, as they are in OTLP.
func ids(t *testing.T, parent string) (trace, span string) {
	t.Helper()
	parts := strings.Split(parent, "-")
	if len(parts) != 4 {
		t.Fatalf("traceparent %q", parent)
	}
	raw := make([]string, 2)
	for i := range raw {
		b, err := hex.DecodeString(parts[1+i])
		if err != nil {
			t.Fatal(err)
		}
		raw[i] = string(b)
	}
	return raw[0], raw[1]
}

// A publish has a trace of its own. Each attempt is a span in another, which the delivery
// carries, and which is linked to the publish. A guarded target is no exception.
func TestDeliveryCarriesTheSpanOfItsAttempt(t *testing.T) {
	for name, further := range map[string]string{"delivered": "", "guarded": "guard: {retries: 0}"} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			type seen struct{ parent, state string }
			attempts := make(chan seen, 2)
			tried := 0
			target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				attempts <- seen{r.Header.Get("Traceparent"), r.Header.Get("Tracestate")}
				if tried++; tried == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			defer target.Close()
			d := start(t, parse(t, fmt.Sprintf(`
queues:
  hooks:
    deliver: {url: %q, allow_private: true}
    policy: {backoff: {type: fixed, interval: 1ms}}
    %s
`, target.URL, further)), newStore(t))
			const published = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x", "redrive-id", "m-1", "traceparent", published, "tracestate", "vendor=1")
			first, second := <-attempts, <-attempts
			d.eventually("the delivery to be done", func() bool { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "").Ledger.Done == 1 })
			d.shutdown()

			trace, _ := ids(t, published)
			for _, one := range []seen{first, second} {
				own, span := ids(t, one.parent)
				if own == trace || one.state != "" {
					t.Errorf("the delivery carries the context of the publish: %+v", one)
				}
				if !strings.Contains(c.got(), own) || !strings.Contains(c.got(), span) {
					t.Errorf("the collector got no span %s", one.parent)
				}
			}
			if first == second {
				t.Errorf("both attempts carry %+v", first)
			}
			if n := strings.Count(c.got(), trace); n < 3 { // the publish, and a link of each attempt
				t.Errorf("the publish's trace is named %d times", n)
			}
		})
	}
}
