//go:build unix

// Package pgtest starts a private PostgreSQL server for tests: with its own data
// folder, on a free port of the loopback address, from the binaries that are
// installed. It is stopped when the test ends.
package pgtest

import (
	"context"
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
)

// Server is a running server.
type Server struct {
	bin, dir string
	port     int
	settings map[string]string

	mu      sync.Mutex
	process *exec.Cmd
}

// hint says how to get what is missing.
const hint = "PostgreSQL is not installed; on Debian: apt-get install postgresql-15 (or set REDRIVE_PG_BIN to the folder of its binaries)"

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
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return err
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "listen_addresses = '127.0.0.1'\nport = %d\nunix_socket_directories = ''\nlogging_collector = off\n", s.port)
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

// Resume starts the server after Stop or Kill.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = os.Remove(filepath.Join(s.data(), "postmaster.pid")) // of a server that was killed
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
	s.process = cmd
	return s.await()
}

// await waits until the server answers.
func (s *Server) await() error {
	deadline := time.Now().Add(60 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for time.Now().Before(deadline) {
		<-poll.C
		if s.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)).Run() == nil {
			return nil
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("it does not answer after 60 s: %s", log)
}

// URL returns where the server is reached.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// Addr returns the server's address, for a proxy before it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

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
		rest = children(pid) // no backend may finish what it was doing
	}
	err := syscall.Kill(pid, how)
	for _, child := range rest {
		_ = syscall.Kill(child, how)
	}
	_ = s.process.Wait()
	s.process = nil
	return err
}

// children returns the processes that a process has started, where /proc tells.
func children(parent int) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		text, err := os.ReadFile(path) //nolint:gosec // of /proc
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
		fields := strings.Fields(rest)
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
