package redisstream

import (
	"context"
	"testing"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// openAt opens a store of a server, which closes with the test.
func openAt(t testing.TB, url, prefix string) *Store {
	t.Helper()
	s, err := Open(context.Background(), url, WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// open opens a new store on the shared server.
func open(t testing.TB) *Store {
	t.Helper()
	return openAt(t, redistest.Shared(t).URL(), redistest.Prefix())
}

// factory makes stores of a server that is reached by a URL.
func factory(url string) backendtest.Factory {
	again := func(t testing.TB, s driver.Store) driver.Store {
		return openAt(t, url, s.(*Store).conn.Config.Prefix)
	}
	return backendtest.Factory{
		Open:    func(t testing.TB) driver.Store { return openAt(t, url, redistest.Prefix()) },
		Connect: again,
		Reopen: func(t testing.TB, s driver.Store) driver.Store {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return again(t, s)
		},
		Crash: func(t testing.TB, s driver.Store) driver.Store {
			_ = s.Close() // what it held stays as it is: nothing is given back
			return again(t, s)
		},
	}
}

func TestConformance(t *testing.T) {
	server := redistest.Shared(t)
	f := factory(server.URL())
	open := f.Open
	f.Open = func(t testing.TB) driver.Store {
		s := open(t)
		redistest.Foreign(t, server.Client(t), s.(*Store).prefix+"foreign")
		return s
	}
	f.Contents = func(t testing.TB, s driver.Store) map[string]string {
		return redistest.Contents(t, server.Client(t), s.(*Store).prefix+"*")
	}
	f.Fill = func(t testing.TB, _ driver.Store) func() {
		c := server.Client(t)
		set := func(n string) {
			if err := c.ConfigSet(context.Background(), "maxmemory", n).Err(); err != nil {
				t.Error(err)
			}
		}
		set("1mb")
		return func() { set("0") }
	}
	backendtest.Run(t, f)
}
