package history

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/redistest"
)

// process is how a server is killed and started again.
type process interface {
	Kill()
	Resume() error
	PID() int
	Setenv(env ...string)
}

// server is a private server of a store or of a source.
type server struct {
	process
	url, addr string
	front     *proxytest.Proxy // before it already: it tells its clients where it is
}

// link returns a proxy between a daemon and the server, and the server's address by way of it.
func (s *server) link(t testing.TB) (*proxytest.Proxy, string) {
	if s.front != nil {
		return s.front, s.url
	}
	p := proxytest.New(t, s.addr)
	return p, s.through(p.Addr().String())
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
		return &server{process: s, url: s.URL(), addr: s.Addr()}
	},
	"mariadb": func(t testing.TB) *server {
		s := mariadbtest.Start(t, nil)
		return &server{process: s, url: s.URL(mariadbtest.Database), addr: s.Addr()}
	},
	"redis": func(t testing.TB) *server {
		s := redistest.Start(t, redistest.Options{AppendOnly: true})
		return &server{process: s, url: s.URL(), addr: s.Addr}
	},
}

// source is a server whose queues the daemon delivers, over PostgreSQL.
type source struct {
	start func(t testing.TB) *server
	// ordered says that it keeps the order by key: the queue keyed is on it, too.
	ordered bool
	// restart is how long its server takes to be there again.
	restart time.Duration
}

// sources are the servers of sources; QUEUE in the address is the queue. All promise that
// a message is delivered at least once, and that nothing is lost that was acknowledged. A
// message that asks for an id or a delay goes to the store; of another, a publish whose
// answer was lost and that is sent again makes a second message, with an id of its own.
var sources = map[string]source{
	"redislist": {start: func(t testing.TB) *server {
		s := servers["redis"](t)
		s.url = "redislist://" + s.addr + "/0"
		return s
	}},
	"rabbitmq": {restart: 5 * time.Second, start: func(t testing.TB) *server {
		n := rabbittest.Start(t, rabbittest.Options{})
		return &server{process: n, url: "rabbitmq://guest:guest@" + n.Addr() + "/?queue=QUEUE&declare=true", addr: n.Addr()}
	}},
	"nats": {start: func(t testing.TB) *server {
		p := natstest.StartProcess(t, natstest.Options{})
		natstest.Stream(t, natstest.Client(t, p.Addr()), jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks"}})
		return &server{process: p, url: "nats://" + p.Addr() + "/HOOKS?consumer=net&ack_wait=3s", addr: p.Addr()}
	}},
	"kafka": {ordered: true, restart: 8 * time.Second, start: func(t testing.TB) *server {
		var front *proxytest.Proxy
		b := kafkatest.StartBehind(t, func(addr string) string {
			front = proxytest.New(t, addr)
			return front.Addr().String()
		})
		client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := kadm.NewClient(client).CreateTopics(t.Context(), 4, 1, nil, hooks, keyed); err != nil {
			t.Fatal(err)
		}
		return &server{process: b, url: "kafka://" + front.Addr().String() + "/QUEUE?group=net", addr: b.Addr(), front: front}
	}},
}
