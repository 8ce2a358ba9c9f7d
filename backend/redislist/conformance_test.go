package redislist

import (
	"context"
	"maps"
	"testing"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/internal/redistest"
)

// open opens a source with a prefix of its own on the shared server.
func open(t testing.TB, o Options) *Source {
	t.Helper()
	return connect(t, redistest.Shared(t).URL()+"?prefix="+redistest.Prefix(), o)
}

// connect opens a source that closes with the test.
func connect(t testing.TB, url string, o Options) *Source {
	t.Helper()
	s, err := Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	conformance(t, func() (string, Options) {
		return server.URL() + "?prefix=" + redistest.Prefix(), Options{KeepDead: true}
	}, server)
}

// TestConformanceOnOneList has a list whose name does not tell the queue.
func TestConformanceOnOneList(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	conformance(t, func() (string, Options) {
		prefix := redistest.Prefix()
		return server.URL() + "?prefix=" + prefix, constant("old-" + prefix + "-list")
	}, server)
}

// TestConformanceOnCluster spreads the queues of the cases over the nodes.
func TestConformanceOnCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	url := redistest.ClusterURL(servers)
	conformance(t, func() (string, Options) {
		prefix := redistest.Prefix()
		return url, Options{KeepDead: true, List: func(queue string) string { return "{" + prefix + "-" + queue + "}" }}
	}, servers...)
}

// conformance runs the suite over sources at the addresses that where returns, of servers.
func conformance(t *testing.T, where func() (string, Options), servers ...*redistest.Server) {
	type place struct {
		url, list string
		o         Options
	}
	places := map[backendtest.SourceSink]place{}
	opened := func(t testing.TB, p place) backendtest.SourceSink {
		s := connect(t, p.url, p.o)
		places[s] = p
		return s
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open: func(t testing.TB) backendtest.SourceSink {
			url, o := where()
			s := connect(t, url, o)
			places[s] = place{url, s.o.List("sms"), o}
			if len(servers) == 1 {
				redistest.Foreign(t, servers[0].Client(t), places[s].list+"-foreign")
			}
			return s
		},
		Connect: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink { return opened(t, places[s]) },
		Contents: func(t testing.TB, s backendtest.SourceSink) map[string]string {
			all := map[string]string{}
			for _, server := range servers {
				for _, pattern := range []string{places[s].list + "*", "{" + places[s].list + "*"} {
					maps.Copy(all, redistest.Contents(t, server.Client(t), pattern))
				}
			}
			return all
		},
		Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
			noErr(t, s.Close())
			return opened(t, places[s])
		},
	})
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
