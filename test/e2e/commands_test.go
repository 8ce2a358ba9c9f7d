package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// TestCommandsOfAnOperator archives, imports, masks, pauses, purges, copies, looks and
// measures, on a daemon and then on the files.
func TestCommandsOfAnOperator(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "archive")
	d := newDaemon(t, fmt.Sprintf(`
archive: %q
mask: ["$.card.number", "header:authorization"]
queues:
  q: {deliver: {url: %q, allow_private: true}}
  later: {}
  queue: {}
`, archive, newReceiver(t)+"/hook"))
	for _, name := range []string{"queu", "laterr"} { // one letter is missing, one too many
		for _, verb := range []string{"pause", "resume"} {
			d.redrive("queues", verb, name).fails(t, 1, "did you mean")
		}
	}
	d.redrive("queues", "pause", "q", "--reason", "first the letters").ok(t)
	d.publishMany("q", "k", 60, func(i int) string {
		return fmt.Sprintf(`"expires_at":"2020-01-01T00:00:00Z","headers":{"authorization":"canary-secret"},"body":{"n":%d,"card":{"number":"canary-4111"}}`, i)
	})
	until(t, "all have expired", time.Minute, func() bool { return d.queue("q").Dead == 60 })

	// The pause outlives the daemon.
	d.kill()
	d.start()
	if out := d.redrive("queues").ok(t).out; !strings.Contains(out, "paused by local since") || !strings.Contains(out, ": first the letters") {
		t.Errorf("after kill -9: %s", out)
	}
	d.redrive("queues", "resume", "q").ok(t)

	// What is masked shows nowhere but in an export.
	for _, args := range [][]string{{"dead", "show", "q/k-1"}, {"dead", "show", "q/k-1", "--json"}, {"show", "q/k-1"}, {"dead", "list"}, {"dead", "causes"}} {
		if out := d.redrive(args...).ok(t).out; strings.Contains(out, "canary-") {
			t.Errorf("%v shows what is masked: %s", args, out)
		}
	}
	export := filepath.Join(t.TempDir(), "dead.ndjson")
	d.redrive("dead", "export", "-o", export).ok(t)
	if b, err := os.ReadFile(export); err != nil || strings.Count(string(b), "canary-4111") != 60 {
		t.Errorf("the export lacks bodies: %v", err)
	}
	d.redrive("dead", "edit", "q/k-2", "--header", "tenant=gold").ok(t)
	if m := get[wire.Message](t, d.url+"/v1/queues/q/dead-letters/k-2?unmasked=true"); !strings.Contains(*m.Body, "canary-4111") || string(m.Headers[0].Value) != "canary-secret" {
		t.Errorf("an edit wrote the mask into the message: %+v", m)
	}

	// Into the archive and back.
	d.redrive("dead", "archive", "--queue", "q", "--rate", "1000/s", "--wait", "--yes").fails(t, 0, "60 of 60 archived")
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
	d.redrive("dead", "import", archive, "--queue", "q").fails(t, 0, "60 imported, 0 there already, 0 failed")
	d.redrive("dead", "import", archive, "--queue", "q").fails(t, 0, "0 imported, 60 there already")
	d.redrive("dead", "drop", "--queue", "q").fails(t, 2, "add --yes to drop 60 dead letters (queue q)")

	d.publishMany("later", "l", 25, func(int) string { return `"body":1` })
	d.redrive("top", "-n", "2").fails(t, 0, "DONE/S", "later")
	d.redrive("doctor").fails(t, 0, "is ready", "60 dead letters", "it balances")
	d.redrive("messages", "cancel", "later/l-3").fails(t, 0, "cancelled")
	d.redrive("queues", "purge", "later").fails(t, 2, "add --yes to purge 24 messages that wait (queue later)")
	d.redrive("queues", "purge", "later", "--yes").fails(t, 0, "24 messages removed from later")
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")

	if code := d.terminate(30 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// The same on the files.
	copied := filepath.Join(t.TempDir(), "copied")
	command(t, nil, "copy", "--from", d.dir, "--to", copied).fails(t, 0, "60 copied, 0 there already, 0 failed")
	command(t, nil, "copy", "--from", d.dir, "--to", copied).fails(t, 0, "0 copied, 60 there already, 0 failed")
	for _, dir := range []string{d.dir, copied} {
		command(t, nil, "doctor", "--data", dir).fails(t, 0, "60 dead letters", "it balances")
		command(t, nil, "dead", "redrive", "--queue", "q", "--rate", "1000/s", "--data", dir).fails(t, 0, "60 of 60 redriven")
		command(t, nil, "verify", "--scan", "--data", dir).fails(t, 0, "the ledger balances")
	}
	command(t, nil, "bench", "--messages", "500").fails(t, 0, "published", "delivered")
}

// TestDemo is what a newcomer starts first.
func TestDemo(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := command(t, nil, "demo", "--messages", "200").ok(t)
	for _, says := range []string{"as the queue was full", "stopped: 5 of 50 redriven", "done: 50 of 50 redriven", "the ledger balances", "200 of 200 accepted messages were delivered"} {
		if !strings.Contains(r.out, says) {
			t.Errorf("it does not say %q:\n%s", says, r.out)
		}
	}
	if strings.ContainsRune(r.out+r.stderr, '\x1b') {
		t.Error("it colours what is not a terminal")
	}
	t.Logf("the demo took %s", time.Since(began).Round(time.Second/10))
}

// TestDemoOnSharedStores plays the same demo on servers that hold something else, which
// stays as it is, and tells it twice.
func TestDemoOnSharedStores(t *testing.T) {
	for name, begin := range storeServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := begin(t).URL()
			command(t, nil, "publish", "orders", "mine", "--id", "order-1", "--data", url).ok(t)
			for range 2 {
				r := command(t, nil, "demo", "--messages", "24", "--store", url).ok(t)
				for _, says := range []string{"as the queue was full", "stopped: 5 of 6 redriven", "done: 6 of 6 redriven", "the ledger balances", "24 of 24 accepted messages were delivered"} {
					if !strings.Contains(r.out, says) {
						t.Errorf("it does not say %q:\n%s", says, r.out)
					}
				}
				if !strings.Contains(r.stderr, "redrive_demo") {
					t.Errorf("it does not say what stays: %s", r.stderr)
				}
			}
			if out := command(t, nil, "queues", "--data", url).ok(t).out; strings.Count(out, "orders") != 1 || strings.Contains(out, "orders-") {
				t.Errorf("the demo is among what was there:\n%s", out)
			}
			command(t, nil, "show", "orders/order-1", "--data", url).fails(t, 0, "waiting")
		})
	}
}
