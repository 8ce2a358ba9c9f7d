package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/wire"
)

// TestRetention lets the program remove what its configuration no longer keeps: by count, by
// age, and without an archive where the queue says so. What goes is archived before,
// counted, and leaves the ledger balanced.
func TestRetention(t *testing.T) {
	t.Parallel() // mostly waits for the next round of retention, a minute
	const n, keep = 12, 5
	target := newReceiver(t, "--fail", "100%", "--status", "400")
	kept := filepath.Join(t.TempDir(), "archive")
	deliver := fmt.Sprintf("deliver: {url: %q, allow_private: true}", target)
	d := newDaemon(t, fmt.Sprintf("archive: %q\nqueues:\n  counted: {%[2]s, retention: {keep: %[3]d}}\n  aged: {%[2]s, retention: {age: 1s}}\n"+
		"  thrown: {%[2]s, retention: {age: 1s, archive: false}}\n  whole: {%[2]s}\n", kept, deliver, keep))
	queues := []string{"counted", "aged", "thrown", "whole"}
	for _, q := range queues {
		d.publishMany(q, "order", n, func(i int) string { return fmt.Sprintf(`"body":%d`, i) })
	}
	entered := func(q string) bool {
		now := d.queue(q)
		return now.Dead+now.Ledger.Archived+now.Ledger.Dropped == n
	}
	for _, q := range queues {
		until(t, "all of "+q+" have died", time.Minute, func() bool { return entered(q) })
	}
	until(t, "what is not kept is gone", 3*time.Minute, func() bool {
		return d.queue("counted").Dead == keep && d.queue("aged").Dead == 0 && d.queue("thrown").Dead == 0
	})
	for q, want := range map[string][3]int64{"counted": {keep, n - keep, 0}, "aged": {0, n, 0}, "thrown": {0, 0, n}, "whole": {n, 0, 0}} {
		if now := d.queue(q); [3]int64{now.Dead, now.Ledger.Archived, now.Ledger.Dropped} != want {
			t.Errorf("%s: %d dead, %d archived, %d dropped; want %v", q, now.Dead, now.Ledger.Archived, now.Ledger.Dropped, want)
		}
	}
	if metrics := read(t, d.url+"/metrics"); !strings.Contains(metrics, fmt.Sprintf(`{entry="archived",queue="aged"} %d`, n)) &&
		!strings.Contains(metrics, fmt.Sprintf(`{queue="aged",entry="archived"} %d`, n)) {
		t.Error("the metrics do not count what was archived")
	}
	if v := decode[wire.Verified](t, d.redrive("verify", "--scan", "--json").ok(t)); !v.Balanced {
		t.Errorf("the ledger does not balance: %+v", v)
	}
	if code := d.terminate(30 * time.Second); code != 0 {
		t.Fatalf("the daemon ended with %d", code)
	}
	archived := map[string]int{}
	a, err := archive.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Read(t.Context(), redrive.Query{}, func(e *redrive.Entry) bool { archived[e.Queue]++; return true }); err != nil {
		t.Fatal(err)
	}
	if archived["counted"] != n-keep || archived["aged"] != n || len(archived) != 2 {
		t.Errorf("the archive holds %v", archived)
	}
}

// read returns the text at an address.
func read(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
