package kafka

import (
	"context"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return leaktest.Main(m.Run) }, brokertest.Victim(openAny)))
}

// TestOnABroker runs what needs a real broker, on one.
func TestOnABroker(t *testing.T) {
	t.Parallel()
	b, secured := kafkatest.StartSecured(t)
	c := reach(t, b.Addr())
	t.Run("Secured", func(t *testing.T) {
		t.Parallel()
		securely(t, c, secured)
	})
	onCluster(t, c)
}

func TestOnAFake(t *testing.T) {
	t.Parallel()
	onCluster(t, fake(t))
}

// onCluster runs everything on the topics of a cluster, side by side.
func onCluster(t *testing.T, c *cluster) {
	t.Run("Conformance", func(t *testing.T) {
		t.Parallel()
		conformance(t, c)
	})
	t.Run("Engine", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, c.broker())
	})
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// broker is the cluster as the cases of all brokers see it.
func (c *cluster) broker() brokertest.Broker {
	return brokertest.Broker{
		Make: func(t testing.TB) string { return c.topic(t, 4) },
		Open: func(ctx context.Context, address string) (backendtest.SourceSink, error) {
			return Open(ctx, address, Options{Queue: brokertest.Queue})
		},
		Foreign: func(t testing.TB, address string, bodies ...string) {
			s, err := parse(address)
			if err != nil {
				t.Fatal(err)
			}
			records := make([]*kgo.Record, len(bodies))
			for i := range bodies {
				records[i] = &kgo.Record{Topic: s.topic, Value: []byte(bodies[i])}
			}
			if err := c.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		},
	}
}
