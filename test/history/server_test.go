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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/redistest"
)

// server is a private server of a store.
type server struct {
	url, addr string
	kill      func() error
	resume    func() error
	pid       func() int
	stop      func(syscall.Signal) error // instead of pid
}

// through returns the server's address by way of a proxy.
func (s *server) through(addr string) string { return strings.Replace(s.url, s.addr, addr, 1) }

// signal sends a signal to the server and the processes that it started.
func (s *server) signal(sig syscall.Signal) {
	if s.stop != nil {
		_ = s.stop(sig) // it may be gone
		return
	}
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

// sources start servers of sources, and tell the address of a queue there.
var sources = map[string]func(t testing.TB) (*server, string){
	"redislist": func(t testing.TB) (*server, string) {
		s := servers["redis"](t)
		return s, "redislist://" + s.addr + "/0"
	},
	"rabbitmq": func(t testing.TB) (*server, string) {
		n := rabbittest.Start(t, rabbittest.Options{})
		return &server{addr: n.Addr(), kill: func() error { n.Kill(); return nil }, resume: n.Restart, stop: n.Signal},
			"rabbitmq://guest:guest@" + n.Addr() + "/?queue=hooks&declare=true"
	},
	"nats": func(t testing.TB) (*server, string) {
		p := natstest.StartProcess(t, natstest.Options{})
		natstest.Stream(t, natstest.Client(t, p.Addr()), jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks"}})
		return &server{addr: p.Addr(), kill: func() error { p.Kill(); return nil }, resume: func() error { p.Resume(t); return nil }, stop: p.Signal},
			"nats://" + p.Addr() + "/HOOKS?consumer=net&ack_wait=3s"
	},
}

// servers start what daemons share.
var servers = map[string]func(t testing.TB) *server{
	"postgres": func(t testing.TB) *server {
		s := pgtest.Start(t, map[string]string{"shared_buffers": "32MB"})
		return &server{url: s.URL(), addr: s.Addr(), kill: s.Kill, resume: s.Resume, pid: s.PID}
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
		return &server{url: s.URL("redrive"), addr: s.Addr(), kill: s.Kill, resume: s.Resume, pid: s.PID}
	},
	"redis": func(t testing.TB) *server {
		s := redistest.Start(t, redistest.Options{AppendOnly: true})
		return &server{url: s.URL(), addr: s.Addr, kill: func() error { s.Kill(); return nil }, resume: s.Restart, pid: s.PID}
	},
}
