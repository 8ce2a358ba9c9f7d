package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/servertest"
)

// process is a program that runs beside the test.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  *programtest.Log
	done chan struct{}
	err  error // valid when done is closed
}

// start runs a program until the test ends at the latest.
func start(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, name, env, redriveBin, args...)
}

// startProgram runs another program than ours.
func startProgram(t *testing.T, name string, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, log: &programtest.Log{}, done: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = programtest.Environ(env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.log.String() != "" {
			t.Logf("%s wrote:\n%s", name, tail(p.log.String(), 60))
		}
	})
	return p
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
}

// terminate ends the process with SIGTERM and returns its exit code.
func (p *process) terminate(limit time.Duration) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.wait(limit)
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait(limit time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("%s did not end within %s:\n%s", p.name, limit, tail(p.log.String(), 40))
	}
	return exitCode(p.err)
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// freePort returns an address of this machine that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port.Addr()
}

// daemon is a running daemon with its folder.
type daemon struct {
	*process
	t      *testing.T
	dir    string // of the store, if it is embedded
	config string
	url    string
	env    []string
}

// newDaemon writes a configuration and starts a daemon with it. The configuration
// needs neither listen nor store.
func newDaemon(t *testing.T, yaml string, env ...string) *daemon {
	t.Helper()
	return newDaemonIn(t, filepath.Join(t.TempDir(), "data"), yaml, env...)
}

func newDaemonIn(t *testing.T, data, yaml string, env ...string) *daemon {
	t.Helper()
	d := newDaemonOn(t, "sqlite:"+data, yaml, env...)
	d.dir = data
	return d
}

// newDaemonOn starts a daemon on the store at an address.
func newDaemonOn(t *testing.T, store, yaml string, env ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, env: env}
	d.config, d.url = programtest.Configure(t, store, yaml)
	d.start()
	return d
}

// start starts the daemon, again after it ended, and waits until it is ready.
func (d *daemon) start() {
	d.t.Helper()
	d.launch()
	until(d.t, "the daemon is ready", 30*time.Second, d.ready)
}

func (d *daemon) launch() {
	d.t.Helper()
	d.process = start(d.t, "daemon", d.env, "serve", "--config", d.config)
}

func (d *daemon) ready() bool {
	select {
	case <-d.done:
		d.t.Fatalf("the daemon ended: %v\n%s", d.err, tail(d.log.String(), 40))
	default:
	}
	return programtest.Ready(d.url)
}

// result is what a command did.
type result struct {
	code        int
	out, stderr string
}

// redrive runs a command against the daemon.
func (d *daemon) redrive(args ...string) result {
	d.t.Helper()
	return command(d.t, append([]string{"REDRIVE_SERVER=" + d.url}, d.env...), args...)
}

// command runs a command of the program.
func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, redriveBin, args...)
	cmd.Env = programtest.Environ(env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	return result{code: exitCode(err), out: out.String(), stderr: stderr.String()}
}

// ok fails the test if the command failed.
func (r result) ok(t *testing.T) result {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.stderr)
	}
	return r
}

// fails fails the test if the command ended otherwise, or did not say all of this.
func (r result) fails(t *testing.T, code int, says ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.stderr)
	}
	for _, s := range says {
		if !strings.Contains(r.out+r.stderr, s) {
			t.Errorf("it does not say %q:\n%s%s", s, r.out, r.stderr)
		}
	}
	return r
}

// decode reads the JSON that a command wrote.
func decode[T any](t *testing.T, r result) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s%s", err, r.out, r.stderr)
	}
	return v
}

// get reads JSON from a URL.
func get[T any](t *testing.T, url string) (v T) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return v
}
