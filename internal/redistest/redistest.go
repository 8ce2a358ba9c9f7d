// Package redistest starts private Redis servers for tests: each in a folder of its
// own and on a free port of the loopback. It never touches a server it did not start.
package redistest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/servertest"
)

// Options configures a server. The zero value is a server that keeps nothing on disk.
type Options struct {
	AppendOnly bool
	Fsync      string   // always, everysec or no; "" is always
	Config     []string // more directives, each "name value"
	TLS        bool     // listen with TLS only; see [Server.CAFile]
}

// Server is a running redis-server.
type Server struct {
	Addr string // host:port
	Dir  string // its folder, kept over a restart

	o Options
	*servertest.Process

	sentinel bool
}

// patience bounds how long a server may take to load its data, or to stop.
const patience = 30 * time.Second

// Start starts a server that stops with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(Binary(t, "redis-server"), t.TempDir(), o)
	if err != nil && o.TLS && os.Getenv(serverProgram) != "" && strings.Contains(err.Error(), "tls-port") {
		t.Skip("the server that " + serverProgram + " names is built without TLS")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// serverProgram names the variable of the environment with the path of another server
// than the one that is installed: the tests run on it.
const serverProgram = "REDRIVE_REDIS_SERVER"

// program is the server.
func program() string { return cmp.Or(os.Getenv(serverProgram), "redis-server") }

// Binary returns the path of a program of Redis. Without it the test is skipped, or
// fails in CI, which runs every test.
func Binary(t testing.TB, name string) string {
	t.Helper()
	if name == "redis-server" {
		name = program()
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		servertest.Missing(t, "no redis-server (Debian: sudo apt-get install redis-server)")
	}
	return bin
}

var shared = servertest.Shared[*Server]{Start: func(dir string) (*Server, error) {
	return New(program(), dir, Options{AppendOnly: true, Fsync: "everysec"})
}}

// Shared returns the server that the tests of a package share. It syncs every second, and
// runs until [servertest.Main] stops it. Tests keep apart by a prefix each; see [Prefix].
func Shared(t testing.TB) *Server {
	t.Helper()
	Binary(t, "redis-server")
	return shared.Get(t)
}

var prefixes atomic.Int64

// Prefix returns a prefix of keys that no other test of this process has.
func Prefix() string { return "t" + strconv.FormatInt(prefixes.Add(1), 10) }

// New starts a server in a folder. Prefer [Start], which stops it.
func New(bin, dir string, o Options) (*Server, error) {
	port, err := servertest.FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: port.Addr(), Dir: dir, o: o}
	args := []string{"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no", "--loglevel", "warning", "--maxmemory-policy", "noeviction"}
	if o.TLS {
		if err := servertest.Certify(dir); err != nil {
			return nil, err
		}
		args = append(args, "--port", "0", "--tls-port", port.String(), "--tls-cert-file", filepath.Join(dir, servertest.CertFile),
			"--tls-key-file", filepath.Join(dir, servertest.KeyFile), "--tls-ca-cert-file", s.CAFile(), "--tls-auth-clients", "no")
	} else {
		args = append(args, "--port", port.String())
	}
	if o.AppendOnly {
		fsync := o.Fsync
		if fsync == "" {
			fsync = "always"
		}
		args = append(args, "--appendonly", "yes", "--appendfsync", fsync)
	}
	for _, c := range o.Config {
		words := strings.Fields(c)
		args = append(append(args, "--"+words[0]), words[1:]...)
	}
	s.run(bin, args)
	return s, s.Resume()
}

func (s *Server) run(bin string, args []string) {
	s.Process = servertest.New(servertest.Command{Name: "redis", Dir: s.Dir, Path: bin, Args: args, Patience: patience})
}

// URL returns the server's URL for the first database.
func (s *Server) URL() string {
	if s.o.TLS {
		return "rediss://" + s.Addr + "/0?tls_ca=" + s.CAFile()
	}
	return "redis://" + s.Addr + "/0"
}

// CAFile is the file of the authority that signed the certificate of a TLS server.
func (s *Server) CAFile() string { return filepath.Join(s.Dir, servertest.AuthorityFile) }

// Client returns a plain client that closes with the test.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Resume starts the server, again after a Kill or Stop, on the same port and folder, and
// waits until it has loaded its data.
func (s *Server) Resume() error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, TLSConfig: s.tlsConfig()})
	defer func() { _ = c.Close() }()
	return s.Start(func() bool {
		info, err := c.Info(context.Background()).Result() // all of it: one section is the most before Redis 7
		return (err == nil && (s.sentinel || strings.Contains(info, "loading:0"))) || redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "NOPERM")
	})
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
