//go:build unix

// Package mariadbtest starts a private MariaDB or MySQL server for tests: with its own
// data folder, on a free port of the loopback address, from the binaries that are
// installed. It is stopped when the test ends. MariaDB is looked for unless
// REDRIVE_MYSQLD names a mysqld of MySQL 8 or later.
package mariadbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers itself

	"github.com/redrive/redrive/internal/servertest"
)

// Server is a running server.
type Server struct {
	bin, install, dir string // install is empty for MySQL
	port              servertest.Port
	settings          map[string]string
	*servertest.Process
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
	present(t)
	s, err := Run(settings)
	if err != nil {
		t.Fatalf("start MariaDB: %v", err)
	}
	t.Cleanup(s.Remove)
	return s
}

// Run starts a server outside of a test. The caller calls Remove. The error says how to
// get the binaries if they are missing.
func Run(settings map[string]string) (*Server, error) {
	dir, err := os.MkdirTemp("", "mariadbtest-")
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

func present(t testing.TB) {
	t.Helper()
	if _, _, ok := binaries(); !ok {
		servertest.Missing(t, hint)
	}
}

// binaries finds the server and, for MariaDB, the program that makes its folder.
func binaries() (bin, install string, ok bool) {
	if bin = os.Getenv("REDRIVE_MYSQLD"); bin != "" {
		return bin, "", true
	}
	bin, install = find("mariadbd"), find("mariadb-install-db")
	return bin, install, bin != "" && install != ""
}

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
// must be set.
func user() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// create makes a server in a folder, and starts it.
func create(dir string, settings map[string]string) (*Server, error) {
	bin, install, ok := binaries()
	if !ok {
		return nil, errors.New(hint)
	}
	port, err := servertest.FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, install: install, dir: dir, settings: settings, port: port}
	s.Process = servertest.New(servertest.Command{Name: "server", Dir: dir, Path: bin, Args: s.args(), Patience: startTimeout})
	if err := s.create(); err != nil {
		return nil, err
	}
	return s, s.createDatabase()
}

// Database is the name of a database that each server has. It takes A for a, unless
// columns are bytes.
const Database = "redrive_test"

func (s *Server) createDatabase() error {
	db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), "CREATE DATABASE "+Database+" CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	return errors.Join(err, db.Close())
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
	init.Env = append(os.Environ(), "TMPDIR="+s.dir)          // as for the server; see args
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return s.Resume()
}

// mysql reports that the server is MySQL's.
func (s *Server) mysql() bool { return s.install == "" }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// args are the options that the server is started with.
func (s *Server) args() []string {
	args := append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--bind-address=127.0.0.1", "--port=" + s.port.String(),
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + s.dir, // in a shared one a server that starts clears what another works with
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
func (s *Server) Resume() error { return s.Start(s.greets) }

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

// URL returns where a database of the server is reached. It may not be there yet.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("mysql://root@%s/%s", s.Addr(), database)
}

// Script carries out a script in a database by the server's own client, as an administrator does.
func (s *Server) Script(t testing.TB, database, script string) {
	t.Helper()
	client := find("mariadb")
	if s.mysql() {
		client = find("mysql")
	}
	host, port, _ := net.SplitHostPort(s.Addr())
	cmd := exec.CommandContext(context.Background(), client, "--no-defaults", "--host="+host, "--port="+port, "--user=root", database) //nolint:gosec // a program of the server
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", client, err, out)
	}
}

// Addr returns the server's address, for a proxy before it.
func (s *Server) Addr() string { return s.port.Addr() }

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}
