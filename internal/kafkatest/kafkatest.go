// Package kafkatest starts a private Kafka broker for tests: one node with its own data
// folder, on free ports of the loopback address, from the jars that `make deps` puts
// into bin/kafka. It is stopped when the test ends.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/servertest"
)

// Broker is a running broker.
type Broker struct {
	jars, dir, addr string
	secured         *Secured // nil: there is no such listener

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{} // closed when the process is over
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
	return start(t, nil)
}

func start(t testing.TB, secured *Secured) *Broker {
	t.Helper()
	jars, ok := folder()
	if _, err := exec.LookPath("java"); !ok || err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	b := &Broker{jars: jars, dir: t.TempDir(), secured: secured}
	t.Cleanup(func() { _ = b.Kill() })
	if err := b.create(); err != nil {
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

func (b *Broker) create() error {
	addr, err := servertest.FreePorts(4)
	if err != nil {
		return err
	}
	for i := range addr {
		addr[i] = "127.0.0.1:" + addr[i]
	}
	b.addr = addr[0]
	text := fmt.Sprintf(settings, addr[0], addr[1], filepath.Join(b.dir, "data"))
	format := []string{"format", "-t", clusterID, "-c", b.config()}
	if b.secured != nil {
		more, err := b.secured.settings(b.dir, addr[2], addr[3])
		if err != nil {
			return err
		}
		text += more
		format = append(format, "--add-scram", b.secured.scram("SCRAM-SHA-256"), "--add-scram", b.secured.scram("SCRAM-SHA-512"))
	}
	if err := os.WriteFile(b.config(), []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := b.java("kafka.tools.StorageTool", format...).CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w: %s", err, out)
	}
	return b.Resume()
}

func (b *Broker) config() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) java(class string, args ...string) *exec.Cmd {
	args = append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(b.jars, "*"), class}, args...)
	return exec.Command("java", args...) //nolint:gosec,noctx // of the test; it is killed by hand
}

// Resume starts the broker, again after Kill, and waits until it answers.
func (b *Broker) Resume() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := b.java("kafka.Kafka", b.config())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	b.process, b.ended = cmd, ended
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return errors.New("it ended at once: " + b.log())
		case <-ctx.Done():
			return errors.New("it does not answer: " + b.log())
		case <-poll.C:
		}
		if b.answers(ctx) {
			return nil
		}
	}
}

// answers reports whether the broker serves requests.
func (b *Broker) answers(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return client.Ping(ctx) == nil
}

func (b *Broker) log() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// Addr returns where the broker is reached.
func (b *Broker) Addr() string { return b.addr }

// Kill ends the broker at once, as a crash would.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil {
		return nil
	}
	err := b.process.Process.Kill()
	<-b.ended
	b.process = nil
	return err
}
