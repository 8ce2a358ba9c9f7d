package kafka

import (
	"bytes"
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/kafkatest"
)

// benchRecords is how many records of 256 bytes one round handles.
const benchRecords = 100_000

// filled returns the address of a topic of four partitions with records of others.
func filled(b *testing.B, c *cluster) string {
	b.Helper()
	address := c.topic(b, 4)
	to, err := parse(address)
	if err != nil {
		b.Fatal(err)
	}
	value := bytes.Repeat([]byte("x"), 256)
	records := make([]*kgo.Record, benchRecords)
	for i := range records {
		records[i] = &kgo.Record{Topic: to.topic, Key: []byte{byte(i), byte(i >> 8)}, Value: value}
	}
	if err := c.client.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	return address
}

// cpu is what the process has spent.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// burn keeps a processor busy.
func burn(d time.Duration) {
	end := time.Now().Add(d)
	for now := time.Now(); d > 0 && now.Before(end); now = time.Now() { //nolint:revive // to burn is what it is for
	}
}

// bare polls, handles one record after the other, and commits what a poll returned.
func bare(b *testing.B, c *cluster, address string, each func()) {
	b.Helper()
	of, err := parse(address)
	if err != nil {
		b.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(of.brokers...), kgo.ConsumerGroup(of.group), kgo.ConsumeTopics(of.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for n := 0; n < benchRecords; {
		fetches := client.PollRecords(b.Context(), pollRecords)
		if err := fetches.Err(); err != nil {
			b.Fatal(err)
		}
		fetches.EachRecord(func(*kgo.Record) { each(); n++ })
		if err := client.CommitUncommittedOffsets(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// engine handles the topic with the engine. The store is in memory: what fails is not
// what is measured.
func engine(b *testing.B, address string, each func(d *redrive.Delivery)) {
	b.Helper()
	s := connect(b, address, Options{Queue: brokertest.Queue})
	var n atomic.Int64
	all := make(chan struct{})
	stop := brokertest.Consume(b, memory.New(), 0, func(_ context.Context, d *redrive.Delivery) error {
		each(d)
		if n.Add(1) == benchRecords {
			close(all)
		}
		return nil
	}, redrive.QueueOptions{Sources: []redrive.Source{s}})
	<-all
	stop()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkConsume compares the engine with a bare loop of the client that commits after
// each poll, with a handler that does nothing and one that burns 50 us: processor time of
// this process a record, and records a second.
func BenchmarkConsume(b *testing.B) {
	c := reach(b, kafkatest.Start(b).Addr())
	for _, work := range []time.Duration{0, 50 * time.Microsecond} {
		b.Run("burn="+work.String(), func(b *testing.B) {
			var spent, took [2]time.Duration
			for b.Loop() {
				for i, run := range []func(address string){
					func(address string) { bare(b, c, address, func() { burn(work) }) },
					func(address string) { engine(b, address, func(*redrive.Delivery) { burn(work) }) },
				} {
					address := filled(b, c)
					before, began := cpu(b), time.Now()
					run(address)
					spent[i] += cpu(b) - before
					took[i] += time.Since(began)
				}
			}
			n := float64(b.N * benchRecords)
			b.ReportMetric(float64(spent[0].Microseconds())/n, "bare-cpu-us/record")
			b.ReportMetric(float64(spent[1].Microseconds())/n, "cpu-us/record")
			b.ReportMetric(n/took[0].Seconds(), "bare-records/s")
			b.ReportMetric(n/took[1].Seconds(), "records/s")
			b.ReportMetric(100*took[0].Seconds()/took[1].Seconds(), "%-of-bare")
		})
	}
}

// BenchmarkSlowRecord lets one handler of a partition run until all others are done, and
// compares the throughput of the others with that of a round in which it does not.
func BenchmarkSlowRecord(b *testing.B) {
	c := reach(b, kafkatest.Start(b).Addr())
	var took [2]time.Duration
	for b.Loop() {
		for i := range took {
			address := filled(b, c)
			var seen atomic.Int64
			others := make(chan struct{})
			began := time.Now()
			engine(b, address, func(*redrive.Delivery) {
				switch n := seen.Add(1); {
				case n == 1 && i == 1:
					<-others
					return
				case n == benchRecords:
					took[i] += time.Since(began)
					close(others)
				}
			})
		}
	}
	b.ReportMetric(100*took[0].Seconds()/took[1].Seconds(), "%-of-undisturbed")
}
