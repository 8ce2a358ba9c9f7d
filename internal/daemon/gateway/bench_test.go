package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

// nowhere accepts everything at once: what is measured is the gateway.
type nowhere struct{}

func (nowhere) Publish(_ context.Context, msgs []redrive.Message) []error {
	for i := range msgs {
		if msgs[i].ID == "" {
			msgs[i].ID = "0199aa77-0000-7000-8000-000000000000"
		}
	}
	return nil
}

// bare reads the body and answers 202: the least that an HTTP handler can do.
var bare = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusAccepted)
})

func BenchmarkOneMessage(b *testing.B) {
	body := []byte(strings.Repeat("x", 256))
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"gateway", mount(nowhere{}, gateway.Options{})}} {
		b.Run(c.name, func(b *testing.B) {
			r := post(nil, "Content-Type", "application/json", "User-Agent", "bench")
			r.ContentLength = int64(len(body))
			w := discard{http.Header{}}
			src := bytes.NewReader(body)
			b.ReportAllocs()
			for b.Loop() {
				src.Reset(body)
				r.Body = io.NopCloser(src)
				clear(w.h)
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	line := `{"kind":"sms.send","body":"` + strings.Repeat("x", 230) + "\"}\n"
	h := mount(nowhere{}, gateway.Options{})
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	h.ServeHTTP(discard{http.Header{}}, ndjson(&repeat{line: line, left: int64(b.N) * int64(len(line))}))
}
