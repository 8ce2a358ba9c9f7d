package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

// heldSink keeps what is published until it is let go.
type heldSink struct{ free chan struct{} }

func (s *heldSink) Publish(_ context.Context, msgs []redrive.Message) []error {
	<-s.free
	for i := range msgs {
		msgs[i].ID = "x"
	}
	return nil
}

// A client whose body is refused half-way, or before, gets to read why, however much of it
// it has still to write.
func TestWhoIsRefusedReadsTheAnswer(t *testing.T) {
	const size = 2 << 20
	sink := &heldSink{free: make(chan struct{})}
	server := httptest.NewServer(mount(sink, gateway.Options{MaxInFlight: 3 * size, MaxBody: size}))
	defer server.Close()
	var refused atomic.Int32
	var free sync.Once
	ask := func(queue string, length int) (int, error) {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST /v1/queues/%s/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", queue, length); err != nil {
			return 0, err
		}
		if _, err := io.Copy(c, io.LimitReader(endless{}, int64(length))); err != nil { // what many clients do: they write all, then read
			return 0, fmt.Errorf("write: %w", err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, fmt.Errorf("read: %w", err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode == http.StatusServiceUnavailable {
			if resp.Header.Get("Retry-After") == "" {
				err = errors.New("no Retry-After")
			}
			refused.Add(1)
			free.Do(func() { close(sink.free) })
		}
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if status, err := ask("q", size); err != nil || status != 202 && status != 503 {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	all.Wait()
	if refused.Load() == 0 {
		t.Error("nothing was refused")
	}
	for queue, want := range map[string]int{"q": http.StatusRequestEntityTooLarge, "_system": http.StatusForbidden} {
		if status, err := ask(queue, 10*size); err != nil || status != want {
			t.Errorf("%s: %d, %v", queue, status, err)
		}
	}
}
