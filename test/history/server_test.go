package history

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/redistest"
)

// process is how a server is killed and started again.
type process interface {
	Kill()
	Resume() error
	PID() int
}

// server is a private server of a store or of a source.
type server struct {
	process
	url, addr string
}

// through returns the server's address by way of a proxy.
func (s *server) through(addr string) string { return strings.Replace(s.url, s.addr, addr, 1) }

// signal sends a signal to the server and the processes that it started.
func (s *server) signal(sig syscall.Signal) {
	pid := s.PID()
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
		text, err := os.ReadFile(path)
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
		return &server{s, s.URL(), s.Addr()}
	},
	"mariadb": func(t testing.TB) *server {
		s := mariadbtest.Start(t, nil)
		return &server{s, s.URL(mariadbtest.Database), s.Addr()}
	},
	"redis": func(t testing.TB) *server {
		s := redistest.Start(t, redistest.Options{AppendOnly: true})
		return &server{s, s.URL(), s.Addr}
	},
}

// sources start servers of sources, and tell the address of a queue there.
var sources = map[string]func(t testing.TB) *server{
	"redislist": func(t testing.TB) *server {
		s := servers["redis"](t)
		s.url = "redislist://" + s.addr + "/0"
		return s
	},
	"rabbitmq": func(t testing.TB) *server {
		n := rabbittest.Start(t, rabbittest.Options{})
		return &server{n, "rabbitmq://guest:guest@" + n.Addr() + "/?queue=hooks&declare=true", n.Addr()}
	},
	"nats": func(t testing.TB) *server {
		p := natstest.StartProcess(t, natstest.Options{})
		natstest.Stream(t, natstest.Client(t, p.Addr()), jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks"}})
		return &server{p, "nats://" + p.Addr() + "/HOOKS?consumer=net&ack_wait=3s", p.Addr()}
	},
}
