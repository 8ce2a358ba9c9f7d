package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/server/api"
)

// fill makes a store with waiting and dead messages in a new folder.
func fill(t *testing.T, waiting, dead int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	store, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range waiting {
		if err := redrive.Publish(t.Context(), store, "q", map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	var entries []redrive.Entry
	for i := range dead {
		f := &redrive.Failure{Message: "no \x1b[31mluck", Types: []string{"error"}, Signature: "cafe"}
		entries = append(entries, redrive.Entry{Message: redrive.Message{Queue: "q", ID: fmt.Sprintf("d%d", i), Kind: "k", Body: []byte("x")},
			State: redrive.StateDead, Reason: redrive.ReasonPermanent, History: redrive.History{Count: 1, First: f}})
	}
	if _, err := store.Apply(t.Context(), redrive.Batch{Put: entries}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestArchiveOfAFolderAndBack(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 3, 40)
	b.expect(exitOK, "40 of 40 archived", "dead", "archive", "--data", dir, "--rate", "10000/s")
	b.expect(exitOK, "no dead letters", "dead", "groups", "--data", dir)
	b.expect(exitOK, "0 imported", "dead", "import", filepath.Join(dir, "archive"), "--data", dir, "--kind", "other")
	b.expect(exitOK, "40 imported, 0 there already, 0 failed", "dead", "import", filepath.Join(dir, "archive"), "--data", dir)
	b.expect(exitOK, "0 imported, 40 there already", "dead", "import", filepath.Join(dir, "archive"), "--data", dir)
	b.expect(exitOK, "balance", "verify", "--data", dir)
	files, err := filepath.Glob(filepath.Join(dir, "archive", "*.zst"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	other := fill(t, 0, 0)
	b.expect(exitOK, "40 imported", "dead", "import", files[0], "--data", other)
	export := filepath.Join(t.TempDir(), "dead.ndjson")
	b.expect(exitOK, "40 dead letters", "dead", "export", "--data", other, "-o", export)
	b.expect(exitOK, "40 imported", "dead", "import", export, "--data", fill(t, 0, 0))
	b.types = "rubbish\n"
	b.expect(exitFailed, "line 1", "dead", "import", "-", "--data", other)
	b.expect(exitUsage, "narrowed by", "dead", "import", export, "--data", other, "--text", "x")
}

func TestPurgeAndCancel(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 30, 5)
	b.expect(exitUsage, "add --yes to purge 30 messages that wait (queue q)", "queues", "purge", "q", "--data", dir)
	b.expect(exitUsage, "name messages, or a filter", "messages", "cancel", "--data", dir)
	b.expect(exitUsage, "neither a reason", "messages", "cancel", "--reason", "expired", "--data", dir)
	b.tty, b.types = true, "purge 31\n"
	b.expect(exitFailed, "nothing was removed", "queues", "purge", "q", "--dead", "--data", dir)
	b.types = "cancel 30\n"
	b.expect(exitOK, "30 of 30 cancelled", "messages", "cancel", "--queue", "q", "--data", dir, "--rate", "10000/s")
	b.types = "purge 5\n"
	b.expect(exitOK, "5 messages removed from q", "queues", "purge", "q", "--dead", "--data", dir)
	b.tty = false
	b.expect(exitOK, "nothing to remove", "queues", "purge", "q", "--dead", "--data", dir)
	out := b.expect(exitOK, "", "verify", "--data", dir, "--json")
	var v api.Verified
	if err := json.Unmarshal([]byte(out), &v); err != nil || !v.Balanced || v.Queues[0].Books.Dropped != 35 {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCopy(t *testing.T) {
	b := newBench(t)
	from, to := fill(t, 70, 20), filepath.Join(t.TempDir(), "copy")
	b.expect(exitOK, "90 copied, 0 there already, 0 failed", "copy", "--from", from, "--to", to)
	b.expect(exitOK, "0 copied, 90 there already, 0 failed", "copy", "--from", from, "--to", to)
	for _, dir := range []string{from, to} {
		b.expect(exitOK, "balance", "verify", "--data", dir)
	}
	var lists [2]string
	for i, dir := range []string{from, to} {
		lists[i] = b.expect(exitOK, "", "dead", "show", "q/d7", "--data", dir, "--json")
	}
	if lists[0] != lists[1] {
		t.Errorf("the copy differs:\n%s\n%s", lists[0], lists[1])
	}
	b.expect(exitUsage, "the same", "copy", "--from", from, "--to", from)
	b.expect(exitFailed, "from:", "copy", "--from", "nonsense://x", "--to", to)
}

func TestDoctorAndTop(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 3, 2)
	b.expect(exitOK, "2 dead letters", "doctor", "--data", dir)
	b.expect(exitOK, "they balance", "doctor", "--data", dir)
	b.expect(exitOK, `"level": "warn"`, "doctor", "--data", dir, "--json")
	b.kill("q", redrive.ReasonManual, "a")
	b.expect(exitOK, "is ready", "doctor")
	b.expect(exitOK, "DONE/S", "top", "-n", "1")
	b.expect(exitOK, `"done_per_second"`, "top", "--json", "--every", "100ms")
	b.tty = true
	if out := b.expect(exitOK, "DEAD", "top", "-n", "2", "--every", "100ms"); strings.Count(out, "\x1b[H") != 2 {
		t.Errorf("%q", out)
	}
}

func TestBench(t *testing.T) {
	b := newBench(t)
	b.expect(exitOK, "a handler that does nothing", "bench", "--messages", "300", "--size", "100B")
	b.expect(exitOK, `"published_per_second"`, "bench", "--messages", "50", "--json")
	b.expect(exitUsage, "--messages", "bench", "--messages", "0")
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Setenv("TMPDIR", t.TempDir())
	b := newBench(t)
	out := b.expect(exitOK, "none is lost", "demo", "--messages", "120")
	for _, says := range []string{"24 refused", "stopped: 5 of 30 redriven", "died again of the same cause", "done: 30 of 30 redriven", "the books balance", "120 of 120"} {
		if !strings.Contains(out, says) {
			t.Errorf("the demo does not say %q:\n%s", says, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("it colours what is not a terminal")
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("it left %v behind, %v", left, err)
	}
}

func TestPlansOfAPerson(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonPermanent, "a", "b", "c")
	out := b.expect(exitOK, "", "dead", "redrive", "--queue", "q", "--canary", "2", "--json")
	var p api.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Request.Canary != 2 || p.Trial == nil {
		t.Fatal(out, err)
	}
	b.expect(exitOK, "queue q", "plans", "show", p.ID)
	b.expect(exitOK, "cancelled", "plans", "cancel", p.ID)
	b.expect(exitOK, "", "plans", "results", p.ID)
	b.expect(exitFailed, "cancelled", "plans", "show", p.ID, "--wait", "--json")
	b.expect(exitUsage, "a canary needs a daemon", "dead", "redrive", "--queue", "q", "--canary", "2", "--data", fill(t, 0, 1))
}
