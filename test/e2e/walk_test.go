package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/delivery/receiver"
	"github.com/redrive/redrive/internal/wire"
)

// webhooks are the real payloads that are published.
const webhooks = "../../testdata/github-webhooks.ndjson"

// newReceiver starts a receiver and returns its URL.
func newReceiver(t *testing.T, args ...string) string {
	t.Helper()
	address := freePort(t)
	start(t, "receiver", nil, append([]string{"receive", "--quiet", "--listen", address}, args...)...)
	url := "http://" + address
	until(t, "the receiver listens", 10*time.Second, func() bool {
		resp, err := http.Get(url + receiver.PathStats)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil
	})
	return url
}

func heal(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url+receiver.PathHeal, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
}

// queue returns what the daemon says of a queue.
func (d *daemon) queue(name string) wire.Queue {
	d.t.Helper()
	return get[wire.Queue](d.t, d.url+"/v1/queues/"+name)
}

// TestWalk is what a newcomer does: publish real payloads to a receiver that fails
// some, look at what died, heal the receiver, redrive, and check the ledger.
func TestWalk(t *testing.T) {
	target := newReceiver(t, "--fail", "20%", "--sticky")
	d := newDaemon(t, fmt.Sprintf(`
environment: test
queues:
  hooks:
    deliver: {url: "%s/hook", timeout: 5s, allow_private: true}
    policy: {max_attempts: 2, backoff: {type: fixed, interval: 20ms}}
`, target))

	sum := decode[struct{ Lines, Accepted, Failed int }](t, d.redrive("publish", "hooks", "--ndjson", webhooks, "--id", "walk", "--json").ok(t))
	if sum.Accepted != 329 || sum.Failed != 0 {
		t.Fatalf("published %+v", sum)
	}
	if again := d.redrive("publish", "hooks", "--ndjson", webhooks, "--id", "walk").ok(t); !strings.Contains(again.out, "329 duplicates") {
		t.Errorf("publishing the file again: %s", again.out)
	}
	byHTTP := publishByHTTP(t, d, 30)
	total := int64(329 + byHTTP)

	until(t, "everything is delivered or dead", time.Minute, func() bool { return d.queue("hooks").Waiting.All == 0 })
	q := d.queue("hooks")
	if q.Dead == 0 || q.Dead+q.Ledger.Done != total {
		t.Fatalf("%d dead and %d done of %d", q.Dead, q.Ledger.Done, total)
	}

	causes := decode[wire.List[wire.Cause]](t, d.redrive("dead", "causes", "--queue", "hooks", "--json").ok(t))
	if len(causes.Items) != 1 || causes.Items[0].Count != q.Dead || causes.Items[0].Signature == "" || causes.Items[0].Reason.String() != "exhausted" {
		t.Errorf("causes: %+v", causes.Items)
	}
	if out := d.redrive("dead", "causes").ok(t).out; !strings.Contains(out, causes.Items[0].Signature) {
		t.Errorf("the table of causes: %s", out)
	}
	checkHistory(t, d, causes.Items[0].Example)

	dry := decode[wire.DryRun](t, d.redrive("dead", "redrive", "--queue", "hooks", "--dry-run", "--json").ok(t))
	if dry.Total != q.Dead || d.queue("hooks").Dead != q.Dead {
		t.Errorf("the dry run counts %d of %d", dry.Total, q.Dead)
	}
	heal(t, target)
	if out := d.redrive("dead", "redrive", "--queue", "hooks", "--rate", "1000/s", "--wait").ok(t).out; !strings.Contains(out, fmt.Sprintf("%d of %d redriven", q.Dead, q.Dead)) {
		t.Errorf("redrive says: %s", out)
	}
	until(t, "everything is delivered", time.Minute, func() bool { return d.queue("hooks").Ledger.Done == total })
	if q := d.queue("hooks"); q.Dead != 0 || q.Waiting.All != 0 {
		t.Errorf("%d dead and %d waiting are left", q.Dead, q.Waiting.All)
	}
	if s := get[receiver.Stats](t, target+receiver.PathStats); s.Delivered != total || s.Changed != 0 || s.Refused != 0 {
		t.Errorf("the receiver: %+v", s)
	}
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
	copied := t.TempDir()
	d.redrive("backup", filepath.Join(copied, "redrive.db")).ok(t)

	if code := d.terminate(30 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	// The same commands work on the file when no daemon runs.
	for _, data := range []string{d.dir, copied} {
		if v := decode[wire.Verified](t, command(t, nil, "verify", "--scan", "--data", data, "--json").ok(t)); !v.Balanced || v.Queues[0].Ledger.Done != total {
			t.Errorf("%s: %+v", data, v)
		}
	}
	command(t, nil, "store", "check", "--data", d.dir).ok(t)
}

// publishByHTTP publishes the first payloads again, one a request, as curl does.
func publishByHTTP(t *testing.T, d *daemon, n int) int {
	t.Helper()
	f, err := os.Open(webhooks)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for i := range n {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Kind string
			Body json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/v1/queues/hooks/messages", bytes.NewReader(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Redrive-Kind", m.Kind)
		req.Header.Set("Redrive-Id", fmt.Sprintf("curl-%d", i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("publish answered %s", resp.Status)
		}
	}
	return n
}

// checkHistory looks for every part of a dead letter's failure history.
func checkHistory(t *testing.T, d *daemon, id string) {
	t.Helper()
	m := decode[map[string]any](t, d.redrive("dead", "show", id, "--json").ok(t))
	for _, path := range []string{
		"queue", "id", "kind", "state", "attempts", "reason", "published_at", "died_at", "headers", "size", "body", "history.count",
		"history.first.at", "history.first.duration", "history.first.attempt", "history.first.types", "history.first.message", "history.first.stack",
		"history.first.host", "history.first.ip", "history.first.pid", "history.first.service", "history.first.version", "history.first.environment",
		"history.first.config.target", "history.first.config.timeout", "history.first.config.policy", "history.first.config.max_attempts",
		"history.first.trace_id", "history.first.details", "history.first.details.[http.status]", "history.first.details.[http.response]",
		"history.first.signature", "history.last.at", "history.last.reason", "history.last.message", "history.last.signature",
	} {
		if v := at(m, path); v == nil || v == "" || v == 0.0 {
			t.Errorf("%s of the dead letter is %v", path, v)
		}
	}
	text := d.redrive("dead", "show", id).ok(t).out
	for _, want := range []string{"dead (exhausted)", "2 failed attempts", "500 Internal Server Error", "failed on purpose", "pid "} {
		if !strings.Contains(text, want) {
			t.Errorf("dead show does not say %q:\n%s", want, text)
		}
	}
	if strings.ContainsRune(text, '\x1b') {
		t.Error("dead show colours what is not a terminal")
	}
}

// at returns what stands under a path of names; a name with dots is in brackets.
func at(v any, path string) any {
	for path != "" {
		var name string
		if rest, ok := strings.CutPrefix(path, "["); ok {
			name, path, _ = strings.Cut(rest, "]")
			path = strings.TrimPrefix(path, ".")
		} else {
			name, path, _ = strings.Cut(path, ".")
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// A daemon in an empty folder says what to do next, and that delivers a message: the commands are run as they are
// printed, but for the port of the target, which others may have.
func TestTheFirstMinute(t *testing.T) {
	address, target := freePort(t), freePort(t)
	p := start(t, "first", nil, "serve", "--listen", address, "--data", filepath.Join(t.TempDir(), "data"))
	var lines []string
	until(t, "it says what to do next", 10*time.Second, func() bool {
		lines = nil
		for line := range strings.Lines(p.log.String()) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "redrive "); ok && strings.HasPrefix(line, "  ") {
				lines = append(lines, "redrive "+command)
			} else if strings.HasPrefix(line, "  curl ") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return len(lines) == 3
	})
	if code := p.terminate(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "127.0.0.1:9000", target)
	}
	start(t, "target", nil, strings.Fields(lines[0])[1:]...)
	start(t, "daemon", nil, strings.Fields(lines[1])[1:]...)
	until(t, "the message is accepted", 10*time.Second, func() bool {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", lines[2]+" -sf").CombinedOutput()
		return err == nil && strings.Contains(string(out), `"id"`)
	})
	until(t, "it is delivered", 10*time.Second, func() bool {
		return get[receiver.Stats](t, "http://"+target+receiver.PathStats).Delivered >= 1
	})
}

// TestWithoutAFile is the first thing that the README says.
func TestWithoutAFile(t *testing.T) {
	target := newReceiver(t)
	address, data := freePort(t), filepath.Join(t.TempDir(), "data")
	start(t, "daemon", nil, "serve", "--listen", address, "--data", data, "--deliver", "hooks="+target+"/hook")
	env := []string{"REDRIVE_SERVER=http://" + address}
	until(t, "a message is accepted", 10*time.Second, func() bool {
		return command(t, env, "publish", "hooks", `{"hello": "world"}`, "--kind", "greeting", "--id", "first").code == 0
	})
	until(t, "it is delivered", 10*time.Second, func() bool {
		return get[receiver.Stats](t, target+receiver.PathStats).Delivered == 1
	})
	// It is remembered beyond its life, also through the socket beside the data.
	until(t, "show says that it is done", 10*time.Second, func() bool {
		return strings.Contains(command(t, nil, "show", "first", "--data", data).out, "done")
	})
	command(t, env, "publish", "hooks", `{"hello": "world"}`, "--kind", "greeting", "--id", "first").fails(t, 0, "accepted before")
	command(t, env, "publish", "hooks", `{"other": "body"}`, "--kind", "greeting", "--id", "first").fails(t, 1, "id")
	command(t, env, "publish", "hoks", "x").fails(t, 1, "hint:", "hooks")
	command(t, env, "publish").fails(t, 2, "--help")
}
