//go:build unix

// Package pgtest starts a private PostgreSQL server for tests: with its own data
// folder, on a free port of the loopback address, from the binaries that are
// installed. It is stopped when the test ends.
package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// Server is a running server.
type Server struct {
	bin, dir string
	port     string
	settings map[string]string

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{} // closed when the process is over
}

// hint says how to get what is missing.
const hint = "PostgreSQL is not installed; on Debian: apt-get install postgresql-15 (or set REDRIVE_PG_BIN to the folder of its binaries)"

// Relaxed are settings for tests that do not look at durability: nothing is synced. What
// was committed still survives a kill of the server.
func Relaxed() map[string]string { return map[string]string{"fsync": "off"} }

// Start starts a server that lives as long as the test. Without the binaries it
// skips the test, or fails it where CI is true. Settings are lines of
// postgresql.conf.
func Start(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	s, err := Run(settings)
	if errors.Is(err, errMissing) {
		if os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(s.Remove)
	return s
}

var errMissing = errors.New(hint)

// Run starts a server outside of a test, for TestMain. The caller calls Remove. The
// error says how to get the binaries if they are missing.
func Run(settings map[string]string) (*Server, error) {
	bin, ok := binaries()
	if !ok {
		return nil, errMissing
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, settings: settings}
	if err := s.create(); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// Missing reports whether an error of Run says that the binaries are missing.
func Missing(err error) bool { return errors.Is(err, errMissing) }

// binaries finds the newest installed version.
func binaries() (string, bool) {
	if dir := os.Getenv("REDRIVE_PG_BIN"); dir != "" {
		return dir, true
	}
	best, dir := 0, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	for _, path := range found {
		folder := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil && v > best {
			best, dir = v, folder
		}
	}
	if dir != "" {
		return dir, true
	}
	path, err := exec.LookPath("postgres")
	return filepath.Dir(path), err == nil
}

func (s *Server) create() error {
	if err := s.ours(s.dir); err != nil {
		return err
	}
	init := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	var err error
	if s.port, err = servertest.FreePort(); err != nil {
		return err
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "listen_addresses = '127.0.0.1'\nport = %s\nunix_socket_directories = ''\nlogging_collector = off\n", s.port)
	fmt.Fprintf(&conf, "max_connections = 200\nshared_buffers = 256MB\nlog_min_messages = fatal\n")
	for name, value := range s.settings {
		fmt.Fprintf(&conf, "%s = %s\n", name, value)
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(conf.String())
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return s.Resume()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// patience bounds how long a server may take to start or to end.
const patience = 5 * time.Minute

// Resume starts the server after Stop or Kill. It tries again when the server ends at
// once: its port may be some other program's for the moment.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := time.Now().Add(patience)
	for {
		_ = os.Remove(filepath.Join(s.data(), "postmaster.pid")) // of a server that was killed
		err := s.start(deadline)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		pause(100 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.After(d) }

// start starts the process and waits until it answers.
func (s *Server) start(deadline time.Time) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := s.command("postgres", "-D", s.data())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.process, s.ended = cmd, ended
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			s.process = nil
			return fmt.Errorf("it ended at once: %s", s.log())
		case <-poll.C:
		}
		if s.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", s.port).Run() == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not answer: %s", s.log())
		}
	}
}

func (s *Server) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// URL returns where the server is reached.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", s.port)
}

// Addr returns the server's address, for a proxy before it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// PID is the number of the server's first process, the parent of the others; 0 while it
// does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Process.Pid
}

// Stop ends the server in order, rolling back what is in progress.
func (s *Server) Stop() error { return s.end(syscall.SIGINT) }

// Kill ends the server and all its processes at once, as a crash would.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(how syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	pid := s.process.Process.Pid
	var rest []int
	if how == syscall.SIGKILL {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it shall start no more children
		rest = children(pid)                   // none of them may finish what it was doing
	}
	err := syscall.Kill(pid, how)
	for _, child := range rest {
		_ = syscall.Kill(child, how)
	}
	<-s.ended
	s.process = nil
	deadline := time.Now().Add(patience)
	for _, child := range rest { // as long as one lives, the next server finds the memory in use
		for alive(child) && time.Now().Before(deadline) {
			pause(5 * time.Millisecond)
		}
	}
	return err
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

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	_ = s.Kill()
	_ = os.RemoveAll(s.dir)
}
