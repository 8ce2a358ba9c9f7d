package redislist

import (
	"context"
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
	urls := map[backendtest.SourceSink]string{}
	opened := func(t testing.TB, url string) backendtest.SourceSink {
		s := connect(t, url, Options{KeepDead: true})
		urls[s] = url
		return s
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open: func(t testing.TB) backendtest.SourceSink {
			return opened(t, redistest.Shared(t).URL()+"?prefix="+redistest.Prefix())
		},
		Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
			noErr(t, s.Close())
			return opened(t, urls[s])
		},
	})
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
