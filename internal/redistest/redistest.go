// Package redistest starts private Redis servers for tests: each in a folder of its
// own and on a free port of the loopback. It never touches a server it did not start.
package redistest

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

	o    Options
	bin  string
	args []string
	mu   sync.Mutex
	run  *process

	sentinel bool
}

// process is one life of the server. It hangs on the pipe of its standard input: when
// the test dies in whatever way, the pipe closes and the server is killed.
type process struct {
	cmd  *exec.Cmd
	pid  int
	hold *os.File
	done chan struct{}
}

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

// Binary returns the path of a program of Redis. Without it the test is skipped, or
// fails in CI, which runs every test.
func Binary(t testing.TB, name string) string {
	t.Helper()
	if bin := os.Getenv(serverProgram); bin != "" && name == "redis-server" {
		return bin
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		const hint = "no redis-server (Debian: sudo apt-get install redis-server)"
		if os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	return bin
}

var shared struct {
	sync.Mutex
	server *Server
	dir    string
}

// Shared returns the server that the tests of a package share. It syncs every write,
// as the tables of docs/guarantees.md assume, and runs until [Main] stops it. Tests
// keep apart by a prefix each; see [Prefix].
func Shared(t testing.TB) *Server {
	t.Helper()
	bin := Binary(t, "redis-server")
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		dir, err := os.MkdirTemp("", "redistest") //nolint:usetesting // it outlives the test that asks first
		if err != nil {
			t.Fatal(err)
		}
		if shared.server, err = New(bin, dir, Options{AppendOnly: true, Fsync: "everysec"}); err != nil {
			_ = os.RemoveAll(dir)
			t.Fatal(err)
		}
		shared.dir = dir
	}
	return shared.server
}

// Main runs the tests of a package and stops the shared server after them:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.Kill()
		_ = os.RemoveAll(shared.dir)
	}
	return code
}

var prefixes struct {
	sync.Mutex
	last int
}

// Prefix returns a prefix of keys that no other test of this process has.
func Prefix() string {
	prefixes.Lock()
	defer prefixes.Unlock()
	prefixes.last++
	return "t" + strconv.Itoa(prefixes.last)
}

// New starts a server in a folder. Prefer [Start], which stops it.
func New(bin, dir string, o Options) (*Server, error) {
	port, err := servertest.FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), Dir: dir, o: o, bin: bin}
	s.args = []string{"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no", "--loglevel", "warning", "--maxmemory-policy", "noeviction"}
	if o.TLS {
		if err := servertest.Certify(dir); err != nil {
			return nil, err
		}
		s.args = append(s.args, "--port", "0", "--tls-port", port, "--tls-cert-file", filepath.Join(dir, servertest.CertFile),
			"--tls-key-file", filepath.Join(dir, servertest.KeyFile), "--tls-ca-cert-file", s.CAFile(), "--tls-auth-clients", "no")
	} else {
		s.args = append(s.args, "--port", port)
	}
	if o.AppendOnly {
		fsync := o.Fsync
		if fsync == "" {
			fsync = "always"
		}
		s.args = append(s.args, "--appendonly", "yes", "--appendfsync", fsync)
	}
	for _, c := range o.Config {
		words := strings.Fields(c)
		s.args = append(append(s.args, "--"+words[0]), words[1:]...)
	}
	return s, s.Restart()
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

// watch runs the server until its own standard input ends, and says its number at once.
const watch = `"$@" 3>&- & pid=$!; echo $pid >&3; exec 3>&-; cat >/dev/null; kill -9 $pid; wait $pid`

// Restart starts the server again after a Kill or Stop, on the same port and folder.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), "sh", append([]string{"-c", watch, "sh", s.bin}, s.args...)...) //nolint:gosec // the program of the tests
	cmd.Stdin = in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the tests goes to us, not to it
	out, err := os.Create(filepath.Join(s.Dir, "redis.log"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	number, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = number.Close() }()
	cmd.ExtraFiles = []*os.File{say}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = in.Close(), say.Close()
	p := &process{cmd: cmd, hold: hold, done: make(chan struct{})}
	if _, err := fmt.Fscan(number, &p.pid); err != nil {
		return fmt.Errorf("redistest: the number of the server's process: %w", err)
	}
	go func() { defer close(p.done); _ = cmd.Wait() }()
	s.run = p
	if err := s.waitReady(p); err != nil {
		p.end()
		return err
	}
	return nil
}

// waitReady polls until the server answers and has loaded its data.
func (s *Server) waitReady(p *process) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, TLSConfig: s.tlsConfig()})
	defer func() { _ = c.Close() }()
	deadline := time.Now().Add(30 * time.Second)
	for {
		info, err := c.Info(context.Background()).Result() // all of it: one section is the most before Redis 7
		if (err == nil && (s.sentinel || strings.Contains(info, "loading:0"))) || redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "NOPERM") {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
			return fmt.Errorf("redistest: the server does not answer: %w\n%s", err, log)
		}
		select {
		case <-p.done:
			log, _ := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
			return fmt.Errorf("redistest: the server ended\n%s", log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// end kills the server and waits until it is gone.
func (p *process) end() {
	_ = p.hold.Close()
	<-p.done
}

// Kill kills the server as kill -9 does. It is harmless when repeated.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.end()
		s.run = nil
	}
}

// Signal sends a signal to the server: SIGSTOP and SIGCONT freeze and thaw it.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return errors.New("redistest: the server does not run")
	}
	return syscall.Kill(s.run.pid, sig)
}

// PID returns the server's process, 0 while it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.pid
}

// Stop ends the server in order.
func (s *Server) Stop() error {
	err := s.Signal(syscall.SIGTERM)
	s.mu.Lock()
	run := s.run
	s.mu.Unlock()
	deadline := time.Now().Add(10 * time.Second)
	for err == nil && syscall.Kill(run.pid, 0) == nil && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond)
	}
	s.Kill()
	return err
}
