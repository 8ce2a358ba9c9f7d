package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/wire"
)

// TestWorkersSurviveKillNine kills the example workers, and then the daemon under them,
// with SIGKILL: every message is handled at least once, none is dead, and the ledger
// balance.
func TestWorkersSurviveKillNine(t *testing.T) {
	for _, c := range []struct{ program, dir, script string }{
		{"python3", "worker-python", `import sys, time; sys.path.insert(0, %q)
import worker
def slow(message, body): time.sleep(0.03); sys.stdout.write("handled " + message["id"] + "\n"); sys.stdout.flush()
worker.Worker("work", slow).run()`},
		{"node", "worker-js", `import { Worker } from %q;
const slow = async (message) => { await new Promise((r) => setTimeout(r, 30)); console.log("handled", message.id); };
await new Worker("work", slow).run();`},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.program); err != nil {
				missing(t, c.program)
			}
			dir, err := filepath.Abs("../../examples/" + c.dir)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", fmt.Sprintf(c.script, dir)}
			if c.program == "node" {
				args = []string{"--input-type=module", "-e", fmt.Sprintf(c.script, filepath.Join(dir, "worker.mjs"))}
			}
			workersSurvive(t, c.program, args)
		})
	}
}

// missing skips a test for want of a program; in CI it fails.
func missing(t *testing.T, program string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing: install the Debian package (nodejs, python3, chromium)", program)
}

var handledLine = regexp.MustCompile(`(?m)^handled (\S+)$`)

func workersSurvive(t *testing.T, program string, args []string) {
	const messages = 150
	d := newDaemon(t, "queues: {work: {policy: {backoff: {type: fixed, interval: 100ms}}}}")
	for i := range messages {
		resp, err := http.Post(d.url+"/v1/queues/work/messages", "text/plain", strings.NewReader(fmt.Sprint("m-", i)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	env := []string{"REDRIVE_SERVER=" + d.url, "REDRIVE_LEASE=1"}
	var logs []*programtest.Log
	work := func() *process {
		p := startProgram(t, program, env, program, args...)
		logs = append(logs, p.log)
		return p
	}
	handled := func() map[string]bool {
		seen := make(map[string]bool)
		for _, l := range logs {
			for _, m := range handledLine.FindAllStringSubmatch(l.String(), -1) {
				seen[m[1]] = true
			}
		}
		return seen
	}
	p := work()
	until(t, "some are handled", 30*time.Second, func() bool { return len(handled()) > 20 })
	p.kill()
	p = work()
	until(t, "the second worker handles some", 30*time.Second, func() bool { return len(handled()) > 50 })
	d.kill()
	d.start()
	last := func() wire.Queue { return get[wire.Queue](t, d.url+"/v1/queues/work") }
	until(t, "all are done", time.Minute, func() bool { return last().Waiting.All == 0 })
	// A worker's line is written before its ack, and read here a moment later.
	until(t, "all were handled", time.Minute, func() bool { return len(handled()) == messages })
	if q := last(); q.Dead != 0 || q.Ledger.Done != messages {
		t.Errorf("not all were done: %+v", q)
	}
	if v := get[wire.Verified](t, d.url+"/v1/verify?scan=true"); !v.Balanced {
		t.Errorf("%+v", v)
	}
	p.kill()
}
