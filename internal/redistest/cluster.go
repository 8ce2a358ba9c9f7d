package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/servertest"
)

// Cluster starts a Redis Cluster of masters without replicas.
func Cluster(t testing.TB, nodes int) []*Server {
	t.Helper()
	cli := Binary(t, "redis-cli")
	servers := make([]*Server, nodes)
	args := []string{"--cluster", "create"}
	for i := range servers {
		servers[i] = Start(t, Options{Config: []string{"cluster-enabled yes", "cluster-node-timeout 2000"}})
		args = append(args, servers[i].Addr)
	}
	out, err := exec.CommandContext(t.Context(), cli, append(args, "--cluster-replicas", "0", "--cluster-yes")...).CombinedOutput() //nolint:gosec // the program of the tests
	if err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	for _, s := range servers {
		c := s.Client(t)
		servertest.Until(t, "the cluster to be ok", func() bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		})
	}
	return servers
}

// ClusterURL returns the URL of a cluster's servers.
func ClusterURL(servers []*Server) string {
	addrs := make([]string, len(servers))
	for i := range servers {
		addrs[i] = servers[i].Addr
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Pair is a master with a replica, watched by one sentinel that fails over by itself.
type Pair struct {
	Master, Replica, Sentinel *Server
}

// StartPair starts a Pair whose servers have the options.
func StartPair(t testing.TB, o Options) *Pair {
	t.Helper()
	p := &Pair{Master: Start(t, o)}
	host, port, err := net.SplitHostPort(p.Master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	ro := o
	ro.Config = append([]string{"replicaof " + host + " " + port, "repl-diskless-sync-delay 0"}, o.Config...)
	p.Replica = Start(t, ro)
	c := p.Replica.Client(t)
	servertest.Until(t, "the replica to be in step", func() bool {
		info, err := c.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	p.Sentinel = startSentinel(t, host, port)
	return p
}

// URL returns the pair's URL through its sentinel.
func (p *Pair) URL() string { return "redis+sentinel://" + p.Sentinel.Addr + "/main/0" }

// AwaitFailover waits until the sentinel names the replica as master and it takes writes.
func (p *Pair) AwaitFailover(t testing.TB) {
	t.Helper()
	c := p.Replica.Client(t)
	servertest.Until(t, "the replica to become master", func() bool {
		info, err := c.Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
	asked := redis.NewSentinelClient(&redis.Options{Addr: p.Sentinel.Addr})
	defer func() { _ = asked.Close() }()
	servertest.Until(t, "the sentinel to name the new master", func() bool {
		named, err := asked.GetMasterAddrByName(context.Background(), "main").Result()
		return err == nil && len(named) == 2 && net.JoinHostPort(named[0], named[1]) == p.Replica.Addr
	})
}

func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	dir := t.TempDir()
	own, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sentinel.conf")
	conf := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", own, dir, host, port)
	writeFile(t, file, conf)
	s := &Server{Addr: own.Addr(), Dir: dir, sentinel: true}
	s.run(Binary(t, "redis-server"), []string{file, "--sentinel"})
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
	defer func() { _ = c.Close() }()
	servertest.Until(t, "the sentinel to know the replica", func() bool {
		known, err := c.Replicas(t.Context(), "main").Result()
		return err == nil && len(known) == 1 && strings.Contains(known[0]["flags"], "slave") && !strings.Contains(known[0]["flags"], "down")
	})
	return s
}
