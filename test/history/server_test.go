package history

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql" // registers itself

	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/redistest"
)

// server is a private server of a store.
type server struct {
	url, addr string
	kill      func() error
	resume    func() error
	pid       func() int
}

// through returns the server's address by way of a proxy.
func (s *server) through(addr string) string { return strings.Replace(s.url, s.addr, addr, 1) }

// signal sends a signal to the server and the processes that it started.
func (s *server) signal(sig syscall.Signal) {
	pid := s.pid()
	if pid == 0 {
		return
	}
	_ = syscall.Kill(pid, sig) // it may be gone, as may its children
	for _, child := range children(pid) {
		_ = syscall.Kill(child, sig)
	}
}

func children(parent int) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		text, err := os.ReadFile(path) //nolint:gosec // of /proc
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// servers start what daemons share.
var servers = map[string]func(t testing.TB) *server{
	"postgres": func(t testing.TB) *server {
		s := pgtest.Start(t, map[string]string{"shared_buffers": "32MB"})
		return &server{s.URL(), s.Addr(), s.Kill, s.Resume, s.PID}
	},
	"mariadb": func(t testing.TB) *server {
		s := mariadbtest.Start(t, nil)
		db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "CREATE DATABASE redrive"); err != nil {
			t.Fatal(err)
		}
		return &server{s.URL("redrive"), s.Addr(), s.Kill, s.Resume, s.PID}
	},
	"redis": func(t testing.TB) *server {
		s := redistest.Start(t, redistest.Options{AppendOnly: true})
		return &server{s.URL(), s.Addr, func() error { s.Kill(); return nil }, s.Restart, s.PID}
	},
}
