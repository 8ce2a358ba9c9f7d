// Package kafkatest starts a private Kafka broker for tests: one node with its own data
// folder, on free ports of the loopback address, from the jars that `make deps` puts
// into bin/kafka. It is stopped when the test ends.
package kafkatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/servertest"
)

// Broker is a running broker.
type Broker struct {
	jars, dir, addr string
	secured         *Secured // nil: there is no such listener
	*servertest.Process
}

// hint says how to get what is missing.
const hint = "the jars of a Kafka broker are not there; with java and mvn installed: make deps (or set REDRIVE_KAFKA_JARS to their folder)"

// patience bounds how long a broker may take to start.
const patience = 90 * time.Second

// settings make a cluster of one node that keeps what it acknowledged in the operating
// system's hands.
const settings = `process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
group.share.delivery.count.limit=10
group.share.min.record.lock.duration.ms=1000
group.share.min.heartbeat.interval.ms=500
group.share.heartbeat.interval.ms=500
group.share.min.session.timeout.ms=1000
group.share.session.timeout.ms=6000
group.share.partition.max.record.locks=10000
group.share.max.partition.max.record.locks=10000
auto.create.topics.enable=false
controller.quorum.voters=1@%[2]s
log.dirs=%[3]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s`

// clusterID is any 16 bytes in base64.
const clusterID = "cmVkcml2ZS10ZXN0LTAwMQ"

// Start starts a broker that lives as long as the test. Without the jars it skips the
// test, or fails it where CI is true.
func Start(t testing.TB) *Broker {
	t.Helper()
	return start(t, nil, nil)
}

// StartBehind starts a broker as Start does, which sends its clients to the address that
// front returns for its own: that of a proxy.
func StartBehind(t testing.TB, front func(addr string) string) *Broker {
	t.Helper()
	return start(t, nil, front)
}

func start(t testing.TB, secured *Secured, front func(addr string) string) *Broker {
	t.Helper()
	jars, ok := folder()
	if _, err := exec.LookPath("java"); !ok || err != nil {
		servertest.Missing(t, hint)
	}
	b := &Broker{jars: jars, dir: t.TempDir(), secured: secured}
	args := b.args("kafka.Kafka", b.config())
	b.Process = servertest.New(servertest.Command{Name: "broker", Dir: b.dir, Path: "java", Args: args, Patience: patience})
	t.Cleanup(b.Kill)
	if err := b.create(front); err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	return b
}

// folder finds the jars: bin/kafka beside the module's go.mod.
func folder() (string, bool) {
	if dir := os.Getenv("REDRIVE_KAFKA_JARS"); dir != "" {
		return dir, true
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		jars := filepath.Join(dir, "bin", "kafka")
		if found, _ := filepath.Glob(filepath.Join(jars, "kafka_*.jar")); len(found) > 0 {
			return jars, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func (b *Broker) create(front func(addr string) string) error {
	ports, err := servertest.FreePorts(4)
	if err != nil {
		return err
	}
	b.addr = ports[0].Addr()
	text := fmt.Sprintf(settings, b.addr, ports[1].Addr(), filepath.Join(b.dir, "data"))
	if front != nil {
		text += "\nadvertised.listeners=PLAINTEXT://" + front(b.addr)
	}
	format := []string{"format", "-t", clusterID, "-c", b.config()}
	if b.secured != nil {
		more, err := b.secured.settings(b.dir, ports[2].Addr(), ports[3].Addr())
		if err != nil {
			return err
		}
		text += more
		format = append(format, "--add-scram", b.secured.scram("SCRAM-SHA-256"), "--add-scram", b.secured.scram("SCRAM-SHA-512"))
	}
	if err := os.WriteFile(b.config(), []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("java", b.args("kafka.tools.StorageTool", format...)...).CombinedOutput(); err != nil { //nolint:gosec,noctx // of the test
		return fmt.Errorf("format: %w: %s", err, out)
	}
	return b.Resume()
}

func (b *Broker) config() string { return filepath.Join(b.dir, "server.properties") }

// args are those of a program of the broker's.
func (b *Broker) args(class string, args ...string) []string {
	return append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(b.jars, "*"), class}, args...)
}

// Resume starts the broker, again after Kill, and waits until it answers.
func (b *Broker) Resume() error { return b.Process.Start(b.answers) }

// answers reports whether the broker serves requests.
func (b *Broker) answers() bool {
	if !servertest.Listens(b.addr) {
		return false
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return client.Ping(ctx) == nil
}

// Addr returns where the broker is reached.
func (b *Broker) Addr() string { return b.addr }
