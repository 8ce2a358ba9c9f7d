package natstest

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// processEnv holds the settings of a test binary that is to be a server.
const processEnv = "REDRIVE_TEST_NATS_SERVER"

// settings are those of a server in a process of its own.
type settings struct {
	Dir        string
	Port       int
	SyncAlways bool
}

// ServeIfAsked runs a server, and does not return, in a process that [StartProcess]
// started; else it does nothing. To be called first in TestMain.
func ServeIfAsked() {
	text := os.Getenv(processEnv)
	if text == "" {
		return
	}
	var set settings
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		panic(err)
	}
	if _, err := run(Options{SyncAlways: set.SyncAlways}.server(set.Dir, set.Port)); err != nil {
		panic(err)
	}
	select {} // until it is killed
}

// Process is a server in a process of its own, which can be killed.
type Process struct {
	set settings

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: it does not run
	ended chan struct{}
	said  bytes.Buffer
}

// StartProcess starts a server in a process of its own that lives as long as the test.
// The package's TestMain must call [ServeIfAsked].
func StartProcess(t testing.TB, o Options) *Process {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{set: settings{Dir: folder(t), Port: ports[0], SyncAlways: o.SyncAlways}}
	t.Cleanup(func() { p.Kill(t) })
	p.Resume(t)
	return p
}

// Addr returns where the server is reached, as host:port.
func (p *Process) Addr() string { return address(p.set.Port) }

// Resume starts the server, again after Kill, and waits until it answers.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(p.set)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test binary; it is killed by hand
	cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	p.said.Reset()
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			t.Fatalf("the server ended at once: %s", p.said.String())
		case <-deadline.C:
			t.Fatal("the server does not answer")
		case <-poll.C:
		}
		if p.answers() {
			return
		}
	}
}

// answers reports whether JetStream serves requests.
func (p *Process) answers() bool {
	c, err := net.DialTimeout("tcp", p.Addr(), time.Second) //nolint:noctx // with a timeout
	if err != nil {
		return false
	}
	_ = c.Close()
	nc, err := nats.Connect(p.Addr())
	if err != nil {
		return false
	}
	defer nc.Close()
	_, err = nc.Request("$JS.API.INFO", nil, time.Second)
	return err == nil
}

// Kill ends the server at once, as a crash would.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-p.ended
	p.cmd = nil
}
