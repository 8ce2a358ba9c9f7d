// Package rabbittest starts private RabbitMQ nodes for tests: each with its own name,
// cookie and folders, on free ports of the loopback address. It never touches a node
// that it did not start.
package rabbittest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// server is where Debian keeps the script that starts a node as whoever calls it; the
// one in the path changes to the system's account.
const server = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// patience bounds how long a node may take to start or to stop.
const patience = 2 * time.Minute

// elections has quorum queues elect their leader: one of a single member waits for ever
// after a crash of its node (seen with 3.10.8). Blanks become form feeds, as the script
// that starts the node splits its arguments at blanks.
const elections = `spawn(fun() -> F = fun(G) -> timer:sleep(200), [ra:trigger_election({N,node()}) || {N,follower} <- ` +
	`try ets:tab2list(ra_state) catch _:_ -> [] end], G(G) end, F(F) end).`

// Options configures a node.
type Options struct {
	Vhosts []string // beside "/"
	Config []string // more lines of rabbitmq.conf
}

// Node is a running node.
type Node struct {
	dir  string
	o    Options
	addr string
	dist string // port of Erlang's distribution
	name string

	mu  sync.Mutex
	run *life
}

// life is one run of the node. It hangs on a pipe that nobody writes to: when the test
// dies in whatever way, the pipe closes, and the node's guard kills it.
type life struct {
	cmd  *exec.Cmd
	hold *os.File
	done chan struct{}
}

var names atomic.Int64

// Start starts a node that lives as long as the test.
func Start(t testing.TB, o Options) *Node {
	t.Helper()
	present(t)
	n, err := create(t.TempDir(), o)
	if err != nil {
		t.Fatalf("start RabbitMQ: %v", err)
	}
	t.Cleanup(n.Kill)
	return n
}

// present skips the test without RabbitMQ, or fails it in CI, which runs every test.
func present(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(server); err != nil {
		const hint = "no rabbitmq-server (Debian: sudo apt-get install rabbitmq-server)"
		if os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
}

var shared struct {
	sync.Mutex
	node *Node
	dir  string
}

// Shared returns the node that the tests of a package share. It runs until [Main] stops
// it. Tests keep apart by queues of their own; see [Name].
func Shared(t testing.TB) *Node {
	t.Helper()
	present(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.node == nil {
		dir, err := os.MkdirTemp("", "rabbittest") //nolint:usetesting // it outlives the test that asks first
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
		if shared.node, err = create(dir, Options{Vhosts: []string{"other"}}); err != nil {
			t.Fatalf("start RabbitMQ: %v", err)
		}
	}
	return shared.node
}

// Main runs the tests of a package and stops the shared node after them:
//
//	func TestMain(m *testing.M) { os.Exit(rabbittest.Main(m.Run)) }
func Main(run func() int) int {
	code := run()
	shared.Lock()
	defer shared.Unlock()
	if shared.node != nil {
		shared.node.Kill()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	return code
}

// Name returns a name of a queue that no other test of this process has.
func Name() string { return fmt.Sprintf("q%d", names.Add(1)) }

func create(dir string, o Options) (*Node, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	n := &Node{dir: dir, o: o, addr: net.JoinHostPort("127.0.0.1", ports[0]), dist: ports[1]}
	n.name = "redrive" + ports[1] + "@localhost"
	if err := n.write(); err != nil {
		return nil, err
	}
	return n, n.Restart()
}

// freePorts returns ports that nobody listens on.
func freePorts(count int) ([]string, error) {
	var ports []string
	var open []net.Listener // until all are known
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for range count {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		open = append(open, l)
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// write writes the node's configuration.
func (n *Node) write() error {
	lines := append([]string{
		"listeners.tcp.1 = " + n.addr, "log.console = true", "log.console.level = warning", "log.file = false",
		"vm_memory_high_watermark.absolute = 1GB", "disk_free_limit.absolute = 10MB", "load_definitions = " + n.path("definitions.json"),
		"num_acceptors.tcp = 2", "raft.wal_max_size_bytes = 16777216",
	}, n.o.Config...)
	definitions, err := n.definitions()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"rabbitmq.conf": strings.Join(lines, "\n") + "\n", "env.conf": "", "plugins": "[].\n", "definitions.json": definitions, ".erlang.cookie": "redrive-test",
	} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// definitions are the hosts and the user that the node begins with.
func (n *Node) definitions() (string, error) {
	type object map[string]any
	vhosts, permissions := []object{}, []object{}
	for _, name := range append([]string{"/"}, n.o.Vhosts...) {
		vhosts = append(vhosts, object{"name": name})
		permissions = append(permissions, object{"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"})
	}
	text, err := json.Marshal(object{
		"vhosts": vhosts, "permissions": permissions,
		"users": []object{{"name": "guest", "password": "guest", "tags": "administrator"}},
	})
	return string(text), err
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

// Restart starts the node, again after Stop or Kill, and waits until it answers.
func (n *Node) Restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The guard reads the pipe: at its end, or when the node is over, both are.
	const guard = `"$0" 3<&- & node=$!; echo $node >node; { read -r _; kill -9 $node; } <&3 & guard=$!; exec 3<&-; wait $node; kill $guard 2>/dev/null`
	cmd := exec.Command("sh", "-c", guard, server) //nolint:noctx // of the test; it is killed by hand
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = n.dir, log, log, []*os.File{r}
	cmd.Env = append(os.Environ(), n.environment()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the tests goes to us, not to it
	err = cmd.Start()
	_ = r.Close()
	_ = log.Close()
	if err != nil {
		_ = hold.Close()
		return err
	}
	l := &life{cmd: cmd, hold: hold, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(l.done)
	}()
	n.run = l
	if err := n.await(l); err != nil {
		n.killLocked()
		return err
	}
	return nil
}

func (n *Node) environment() []string {
	return []string{
		"HOME=" + n.dir, "RABBITMQ_CONF_ENV_FILE=" + n.path("env.conf"), "RABBITMQ_NODENAME=" + n.name,
		"RABBITMQ_CONFIG_FILE=" + n.path("rabbitmq.conf"), "RABBITMQ_MNESIA_BASE=" + n.path("data"), "RABBITMQ_LOG_BASE=" + n.path("logs"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + n.path("plugins"), "RABBITMQ_DIST_PORT=" + n.dist, "RABBITMQ_SCHEMA_DIR=" + n.path("schema"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + n.path("generated"), "RABBITMQ_PID_FILE=" + n.path("pid"), "RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_LOGS=-", "RABBITMQ_FEATURE_FLAGS_FILE=" + n.path("flags"),
		// Without the daemon that knows the ports of all nodes of a machine: one port.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} -noinput -start_epmd false -erl_epmd_port " + n.dist +
			" +sbwt none +sbwtdcpu none +sbwtdio none -eval " + strings.ReplaceAll(elections, " ", "\f"),
	}
}

// await waits until the node serves clients.
func (n *Node) await(l *life) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-l.done:
			return errors.New("it ended at once: " + n.log())
		case <-deadline.C:
			return errors.New("it does not answer: " + n.log())
		case <-poll.C:
		}
		if c, err := amqp.Dial(n.URL("/")); err == nil {
			_ = c.Close()
			return nil
		}
	}
}

func (n *Node) log() string {
	text, err := os.ReadFile(n.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-4000):]))
}

// Addr returns the host and port of AMQP.
func (n *Node) Addr() string { return n.addr }

// URL returns the address of a virtual host for a plain client.
func (n *Node) URL(vhost string) string {
	return "amqp://guest:guest@" + n.addr + "/" + strings.ReplaceAll(vhost, "/", "%2F")
}

// Dial connects a plain client that closes with the test.
func (n *Node) Dial(t testing.TB) *amqp.Connection {
	t.Helper()
	c, err := amqp.Dial(n.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the node at once, as a crash would.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.killLocked()
}

func (n *Node) killLocked() {
	if n.run == nil {
		return
	}
	_ = n.run.hold.Close()
	<-n.run.done
	n.run = nil
}

// Stop ends the node in order.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return nil
	}
	if err := n.signalLocked(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.run.done:
	case <-time.After(patience):
		n.killLocked()
		return errors.New("it does not stop: " + n.log())
	}
	_ = n.run.hold.Close()
	n.run = nil
	return nil
}

// Signal sends a signal to the node: SIGSTOP and SIGCONT freeze and thaw it.
func (n *Node) Signal(sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signalLocked(sig)
}

func (n *Node) signalLocked(sig syscall.Signal) error {
	text, err := os.ReadFile(n.path("node"))
	if err != nil || n.run == nil {
		return errors.Join(errors.New("the node does not run"), err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}
