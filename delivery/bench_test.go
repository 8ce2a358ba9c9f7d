package delivery

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive"
)

// One delivery of 1 KiB over loopback, the target in the same process.
func BenchmarkDelivery(b *testing.B) {
	for _, c := range []struct {
		name    string
		secrets []string
	}{{"plain", nil}, {"signed", []string{vectorSecret}}} {
		b.Run(c.name, func(b *testing.B) {
			h := serve(b, Target{Secrets: c.secrets}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			d := typical()
			b.ReportAllocs()
			for b.Loop() {
				if err := h.ServeDelivery(b.Context(), d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What is ours of it: the request as net/http gets it.
func BenchmarkRequest(b *testing.B) {
	h := mustNew(b, Target{URL: "http://example.com/", Secrets: []string{vectorSecret}}, Options{})
	d := typical()
	now := start
	b.ReportAllocs()
	for b.Loop() {
		h.request(b.Context(), d, h.ready, now)
	}
}

func BenchmarkSign(b *testing.B) {
	key, _ := ParseSecret(vectorSecret)
	d := typical()
	b.ReportAllocs()
	for b.Loop() {
		Sign(key, d.ID, start, d.Body)
	}
}

// The excerpt of a failure's answer, as large as one is read.
func BenchmarkRedact(b *testing.B) {
	text := strings.Repeat(`{"error":"no such customer","token":"abc","see":"https://example.com/a?b=c"} `, maxFailureBody/76)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		redact(text, []string{"pl4in-CANARY"})
	}
}

func typical() *redrive.Delivery {
	d := message(strings.Repeat("x", 1024))
	d.Headers.Add("content-type", "application/json")
	d.Headers.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	d.Headers.Add("x-tenant", "gold")
	return d
}
