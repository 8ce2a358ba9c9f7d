// Package servertest runs the servers of others for tests, each as a process of its own
// that can be stopped, killed and started again, and that never outlives the test, even
// if that is killed itself.
package servertest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	// As is the account that it runs as, of those that refuse ours; nil: ours.
	As *syscall.Credential
	// Ask is the signal that asks it to end; 0: SIGTERM.
	Ask syscall.Signal
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
	pid  int // once it answers
	done chan struct{}
}

// New returns a server that does not run yet.
func New(c Command) *Process { return &Process{c: c} }

// guard reads the pipe: at its end, or when the server is over, both are. It is the shell
// that changes to the folder: while a process of ours does before it becomes the shell, we
// stand still, and nobody would answer if the folder were on a disk that we serve.
const guard = `cd "$1" || exit; name=$2; shift 2; "$@" 3<&- & server=$!; echo $server >"$name.pid"; { read -r _; kill -9 $server; } <&3 & guard=$!; exec 3<&-; wait $server; kill $guard 2>/dev/null`

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
	cmd := exec.Command("sh", append([]string{"-c", guard, "sh", p.c.Dir, p.c.Name, p.c.Path}, p.c.Args...)...) //nolint:gosec,noctx // of the test; it is killed by hand
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{r}
	cmd.Env = append(os.Environ(), p.c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.c.As} // an interrupt of the tests goes to us, not to it
	_ = os.Remove(p.file("pid"))                                              // of an earlier run
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
	text, err := os.ReadFile(p.file("pid"))
	if err == nil {
		l.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		p.killLocked()
	}
	return err
}

// Setenv adds to the server's environment, from its next start on.
func (p *Process) Setenv(env ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.Env = append(slices.Clone(p.c.Env), env...)
}

func (p *Process) file(kind string) string { return filepath.Join(p.c.Dir, p.c.Name+"."+kind) }

func (p *Process) await(l *life, answers func() bool) error {
	deadline := time.NewTimer(p.c.Patience)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
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

// Kill ends the server and its children at once, as a crash would.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *Process) killLocked() {
	if p.run == nil {
		return
	}
	var rest []int
	if pid := p.pidLocked(); pid != 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil { // it shall start no more children
		rest = children(pid)
	}
	_ = p.run.hold.Close()
	for _, child := range rest { // none may finish what it was doing
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-p.run.done
	p.run = nil
	deadline := time.Now().Add(p.c.Patience)
	for _, child := range rest { // as long as one lives, the next server finds the memory in use
		for alive(child) && time.Now().Before(deadline) {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// Stop asks the server to end, and kills one that does not.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	defer p.killLocked()
	ask := p.c.Ask
	if ask == 0 {
		ask = syscall.SIGTERM
	}
	if err := p.signalLocked(ask); err != nil {
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
	pid := p.pidLocked()
	if pid == 0 {
		return errors.New("it does not run")
	}
	return syscall.Kill(pid, sig)
}

// PID returns the server's first process, the parent of others; 0 while it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pidLocked()
}

func (p *Process) pidLocked() int {
	if p.run == nil {
		return 0
	}
	select {
	case <-p.run.done:
		return 0 // by itself
	default:
	}
	return p.run.pid
}

// stat returns the fields of a process after its name: its state, its parent, ...
func stat(pid string) []string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat")) //nolint:gosec // of /proc
	if err != nil {
		return nil // it has ended
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
	return strings.Fields(rest)
}

// alive reports whether a process holds anything: one that only waits to be buried does
// not.
func alive(pid int) bool {
	fields := stat(strconv.Itoa(pid))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// children returns the processes that a process has started, where /proc tells.
func children(parent int) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		fields := stat(filepath.Base(filepath.Dir(path)))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
