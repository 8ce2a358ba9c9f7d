//go:build unix

// Package mariadbtest starts a private MariaDB or MySQL server for tests: with its own
// data folder, on a free port of the loopback address, from the binaries that are
// installed. It is stopped when the test ends. MariaDB is looked for unless
// REDRIVE_MYSQLD names a mysqld of MySQL 8 or later.
package mariadbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// Server is a running server.
type Server struct {
	bin, install, dir string // install is empty for MySQL
	port              string
	settings          map[string]string

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// hint says how to get what is missing.
const hint = "MariaDB is not installed; on Debian: apt-get install mariadb-server (or set REDRIVE_MARIADB_BIN to the folder of its binaries)"

// startTimeout is how long a server may take until it answers, also after a crash.
const startTimeout = 5 * time.Minute

// Relaxed are settings for tests that do not look at durability: nothing is
// synced. What was committed still survives a kill of the server.
func Relaxed() map[string]string {
	return map[string]string{"innodb_flush_log_at_trx_commit": "2", "innodb_flush_method": "nosync"}
}

// Start starts a server that lives as long as the test. Without the binaries it
// skips the test, or fails it where CI is true. Settings are options of mariadbd.
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
		t.Fatalf("start MariaDB: %v", err)
	}
	t.Cleanup(s.Remove)
	return s
}

var errMissing = errors.New(hint)

// Run starts a server outside of a test, for TestMain. The caller calls Remove. The
// error says how to get the binaries if they are missing.
func Run(settings map[string]string) (*Server, error) {
	bin, install := os.Getenv("REDRIVE_MYSQLD"), ""
	if bin == "" {
		bin, install = find("mariadbd"), find("mariadb-install-db")
		if bin == "" || install == "" {
			return nil, errMissing
		}
	}
	dir, err := os.MkdirTemp("", "mariadbtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, install: install, dir: dir, settings: settings}
	if err := s.create(); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// Missing reports whether an error of Run says that the binaries are missing.
func Missing(err error) bool { return errors.Is(err, errMissing) }

// find looks for a program where servers are installed, and in the path.
func find(name string) string {
	dirs := []string{"/usr/sbin", "/usr/bin", "/usr/local/bin"}
	if dir := os.Getenv("REDRIVE_MARIADB_BIN"); dir != "" {
		dirs = []string{dir}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() { //nolint:gosec // the tester's own folder
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// user names the account the server runs as: ours, also where that is root, which it
// must be told.
func user() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func (s *Server) create() error {
	program, args := s.install, []string{"--no-defaults", "--datadir=" + s.data(), "--skip-test-db", "--skip-name-resolve",
		"--auth-root-authentication-method=normal"}
	if s.mysql() {
		// Without names of hosts, the account that it makes is out of reach.
		accounts := filepath.Join(s.dir, "accounts.sql")
		if err := os.WriteFile(accounts, []byte("CREATE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"), 0o600); err != nil {
			return err
		}
		program, args = s.bin, []string{"--no-defaults", "--datadir=" + s.data(), "--initialize-insecure", "--init-file=" + accounts}
	}
	init := exec.Command(program, append(args, user()...)...) //nolint:gosec,noctx // a program of the server
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	var err error
	if s.port, err = servertest.FreePort(); err != nil {
		return err
	}
	return s.Resume()
}

// mysql reports that the server is MySQL's.
func (s *Server) mysql() bool { return s.install == "" }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// args are the options that the server is started with.
func (s *Server) args() []string {
	args := append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--bind-address=127.0.0.1", "--port=" + s.port,
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--skip-name-resolve", "--max-connections=300", "--innodb-buffer-pool-size=256M",
		"--skip-log-bin", "--innodb-buffer-pool-dump-at-shutdown=OFF", "--max-allowed-packet=64M",
	}, user()...)
	if s.mysql() {
		args = append(args, "--mysqlx=OFF", "--innodb-redo-log-capacity=128M", "--secure-file-priv=NULL")
	} else {
		args = append(args, "--innodb-log-file-size=64M")
	}
	for name, value := range s.settings {
		args = append(args, "--"+strings.ReplaceAll(name, "_", "-")+"="+value)
	}
	return args
}

// Resume starts the server after Stop or Kill.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.bin, s.args()...) //nolint:gosec,noctx // a program of the server
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.process, s.ended = cmd, ended
	return s.await()
}

// await waits until the server greets.
func (s *Server) await() error {
	deadline := time.Now().Add(startTimeout)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for time.Now().Before(deadline) {
		select {
		case <-poll.C:
			if s.greets() {
				return nil
			}
		case <-s.ended:
			s.process = nil
			return fmt.Errorf("it ended: %s", s.log())
		}
	}
	return fmt.Errorf("it does not answer after %s: %s", startTimeout, s.log())
}

// greets reports whether the server sends its greeting, which begins with the
// protocol's version after four bytes of frame.
func (s *Server) greets() bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Addr())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var head [5]byte
	_, err = conn.Read(head[:])
	return err == nil && head[4] == 10
}

func (s *Server) log() []byte {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return log
}

// URL returns where a database of the server is reached. It may not be there yet.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("mysql://root@%s/%s", s.Addr(), database)
}

// Addr returns the server's address, for a proxy before it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// PID returns the server's process, 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Process.Pid
}

// Stop ends the server in order, rolling back what is in progress.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(how syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	err := s.process.Process.Signal(how)
	<-s.ended
	s.process = nil
	return err
}

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	_ = s.Kill()
	_ = os.RemoveAll(s.dir)
}
