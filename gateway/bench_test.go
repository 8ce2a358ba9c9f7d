package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/gateway"
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

// BenchmarkConnections publishes from 128 keep-alive connections that write and read
// without a client library, so that the server is most of what is measured.
func BenchmarkConnections(b *testing.B) {
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"gateway", mount(nowhere{}, gateway.Options{})}} {
		b.Run(c.name, func(b *testing.B) { loadConnections(b, c.h, 128) })
	}
}

func loadConnections(b *testing.B, h http.Handler, connections int) {
	server := httptest.NewServer(h)
	defer server.Close()
	request := []byte("POST /v1/queues/sms/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 256\r\nContent-Type: application/json\r\n\r\n" + strings.Repeat("x", 256))
	work := make(chan int, b.N)
	for range b.N {
		work <- 1
	}
	close(work)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			in := make([]byte, 4096)
			for range work {
				_, _ = conn.Write(request)
				if n, err := conn.Read(in); err != nil || !bytes.HasPrefix(in[:n], []byte("HTTP/1.1 202")) {
					b.Errorf("%s %v", in[:n], err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkStream(b *testing.B) {
	line := `{"kind":"sms.send","body":"` + strings.Repeat("x", 230) + "\"}\n"
	h := mount(nowhere{}, gateway.Options{})
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	h.ServeHTTP(discard{http.Header{}}, ndjson(&repeat{line: line, left: int64(b.N) * int64(len(line))}))
}
