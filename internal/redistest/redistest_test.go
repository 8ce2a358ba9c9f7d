package redistest

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m.Run)) }

func TestServerKeepsItsDataOverKill(t *testing.T) {
	s := Start(t, Options{AppendOnly: true})
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("it still answers")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if v := s.Client(t).Get(t.Context(), "k").Val(); v != "v" {
		t.Fatalf("kept %q", v)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestTLSServer(t *testing.T) {
	s := Start(t, Options{TLS: true})
	c := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: s.tlsConfig()})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestClusterAndPair(t *testing.T) {
	servers := Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr}})
	defer c.Close()
	for _, k := range []string{"a", "b", "c", "d"} {
		if err := c.Set(t.Context(), k, k, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p := StartPair(t, Options{})
	p.Master.Kill()
	p.AwaitFailover(t)
	if err := p.Replica.Client(t).Set(context.Background(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}
