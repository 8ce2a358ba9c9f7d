// Package rabbittest starts private RabbitMQ nodes for tests: each with its own name,
// cookie and folders, on free ports of the loopback address. It never touches a node
// that it did not start.
package rabbittest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive/internal/servertest"
)

// Options configures a node.
type Options struct {
	Vhosts []string // beside "/"
	Config []string // more lines of rabbitmq.conf
	TLS    bool     // it also speaks TLS, with a certificate of [Node.Authority]
}

// Start starts a node that lives as long as the test.
func Start(t testing.TB, o Options) *Node {
	t.Helper()
	present(t)
	n, err := create(t.TempDir(), o)
	if n != nil {
		t.Cleanup(n.end)
	}
	if err != nil {
		t.Fatalf("start RabbitMQ: %v", err)
	}
	return n
}

// StartCluster starts nodes that are one cluster and live as long as the test.
func StartCluster(t testing.TB, count int, o Options) []*Node {
	t.Helper()
	present(t)
	dir := t.TempDir()
	in, err := newNames(dir)
	t.Cleanup(in.daemon.Kill)
	if err != nil {
		t.Fatalf("start epmd: %v", err)
	}
	nodes := make([]*Node, count)
	members := []string{"cluster_formation.peer_discovery_backend = classic_config"}
	for i := range nodes {
		if nodes[i], err = newNode(filepath.Join(dir, fmt.Sprint(i)), o, in); err != nil {
			t.Fatal(err)
		}
		members = append(members, fmt.Sprintf("cluster_formation.classic_config.nodes.%d = %s", i+1, nodes[i].name))
	}
	for _, n := range nodes { // one after the other: each joins those that are there
		n.o.Config = append(members[:len(members):len(members)], o.Config...)
		err := errors.Join(os.Mkdir(n.dir, 0o700), n.write())
		t.Cleanup(n.Kill)
		if err == nil {
			err = n.Resume()
		}
		if err != nil {
			t.Fatalf("start RabbitMQ: %v", err)
		}
	}
	if running, err := nodes[0].Control("eval", "length(rabbit_nodes:all_running())."); strings.TrimSpace(running) != fmt.Sprint(count) {
		t.Fatalf("of %d nodes %s are in the cluster: %v", count, running, err)
	}
	return nodes
}

// present skips the test without RabbitMQ, or fails it in CI, which runs every test.
func present(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(server); err != nil {
		servertest.Missing(t, "no rabbitmq-server (Debian: sudo apt-get install rabbitmq-server)")
	}
}

var shared = servertest.Shared[whole]{Start: func(dir string) (whole, error) {
	n, err := create(dir, Options{Vhosts: []string{"other"}, TLS: true})
	return whole{n}, err
}}

// whole is a node with the daemon that knows its name.
type whole struct{ *Node }

// Kill ends both.
func (w whole) Kill() { w.end() }

// Shared returns the node that the tests of a package share. It runs until
// [servertest.Main] stops it. Tests keep apart by queues of their own; see [Name].
func Shared(t testing.TB) *Node {
	t.Helper()
	present(t)
	return shared.Get(t).Node
}

var counted atomic.Int64

// Name returns a name of a queue that no other test of this process has.
func Name() string { return fmt.Sprintf("q%d", counted.Add(1)) }

// create starts a node. It may return one beside an error, to be ended.
func create(dir string, o Options) (*Node, error) {
	in, err := newNames(dir)
	if err != nil {
		return nil, fmt.Errorf("epmd: %w", err)
	}
	n, err := newNode(dir, o, in)
	if err != nil {
		in.daemon.Kill()
		return nil, err
	}
	if err := n.write(); err != nil {
		return n, err
	}
	return n, n.Resume()
}
