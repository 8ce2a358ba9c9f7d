package rabbittest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive/internal/servertest"
)

// Where Debian keeps the scripts that start a node and talk to one as whoever calls
// them; those in the path change to the system's account.
const (
	server  = "/usr/lib/rabbitmq/bin/rabbitmq-server"
	control = "/usr/lib/rabbitmq/bin/rabbitmqctl"
)

// patience bounds how long a node may take to start or to stop.
const patience = 5 * time.Minute

// Node is a running node.
type Node struct {
	dir  string
	o    Options
	addr string
	tls  string // where it speaks TLS, with Options.TLS
	dist string // port of Erlang's distribution
	name string
	*names
	*servertest.Process
}

// names is the daemon in which the nodes of a cluster look each other up: a private one,
// as the one that Erlang starts by itself is shared by everybody and never ends.
type names struct {
	port   servertest.Port
	daemon *servertest.Process
}

func newNames(dir string) (*names, error) {
	port, err := servertest.FreePort()
	if err != nil {
		return nil, err
	}
	n := &names{port: port, daemon: servertest.New(servertest.Command{
		Name: "epmd", Dir: dir, Path: "epmd", Args: []string{"-port", port.String(), "-address", "127.0.0.1"}, Patience: patience,
	})}
	return n, n.daemon.Start(func() bool { return servertest.Listens(port.Addr()) })
}

// newNode writes what a node needs into a folder of its own.
func newNode(dir string, o Options, in *names) (*Node, error) {
	ports, err := servertest.FreePorts(3)
	if err != nil {
		return nil, err
	}
	n := &Node{dir: dir, o: o, addr: ports[0].Addr(), tls: ports[1].Addr(), dist: ports[2].String(), names: in}
	n.name = "redrive" + n.dist + "@localhost"
	n.Process = servertest.New(servertest.Command{Name: "node", Dir: dir, Path: server, Env: n.environment(), Patience: patience})
	return n, nil
}

// write writes the node's configuration.
func (n *Node) write() error {
	lines := append([]string{
		"listeners.tcp.1 = " + n.addr, "log.console = true", "log.console.level = warning", "log.file = false",
		"vm_memory_high_watermark.absolute = 1GB", "disk_free_limit.absolute = 10MB", "load_definitions = " + n.path("definitions.json"),
		"num_acceptors.tcp = 2", "raft.wal_max_size_bytes = 16777216",
	}, n.o.Config...)
	if n.o.TLS {
		if err := servertest.Certify(n.dir); err != nil {
			return err
		}
		lines = append(lines, "listeners.ssl.1 = "+n.tls, "num_acceptors.ssl = 1", "ssl_options.cacertfile = "+n.Authority(),
			"ssl_options.certfile = "+n.path(servertest.CertFile), "ssl_options.keyfile = "+n.path(servertest.KeyFile), "ssl_options.verify = verify_none")
	}
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

func (n *Node) environment() []string {
	return []string{
		"HOME=" + n.dir, "RABBITMQ_CONF_ENV_FILE=" + n.path("env.conf"), "RABBITMQ_NODENAME=" + n.name,
		"RABBITMQ_CONFIG_FILE=" + n.path("rabbitmq.conf"), "RABBITMQ_MNESIA_BASE=" + n.path("data"), "RABBITMQ_LOG_BASE=" + n.path("logs"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + n.path("plugins"), "RABBITMQ_DIST_PORT=" + n.dist, "RABBITMQ_SCHEMA_DIR=" + n.path("schema"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + n.path("generated"), "RABBITMQ_PID_FILE=" + n.path("pid"), "RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_LOGS=-", "RABBITMQ_FEATURE_FLAGS_FILE=" + n.path("flags"), "ERL_EPMD_PORT=" + n.port.String(), "ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_FLAGS=-start_epmd false",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} -noinput +sbwt none +sbwtdcpu none +sbwtdio none",
	}
}

// Resume starts the node, again after Stop or Kill, and waits until it serves clients.
func (n *Node) Resume() error {
	return n.Start(func() bool {
		c, err := amqp.Dial(n.URL("/"))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// Control runs rabbitmqctl on the node and returns what it says.
func (n *Node) Control(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, control, append([]string{"--quiet", "--node", n.name}, args...)...) //nolint:gosec // of the test
	cmd.Dir, cmd.Env = n.dir, append(os.Environ(), n.environment()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Registered waits until quorum queues would survive a crash of the node. Servers before
// 4.0 write their names to disk up to seconds after the declaration was answered. One
// whose name a crash took begins anew: without what was confirmed, and without a leader
// for as long as nobody asks for an election.
func (n *Node) Registered(queues ...string) error {
	file := filepath.Join(n.dir, "data", n.name, "quorum", n.name, "names.dets")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		text, err := os.ReadFile(file) //nolint:gosec // of the test
		missing := ""
		for _, queue := range queues {
			if !strings.Contains(string(text), "%2F_"+queue) {
				missing = queue
			}
		}
		if err == nil && missing == "" {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("quorum queue %q is not registered on disk", missing), err)
		}
	}
}

// Name returns what the node is called in its cluster.
func (n *Node) Name() string { return n.name }

// Addr returns the host and port of AMQP.
func (n *Node) Addr() string { return n.addr }

// AddrTLS returns the host and port of AMQP over TLS, with [Options.TLS].
func (n *Node) AddrTLS() string { return n.tls }

// Authority returns the file with the certificate of who signed the node's.
func (n *Node) Authority() string { return n.path(servertest.AuthorityFile) }

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

// end stops the node and the daemon that knows its name.
func (n *Node) end() {
	n.Kill()
	n.daemon.Kill()
}

func (n *Node) String() string { return fmt.Sprintf("RabbitMQ %s at %s", n.name, n.addr) }
