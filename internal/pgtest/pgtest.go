//go:build unix

// Package pgtest starts a private PostgreSQL server for tests: with its own data
// folder, on a free port of the loopback address, from the binaries that are
// installed. It is stopped when the test ends.
package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// Server is a running server.
type Server struct {
	bin, dir string
	port     servertest.Port
	settings map[string]string
	*servertest.Process
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
	present(t)
	s, err := Run(settings)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(s.Remove)
	return s
}

func present(t testing.TB) {
	t.Helper()
	if _, ok := binaries(); !ok {
		servertest.Missing(t, hint)
	}
}

// Run starts a server outside of a test. The caller calls Remove. The error says how to
// get the binaries if they are missing.
func Run(settings map[string]string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	s, err := create(dir, settings)
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return s, err
}

var shared = servertest.Shared[*Server]{Start: func(dir string) (*Server, error) { return create(dir, Relaxed()) }}

// Shared returns the server that the tests of a package share, with [Relaxed] settings.
// It runs until [servertest.Main] stops it.
func Shared(t testing.TB) *Server {
	t.Helper()
	present(t)
	return shared.Get(t)
}

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

// create makes a server in a folder, and starts it.
func create(dir string, settings map[string]string) (*Server, error) {
	bin, ok := binaries()
	if !ok {
		return nil, errors.New(hint)
	}
	s := &Server{bin: bin, dir: dir, settings: settings}
	s.Process = servertest.New(servertest.Command{
		Name: "server", Dir: dir, Path: filepath.Join(bin, "postgres"), Args: []string{"-D", s.data()}, As: account(), Ask: syscall.SIGINT, Patience: patience})
	return s, s.create()
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

// Resume starts the server after Stop or Kill. It tries again when the server does not
// come up: its port may be some other program's for the moment.
func (s *Server) Resume() error {
	deadline := time.Now().Add(patience)
	for {
		_ = os.Remove(filepath.Join(s.data(), "postmaster.pid")) // of a server that was killed
		err := s.Start(s.answers)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// answers reports whether the server takes connections.
func (s *Server) answers() bool {
	return s.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", s.port.String()).Run() == nil
}

// URL returns where the server is reached.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", s.port)
}

// Addr returns the server's address, for a proxy before it.
func (s *Server) Addr() string { return s.port.Addr() }

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}
