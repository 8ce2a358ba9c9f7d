// Package servertest runs the servers of others for tests, each as a process of its own
// that can be stopped, killed and started again, and that never outlives the test, even
// if that is killed itself.
package servertest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is how a server is started.
type Command struct {
	Name string   // of its log and of the file with its process id in Dir
	Dir  string   // where it runs
	Path string   // of the program
	Args []string // of the program
	Env  []string // beside that of the test
	// Patience bounds how long the server may take to answer, or to stop.
	Patience time.Duration
}

// Process is a server. It is safe for concurrent use.
type Process struct {
	c Command

	mu  sync.Mutex
	run *life // nil: it does not run
}

// life is one run of a server. It hangs on a pipe that nobody writes to: when the test
// dies in whatever way, the pipe closes, and the server's guard kills it.
type life struct {
	hold *os.File
	done chan struct{}
}

// New returns a server that does not run yet.
func New(c Command) *Process { return &Process{c: c} }

// guard reads the pipe: at its end, or when the server is over, both are.
const guard = `name=$1; shift; "$@" 3<&- & server=$!; echo $server >"$name.pid"; { read -r _; kill -9 $server; } <&3 & guard=$!; exec 3<&-; wait $server; kill $guard 2>/dev/null`

// Start starts the server and waits until it answers. One that does not is killed.
func (p *Process) Start(answers func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return errors.New("it runs")
	}
	r, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	log, err := os.OpenFile(p.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, hold.Close())
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("sh", append([]string{"-c", guard, "sh", p.c.Name, p.c.Path}, p.c.Args...)...) //nolint:gosec,noctx // of the test; it is killed by hand
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = p.c.Dir, log, log, []*os.File{r}
	cmd.Env = append(os.Environ(), p.c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the tests goes to us, not to it
	if err := cmd.Start(); err != nil {
		return errors.Join(err, hold.Close())
	}
	l := &life{hold: hold, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(l.done)
	}()
	p.run = l
	if err := p.await(l, answers); err != nil {
		p.killLocked()
		return err
	}
	return nil
}

func (p *Process) file(kind string) string { return filepath.Join(p.c.Dir, p.c.Name+"."+kind) }

func (p *Process) await(l *life, answers func() bool) error {
	deadline := time.NewTimer(p.c.Patience)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-l.done:
			return errors.New("it ended at once: " + p.Log())
		case <-deadline.C:
			return errors.New("it does not answer: " + p.Log())
		case <-poll.C:
		}
		if answers() {
			return nil
		}
	}
}

// Log returns the end of what the server wrote.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.file("log"))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-4000):]))
}

// Kill ends the server at once, as a crash would.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *Process) killLocked() {
	if p.run == nil {
		return
	}
	_ = p.run.hold.Close()
	<-p.run.done
	p.run = nil
}

// Stop asks the server to end, and kills one that does not.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	defer p.killLocked()
	if err := p.signalLocked(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.run.done:
		return nil
	case <-time.After(p.c.Patience):
		return errors.New("it does not stop: " + p.Log())
	}
}

// Signal sends a signal to the server: SIGSTOP and SIGCONT freeze and thaw it.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signalLocked(sig)
}

func (p *Process) signalLocked(sig syscall.Signal) error {
	text, err := os.ReadFile(p.file("pid"))
	if err != nil || p.run == nil {
		return errors.Join(errors.New("it does not run"), err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// Ports that servers of tests take. A connection that goes out never has one of these: the
// system takes those from 32768 on, and a server may need seconds until it listens. Those
// 10,000 above are left to the buses of Redis clusters.
const (
	firstPort = 12_000
	lastPort  = 22_000
)

// FreePorts returns ports of the loopback address that nobody listens on, chosen at random.
func FreePorts(count int) ([]string, error) {
	var ports []string
	var open []net.Listener // until all are known
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for tries := 0; len(ports) < count; tries++ {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", port))
		switch {
		case err == nil:
			open, ports = append(open, l), append(ports, port)
		case tries > 100*count:
			return nil, err
		}
	}
	return ports, nil
}

// FreePort returns one port of [FreePorts].
func FreePort() (string, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", err
	}
	return ports[0], nil
}

// Listens reports whether somebody listens at an address.
func Listens(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second) //nolint:noctx // with a timeout
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
