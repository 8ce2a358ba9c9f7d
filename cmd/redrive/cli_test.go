package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/wire"
)

// bench is a store behind the API, and a person at a terminal.
type bench struct {
	t     *testing.T
	store driver.Store
	url   string
	tty   bool // the person is at a terminal
	types string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Setenv("REDRIVE_TOKEN", "")
	store := memory.New()
	local := daemon.Local(store, nil, slog.Default())
	s := httptest.NewServer(local)
	t.Cleanup(func() {
		s.Close()
		local.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t: t, store: store, url: s.URL}
}

// run carries out a command line and returns the exit code, the output and the error
// output.
func (b *bench) run(args ...string) (code int, out, stderr string) {
	b.t.Helper()
	var o, e bytes.Buffer
	term := &terminal{in: strings.NewReader(b.types), out: &o, err: &e, inTTY: b.tty, outTTY: b.tty, errTTY: b.tty, colour: b.tty}
	if b.tty {
		term.width = 120
	}
	b.t.Setenv("REDRIVE_SERVER", b.url)
	code = run(context.Background(), args, term)
	return code, o.String(), e.String()
}

// expect runs a command line and checks the exit code and what it says.
func (b *bench) expect(code int, says string, args ...string) string {
	b.t.Helper()
	got, out, stderr := b.run(args...)
	if got != code || !strings.Contains(out+stderr, says) {
		b.t.Errorf("redrive %s: exit code %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, says, out, stderr)
	}
	return out
}

// kill makes dead letters, each with a failure.
func (b *bench) kill(queue string, reason redrive.Reason, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		f := &redrive.Failure{Message: "the \x1b[31mtarget\x1b[0m is sick", Types: []string{"*x.Error"}, Signature: "cafe", Host: "h", Reason: reason}
		e := redrive.Entry{
			Message: redrive.Message{Queue: queue, ID: id, Kind: "k", Body: []byte("body \x1b]0;of\x07 " + id)},
			State:   redrive.StateDead, Reason: reason, History: redrive.History{Count: 1, First: f},
		}
		results, err := b.store.Apply(b.t.Context(), driver.Batch{Put: []redrive.Entry{e}, Entered: driver.EnteredImported})
		if err == nil {
			err = driver.FirstError(results)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) dead() int64 {
	b.t.Helper()
	counts, err := b.store.Counts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	var n int64
	for i := range counts {
		n += counts[i].AllDead()
	}
	return n
}

func TestUsage(t *testing.T) {
	b := newBench(t)
	b.expect(exitUsage, "try: redrive --help", "publsh")
	b.expect(exitUsage, "try: redrive dead list --help", "dead", "list", "--limit", "many")
	b.expect(exitUsage, "a-z", "publish", "BAD QUEUE", "x")
	b.expect(exitUsage, "from the lines", "publish", "q", "--ndjson", "x", "--kind", "k", "--header", "a=b")
	b.expect(exitUsage, "NAME=VALUE", "publish", "q", "x", "--header", "novalue")
	b.expect(exitUsage, "exhausted", "dead", "list", "--reason", "tired")
	b.expect(exitUsage, "neither a duration", "dead", "list", "--since", "yesterday")
	b.expect(exitUsage, "write 50/s", "dead", "redrive", "--rate", "50")
	b.expect(exitOK, "Examples:", "dead", "redrive", "--help")
	b.expect(exitOK, "messages", "--help")
	b.expect(exitOK, "redrive", "version")
}

func TestEveryCommandHasHelp(t *testing.T) {
	b := newBench(t)
	for _, words := range []string{
		"serve", "publish", "show", "messages list", "messages cancel", "queues list", "queues pause", "queues resume", "queues monitor", "dead list", "dead causes",
		"dead show", "dead count", "dead ack", "dead triage", "dead edit", "dead repair", "dead restore", "dead redrive", "dead drop", "dead export", "plans list", "verify", "store check", "store salvage", "backup",
		"receive", "config check", "completion", "queues purge", "dead archive", "dead import", "plans show", "plans results", "copy", "doctor", "top", "events", "report", "audit", "demo", "bench",
	} {
		b.expect(exitOK, "Examples:", append(strings.Fields(words), "--help")...)
	}
}

func TestPublishAndShow(t *testing.T) {
	b := newBench(t)
	b.expect(exitOK, "q/one accepted", "publish", "q", `{"a": 1}`, "--id", "one", "--kind", "k", "--key", "x", "--header", "tenant=gold", "--delay", "1h")
	b.expect(exitOK, "accepted before", "publish", "q", `{"a": 1}`, "--id", "one", "--kind", "k", "--key", "x")
	b.expect(exitFailed, "hint:", "publish", "q", `{"a": 2}`, "--id", "one")
	out := b.expect(exitOK, "waiting", "show", "one")
	for _, want := range []string{"tenant: gold", "content-type: application/json", `"a": 1`, "key"} {
		if !strings.Contains(out, want) {
			t.Errorf("show does not say %q:\n%s", want, out)
		}
	}
	if out := b.expect(exitOK, "", "show", "q/one", "--body"); out != `{"a": 1}` {
		t.Errorf("the body is %q", out)
	}
	b.expect(exitOK, "one", "messages", "list", "--queue", "q", "--state", "waiting")
	b.expect(exitOK, "cancelled", "messages", "cancel", "one")
	b.expect(exitOK, "drop", "show", "one")
	b.expect(exitNone, "no queue has a message two", "show", "two")
}

func TestPublishFromInputAndFile(t *testing.T) {
	b := newBench(t)
	b.types = "from the input"
	b.expect(exitOK, "accepted", "publish", "q", "--id", "input")
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte{0, 1, 2}, 0o600); err != nil {
		t.Fatal(err)
	}
	b.expect(exitOK, "accepted", "publish", "q", "@"+file, "--id", "file")
	if out := b.expect(exitOK, "", "show", "q/input", "--body"); out != b.types {
		t.Errorf("the body is %q", out)
	}
	b.expect(exitOK, "3 B that are not text", "show", "q/file")
	b.tty = true
	b.expect(exitUsage, "there is no body", "publish", "q")
}

func TestNDJSONListsTheLinesThatFailed(t *testing.T) {
	b := newBench(t)
	b.types = `{"id": "a", "body": 1}` + "\n" + `{"id": "b", "bdy": 2}` + "\n" + `{"id": "c", "body": 3}` + "\n"
	b.expect(exitFailed, "line 2:", "publish", "q", "--ndjson", "-")
	b.expect(exitFailed, "q: 0 accepted, 2 duplicates, 1 failed", "publish", "q", "--ndjson", "-")
	var sum published
	out := b.expect(exitFailed, "", "publish", "q", "--ndjson", "-", "--json")
	if err := json.Unmarshal([]byte(out), &sum); err != nil || sum.Duplicates != 2 || len(sum.Errors) != 1 || sum.Errors[0].Line != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestNothingOfAPayloadReachesTheTerminal(t *testing.T) {
	b := newBench(t)
	b.tty = true
	b.kill("q", redrive.ReasonExhausted, "a")
	for _, args := range [][]string{{"dead", "list"}, {"dead", "causes"}, {"dead", "show", "q/a"}, {"dead", "show", "q/a", "--body"}, {"show", "a"}} {
		out := b.expect(exitOK, `\x1b`, args...)
		for _, colour := range []string{faint, strong, good, warn, bad} {
			out = strings.ReplaceAll(out, "\x1b["+colour+"m", "")
		}
		if out = strings.ReplaceAll(out, "\x1b[0m", ""); strings.ContainsAny(out, "\x1b\x07") {
			t.Errorf("redrive %s wrote %q", strings.Join(args, " "), out)
		}
	}
}

func TestRedriveAsksOnATerminal(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b")
	b.kill("r", redrive.ReasonCrashed, "c")
	b.expect(exitOK, "2 dead letters would be redriven: 2 exhausted", "dead", "redrive", "--queue", "q", "--dry-run")
	b.tty, b.types = true, "n\n"
	b.expect(exitFailed, "Redrive 2 dead letters (queue q)? [y/N]", "dead", "redrive", "--queue", "q")
	if n := b.dead(); n != 3 {
		t.Errorf("%d dead letters are left", n)
	}
	b.types = "y\n"
	b.expect(exitOK, "2 of 2 redriven", "dead", "redrive", "--queue", "q", "--wait")
	b.tty = false
	b.expect(exitOK, "1 of 1 redriven", "dead", "redrive", "c", "--wait")
	if n := b.dead(); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	b.expect(exitOK, "redrive", "plans")
	b.expect(exitOK, "balance", "verify", "--scan")
}

func TestDropAsksForTheCount(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b")
	b.expect(exitUsage, "--yes to drop 2 dead letters (queue q)", "dead", "drop", "--queue", "q")
	for _, verb := range []string{"drop", "redrive", "archive"} {
		for _, b.tty = range []bool{false, true} {
			b.types = "y\n"
			b.expect(exitUsage, "every dead letter of every queue", "dead", verb, "--yes")
			b.expect(exitUsage, "every dead letter of every queue", "dead", verb)
			b.expect(exitUsage, "--all goes with no other filter", "dead", verb, "--all", "--queue", "q")
			b.expect(exitUsage, "--all goes with no other filter", "dead", verb, "--all", "a")
		}
	}
	b.tty = false
	b.expect(exitOK, "2 dead letters would be redriven", "dead", "redrive", "--dry-run")
	b.expect(exitUsage, "--yes to drop 2 dead letters (all queues)", "dead", "drop", "--all")
	b.tty, b.types = true, "yes\n"
	b.expect(exitFailed, `This removes 2 dead letters (queue q) for good. Type "drop 2"`, "dead", "drop", "--queue", "q")
	if n := b.dead(); n != 2 {
		t.Errorf("%d dead letters are left", n)
	}
	b.types = "drop 2\n"
	b.expect(exitOK, "2 of 2 dropped", "dead", "drop", "--all", "--wait")
	if n := b.dead(); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

// What was exported and dropped comes back; what was delivered since does not, and is not said
// to be there.
func TestExportDropImport(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b", "c")
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	b.expect(exitOK, "3 dead letters", "dead", "export", "--queue", "q", "-o", file)
	b.expect(exitOK, "2 of 2 dropped", "dead", "drop", "q/a", "q/b", "--yes", "--wait")
	b.expect(exitOK, "2 imported, 1 there already, 0 failed", "dead", "import", file)
	b.expect(exitOK, "q/b", "dead", "list", "--queue", "q")
	b.expect(exitOK, "redriven", "dead", "redrive", "q/c", "--yes", "--wait")
	ds, err := b.store.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Lane: redrive.LaneRedrive, Max: 1, Lease: time.Minute, Instance: "i"})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if err := driver.FirstError(b.store.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
		t.Fatal(err)
	}
	b.expect(exitOK, "0 imported, 2 there already, 0 failed\n1 left out: redriven and delivered since", "dead", "import", file)
	b.expect(exitOK, "balances", "verify", "--scan")
}

// A name that is misspelt is a failure, not an empty list.
func TestMisspeltQueues(t *testing.T) {
	b := newBench(t)
	b.kill("hooks", redrive.ReasonExhausted, "a")
	b.expect(exitOK, "1 dead letter", "dead", "export", "-o", filepath.Join(t.TempDir(), "dead.ndjson"))
	for _, words := range []string{
		"dead list -q", "dead causes -q", "dead export -q", "dead redrive --yes -q", "dead drop --yes -q", "dead archive --yes -q", "dead redrive --dry-run -q",
		"messages list -q", "messages cancel --yes -q", "queues", "queues list", "queues monitor", "queues pause", "queues resume", "queues purge --yes", "verify -q",
	} {
		says := "did you mean hooks?"
		if strings.HasPrefix(words, "queues pause") || strings.HasPrefix(words, "queues resume") {
			says = "there is no consumer without it" // but with a daemon: see test/e2e
		}
		b.expect(exitFailed, says, append(strings.Fields(words), "hoks")...)
	}
}

func TestEditAndExport(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonPermanent, "a")
	b.expect(exitUsage, "say what to change", "dead", "edit", "q/a")
	b.expect(exitOK, "is edited", "dead", "edit", "q/a", "--body", `{"fixed": true}`, "--kind", "k2", "--header", "x=1")
	b.expect(exitOK, "before it was edited", "dead", "show", "a", "--queue", "q")
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	b.expect(exitOK, "1 dead letter", "dead", "export", "-o", file)
	b.expect(exitFailed, "exists", "dead", "export", "-o", file)
	line, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m wire.Message
	if err := json.Unmarshal(line, &m); err != nil || m.Body == nil || *m.Body != `{"fixed": true}` || m.Kind != "k2" || m.History.First == nil || m.Original == nil {
		t.Errorf("exported %s, %v", line, err)
	}
}

func TestRepairAndRestore(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonPermanent, "a", "b", "c", "plain")
	for _, id := range []string{"a", "b", "c"} {
		b.expect(exitOK, "+ {", "dead", "edit", "q/"+id, "--body", `{"id":"`+id+`", "n": 1.50}`)
	}
	b.expect(exitFailed, "--not-json", "dead", "edit", "q/a", "--body", "{")
	b.expect(exitOK, `-   "id": "a"`, "dead", "edit", "q/a", "--body", `{"id":"z", "n": 1.50}`, "--dry-run")
	b.expect(exitUsage, "say what to change", "dead", "repair", "--queue", "q")
	for _, wrong := range []string{"$.x", "x=1"} {
		b.expect(exitUsage, "--set", "dead", "repair", "--set", wrong)
	}
	rule := []string{"--set", "$.x=y", "--replace", "$.x=/y/z$0/", "--rename", "$.x=v", "--set-header", "a=b"}
	dry := b.expect(exitOK, `set $.x to the text "y"`, append([]string{"dead", "repair", "q/a", "--dry-run"}, rule...)...)
	if !strings.Contains(dry, `+   "v": "zy"`) || !strings.Contains(dry, "+ a: b") || !strings.Contains(dry, "of 1 looked at, 1 would change") {
		t.Errorf("%s", dry)
	}
	b.expect(exitFailed, "1: not-json", append([]string{"dead", "repair", "--queue", "q", "--yes", "--wait"}, rule...)...)
	id := b.expect(exitOK, "not-json", "plans", "--json")
	var list wire.List[wire.Plan]
	if err := json.Unmarshal([]byte(id), &list); err != nil || len(list.Items) != 1 || list.Items[0].Done != 3 {
		t.Fatalf("%s, %v", id, err)
	}
	b.expect(exitOK, `{"id":"b", "n": 1.50, "v": "zy"}`, "dead", "show", "q/b", "--body")
	b.expect(exitOK, "repaired", "plans", "results", list.Items[0].ID)
	b.expect(exitOK, "3 dead letters would be restored", "dead", "restore", list.Items[0].ID, "--dry-run")
	b.expect(exitOK, "3 of 3 restored", "dead", "restore", list.Items[0].ID, "--yes", "--wait")
	b.expect(exitOK, "body", "dead", "show", "q/b", "--body")
}

func TestThereIsNoDaemon(t *testing.T) {
	b := newBench(t)
	b.url = "http://127.0.0.1:1"
	b.expect(exitFailed, "hint: start one with: redrive serve", "queues")
	b.url = "not an address"
	b.expect(exitUsage, "write it as http://", "queues")
}

func TestErrorsAsJSON(t *testing.T) {
	b := newBench(t)
	_, _, stderr := b.run("show", "q/none", "--json")
	var p wire.Problem
	if err := json.Unmarshal([]byte(stderr), &p); err != nil || p.Status != 404 {
		t.Errorf("the error is %s", stderr)
	}
}

func TestCompletion(t *testing.T) {
	b := newBench(t)
	for shell := range completionScripts {
		b.expect(exitOK, "redrive __complete -- ", "completion", shell)
	}
	var o, e bytes.Buffer
	term := &terminal{out: &o, err: &e}
	for line, want := range map[string]string{
		"dead re": "redrive\t", "que": "queues\t", "dead redrive --dry": "--dry-run\t", "queues --ser": "--server\t", "completion z": "zsh\t",
	} {
		o.Reset()
		words := strings.Split(line, " ")
		if code := run(t.Context(), append([]string{"__complete", "--"}, words...), term); code != exitOK || !strings.Contains(o.String(), want) {
			t.Errorf("%q is completed with %d %q %q", line, code, o.String(), e.String())
		}
	}
}
