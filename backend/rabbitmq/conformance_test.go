package rabbitmq

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, brokertest.Victim(open)))
}

// addressOf returns the address of a queue of the test's own, which is made when it is
// opened.
func addressOf(n *rabbittest.Node, params ...string) string {
	return at(n.Addr(), append([]string{"queue=" + rabbittest.Name(), "declare=true", "prefetch=10000"}, params...)...)
}

func at(host string, params ...string) string {
	return "rabbitmq://guest:guest@" + host + "/?" + strings.Join(params, "&")
}

// connect opens a source that closes with the test.
func connect(t testing.TB, address string, o Options) *Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Open(ctx, address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		params []string
		native bool
	}{
		{"Quorum", nil, false},
		{"Classic", []string{"type=classic"}, false},
		{"Native", nil, true},
		{"NativeTx", []string{"dead=tx"}, true},
		{"NativeDLX", []string{"dead=dlx"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := rabbittest.Shared(t)
			addresses, theirs := map[backendtest.SourceSink]string{}, foreign(t, node)
			opened := func(t testing.TB, address string) backendtest.SourceSink {
				s := connect(t, address, Options{Queue: "sms", Native: c.native})
				addresses[s] = address
				return s
			}
			backendtest.RunSource(t, backendtest.SourceFactory{
				Open:    func(t testing.TB) backendtest.SourceSink { return opened(t, addressOf(node, c.params...)) },
				Connect: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink { return opened(t, addresses[s]) },
				Contents: func(t testing.TB, _ backendtest.SourceSink) map[string]string {
					return contents(t, node, theirs)
				},
				Reopen: func(t testing.TB, s backendtest.SourceSink) backendtest.SourceSink {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					return opened(t, addresses[s])
				},
				Queues: []string{"sms"}, Patience: time.Minute,
			})
		})
	}
}
