//go:build unix

package daemon_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// BenchmarkScrape reads /metrics of a daemon with ten thousand configured queues on the
// embedded store, all of them used: half are delivered, with a message done, one dead
// and one that waits for its time in each, half hold messages that are due.
func BenchmarkScrape(b *testing.B) {
	const queues = 10_000
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "bad" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	target.Config.SetKeepAlivesEnabled(false) // or thousands of connections stay open
	target.Start()
	defer target.Close()
	store, err := sqlite.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	cfg := config.Default()
	var msgs []redrive.Message
	for i := range queues {
		name := fmt.Sprintf("queue-%05d", i)
		cfg.Queues[name] = nil
		if i%2 == 0 {
			parsed, err := config.Parse("bench.yaml", fmt.Appendf(nil, "queues: {%s: {deliver: {url: %q, allow_private: true}}}", name, target.URL))
			if err != nil {
				b.Fatal(err)
			}
			cfg.Queues[name] = parsed.Queues[name]
			msgs = append(msgs, redrive.Message{Queue: name, Body: []byte("later"), Delay: time.Hour})
		}
		msgs = append(msgs, redrive.Message{Queue: name, Body: []byte("good")}, redrive.Message{Queue: name, Body: []byte("bad")})
	}
	if err := driver.FirstError(store.Publish(b.Context(), msgs)); err != nil {
		b.Fatal(err)
	}
	addr := serveWith(b, cfg, daemon.Options{Store: store})
	ended := func() (n int64) {
		counts, err := store.Counts(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for i := range counts {
			n += counts[i].Ledger.Done + counts[i].AllDead()
		}
		return n
	}
	deadline, poll := time.NewTimer(5*time.Minute), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer poll.Stop()
	for ended() < queues {
		select {
		case <-poll.C:
		case <-deadline.C:
			b.Fatalf("%d of %d messages ended", ended(), queues)
		}
	}
	b.ReportAllocs()
	var size, lines int
	before := cpuTime(b)
	for b.Loop() {
		size, lines = scrape(b, addr)
	}
	b.ReportMetric((cpuTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/scrape")
	b.ReportMetric(float64(size), "B/page")
	b.ReportMetric(float64(lines), "lines/page")
}

func scrape(b *testing.B, addr net.Addr) (size, lines int) {
	resp, err := http.Get("http://" + addr.String() + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	return len(page), strings.Count(string(page), "\n")
}
