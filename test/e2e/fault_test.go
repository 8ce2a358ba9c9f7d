package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// waiting is a daemon's configuration with a queue that nobody consumes.
const waiting = "queues:\n  hooks:\n"

func TestWrongToken(t *testing.T) {
	const token = "a-token-of-this-test"
	d := newDaemon(t, fmt.Sprintf("%stokens:\n  - {name: test, hash: \"sha256:%x\", scopes: [publish]}\n", waiting, sha256.Sum256([]byte(token))))
	publish := []string{"publish", "hooks", "x", "--id", "one"}
	env := func(token string) []string { return []string{"REDRIVE_SERVER=" + d.url, "REDRIVE_TOKEN=" + token} }

	command(t, env(""), publish...).fails(t, 1, "token", "hint:")
	wrong := command(t, env("another-token"), publish...).fails(t, 1, "token", "hint:")
	if strings.Contains(wrong.stderr+d.log.String(), "another-token") {
		t.Error("a token was printed")
	}
	command(t, env(token), publish...).ok(t)
	command(t, env(token), "dead", "redrive", "--all", "--yes").fails(t, 1, "scope")
	// Who may open the file may do everything.
	if got := decode[wire.Message](t, command(t, nil, "show", "hooks/one", "--data", d.dir, "--json").ok(t)); got.State != "waiting" {
		t.Errorf("the message is %+v", got)
	}
}

func TestBadConfigurationSaysWhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "redrive.yaml")
	text := "queues:\n  hooks:\n    deliver: {url: https://example.com, timeout: 5 seconds}\n    polcy: {max_attempts: 3}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	says := []string{
		file + ":3:50: queues.hooks.deliver.timeout", `"5 seconds" is not a duration`, "hint: write 5s",
		file + ":4:5: queues.hooks.polcy", "did you mean policy?",
	}
	command(t, nil, "config", "check", file).fails(t, 1, says...)
	command(t, nil, "serve", "--config", file).fails(t, 1, says...)
}

func TestAnOpenAddressNeedsAToken(t *testing.T) {
	r := command(t, nil, "serve", "--listen", "0.0.0.0:0", "--data", t.TempDir(), "--deliver", "hooks=https://example.com")
	r.fails(t, 1, "0.0.0.0:0 can be reached from other machines", "token", "127.0.0.1")
}

func TestASecondDaemonOnTheSameData(t *testing.T) {
	d := newDaemon(t, waiting)
	d.redrive("publish", "hooks", "x").ok(t)
	r := command(t, nil, "serve", "--data", d.dir, "--listen", freePort(t), "--deliver", "hooks=https://example.com")
	r.fails(t, 1, "in use by another process", d.dir)
	command(t, nil, "store", "check", "--data", d.dir).fails(t, 1, "in use by another process")
	d.redrive("publish", "hooks", "y").ok(t)
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
}

// TestTerminateWhileWorkIsInFlight: SIGTERM lets attempts and requests end; what does
// not end in time is released, uncounted.
func TestTerminateWhileWorkIsInFlight(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	attempts := make(map[string]int)
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Webhook-Id")
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone once the body is read
		mu.Lock()
		attempts[id]++
		again := attempts[id] > 1
		mu.Unlock()
		arrived <- struct{}{}
		if id == "stuck" && !again {
			<-r.Context().Done() // until the daemon gives up
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(target.Close)
	t.Cleanup(finish)
	d := newDaemon(t, fmt.Sprintf("grace: 2s\nqueues:\n  hooks:\n    deliver: {url: %q, allow_private: true}\n    policy: {max_attempts: 1}\n", target.URL))
	const n = 10
	for i := range n - 1 {
		d.redrive("publish", "hooks", "x", "--id", fmt.Sprintf("m%d", i)).ok(t)
	}
	d.redrive("publish", "hooks", "x", "--id", "stuck").ok(t)
	until(t, "every message is in flight", 30*time.Second, func() bool { return len(arrived) == n })
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon says that it shuts down", 10*time.Second, func() bool { return strings.Contains(d.log.String(), "shutting down") })
	finish()
	if code := d.wait(30 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, tail(d.log.String(), 20))
	}
	d.start()
	until(t, "the one that was given back is delivered", 30*time.Second, func() bool { return d.queue("hooks").Ledger.Done == n })
	mu.Lock()
	defer mu.Unlock()
	for id, k := range attempts {
		if want := map[bool]int{true: 2, false: 1}[id == "stuck"]; k != want {
			t.Errorf("%s was tried %d times, want %d", id, k, want)
		}
	}
	if q := d.queue("hooks"); q.Dead != 0 {
		t.Errorf("%d died of the shutdown", q.Dead)
	}
}

// TestFullDisk: publishing is refused and nothing is lost; when there is room again
// it goes on by itself.
func TestFullDisk(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a full disk is not tested here: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := newDaemonIn(t, filepath.Join(mount, "data"), waiting)
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	var accepted []string
	var refused result
	for i := 0; ; i++ {
		id := fmt.Sprintf("m%d", i)
		if refused = d.redrive("publish", "hooks", "@"+body, "--id", id, "--json"); refused.code != 0 {
			break
		}
		if accepted = append(accepted, id); i > 200 {
			t.Fatal("20 MB fit on a disk of 4 MB")
		}
	}
	p := wire.Problem{}
	if err := json.Unmarshal([]byte(refused.stderr), &p); err != nil || p.Status != http.StatusInsufficientStorage && p.Status != http.StatusServiceUnavailable || p.Hint == "" {
		t.Errorf("a full disk is answered with %s%s", refused.out, refused.stderr)
	}
	t.Logf("%d accepted, then: %s", len(accepted), p.Error())
	if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	until(t, "publishing works again", 30*time.Second, func() bool {
		return d.redrive("publish", "hooks", "@"+body, "--id", "after").code == 0
	})
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
	for _, id := range append(accepted, "after") {
		if m := decode[wire.Message](t, d.redrive("show", "hooks/"+id, "--json").ok(t)); m.State != "waiting" || m.Size == nil || *m.Size != 100_000 {
			t.Errorf("%s is %+v", id, m)
		}
	}
}
