package natstest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/redrive/redrive/internal/servertest"
)

// Nodes is how many servers a cluster has.
const Nodes = 3

// Cluster is three servers in this process.
type Cluster struct {
	Servers [Nodes]*Server
}

// StartCluster starts a cluster that lives as long as the test.
func StartCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	ports, err := servertest.FreePorts(Nodes)
	if err != nil {
		t.Fatal(err)
	}
	routes := make([]*url.URL, Nodes)
	for i, port := range ports {
		routes[i] = &url.URL{Scheme: "nats", Host: port.Addr()}
	}
	c := &Cluster{}
	for i := range c.Servers {
		so := o.server(folder(t), server.RANDOM_PORT)
		so.ServerName = fmt.Sprintf("n%d", i+1)
		so.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: int(ports[i])}
		so.Routes = routes
		c.Servers[i] = &Server{options: so}
		t.Cleanup(c.Servers[i].Stop)
		if err := c.Servers[i].Resume(); err != nil {
			t.Fatalf("start NATS: %v", err)
		}
	}
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !c.led() {
		if time.Now().After(deadline) {
			t.Fatal("the cluster found no leader")
		}
		<-tick.C
	}
	return c
}

// led reports whether the cluster has a leader that all of its members follow.
func (c *Cluster) led() bool {
	for _, s := range c.Servers {
		if s.now.JetStreamIsLeader() {
			return len(s.now.JetStreamClusterPeers()) == Nodes
		}
	}
	return false
}

// Addr returns where the servers are reached: host:port,host:port,host:port.
func (c *Cluster) Addr() string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

// Named returns the server of a name, such as that of a stream's leader.
func (c *Cluster) Named(name string) *Server {
	for _, s := range c.Servers {
		if s.options.ServerName == name {
			return s
		}
	}
	return nil
}
