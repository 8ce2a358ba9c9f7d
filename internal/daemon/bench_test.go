//go:build unix

package daemon_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// connections is how many clients publish at once, each on a connection of its own
// that is kept.
const connections = 128

// BenchmarkPublish compares a publish of one message over HTTP with the least that a
// handler can do: read the body and answer 202. The generator is the same and writes
// and reads without a client library, so that the server is most of what is measured.
func BenchmarkPublish(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
		}))
		defer s.Close()
		load(b, s.Listener.Addr())
	})
	b.Run("memory", func(b *testing.B) { load(b, serve(b, daemon.Options{Store: memory.New()})) })
	b.Run("sqlite", func(b *testing.B) { load(b, serve(b, daemon.Options{})) })
	b.Run("sqlite-store", publishDirectly)
}

// serve runs a daemon whose queue nobody consumes.
func serve(b *testing.B, o daemon.Options) net.Addr {
	cfg := config.Default()
	cfg.Store = config.Address("sqlite:" + filepath.Join(b.TempDir(), "data"))
	cfg.Queues["sms"] = nil
	return serveWith(b, cfg, o)
}

// serveWith runs a daemon with a configuration.
func serveWith(b *testing.B, cfg *config.Config, o daemon.Options) net.Addr {
	cfg.Listen = "127.0.0.1:0"
	addr := make(chan net.Addr, 1)
	o.Started = func(a net.Addr) { addr <- a }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, cfg, o) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	select {
	case a := <-addr:
		return a
	case err := <-ended:
		b.Fatal(err)
		return nil
	}
}

// load sends b.N requests.
func load(b *testing.B, addr net.Addr) {
	request := []byte("POST /v1/queues/sms/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 256\r\nContent-Type: application/json\r\n\r\n" + strings.Repeat("x", 256))
	share(b, func(next func() bool) {
		conn, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		in := make([]byte, 4096)
		for next() {
			_, _ = conn.Write(request)
			if n, err := conn.Read(in); err != nil || !bytes.HasPrefix(in[:n], []byte("HTTP/1.1 202")) {
				b.Errorf("%s %v", in[:n], err)
				return
			}
		}
	})
}

// publishDirectly is what the bare store does with as many callers.
func publishDirectly(b *testing.B) {
	store, err := sqlite.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	body := []byte(strings.Repeat("x", 256))
	share(b, func(next func() bool) {
		for next() {
			if errs := store.Publish(b.Context(), []redrive.Message{{Queue: "sms", Body: body}}); errs != nil {
				b.Error(errs)
				return
			}
		}
	})
}

// share runs work on as many goroutines as there are connections; together they get
// b.N times true from next.
func share(b *testing.B, work func(next func() bool)) {
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() { work(func() bool { _, ok := <-left; return ok }) })
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric((cpuTime(b)-before).Seconds()*1e6/float64(b.N), "cpu-us/msg")
}

// cpuTime is what this process has used, generator and server together: steadier than
// rates on a machine that others use too.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
