package kafka

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/kafkatest"
)

// benchRecords is how many records of 256 bytes one run handles, benchRounds how often what
// is compared takes turns.
const (
	benchRecords = 100_000
	benchRounds  = 3
)

// rounds are runs of two things in turn: what they took, and the processor time.
type rounds struct{ took, spent [2][]time.Duration }

// run measures one run of one of them.
func (r *rounds) run(b *testing.B, of int, run func()) {
	b.Helper()
	before, began := cpu(b), time.Now()
	run()
	r.took[of] = append(r.took[of], time.Since(began))
	r.spent[of] = append(r.spent[of], cpu(b)-before)
}

// rate is the records a second of the fastest run: what else the machine does slows others.
func (r *rounds) rate(of int) float64 { return benchRecords / slices.Min(r.took[of]).Seconds() }

// each is the least processor time a record, in microseconds.
func (r *rounds) each(of int) float64 {
	return float64(slices.Min(r.spent[of]).Nanoseconds()) / 1000 / benchRecords
}

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
func eng(b *testing.B, address string, each func(d *redrive.Delivery)) {
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
	}, engine.QueueOptions{Sources: []driver.Source{s}})
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
			var r rounds
			for b.Loop() {
				for range benchRounds {
					address := filled(b, c)
					r.run(b, 0, func() { bare(b, c, address, func() { burn(work) }) })
					address = filled(b, c)
					r.run(b, 1, func() { eng(b, address, func(*redrive.Delivery) { burn(work) }) })
				}
			}
			b.ReportMetric(r.each(0), "bare-cpu-us/record")
			b.ReportMetric(r.each(1), "cpu-us/record")
			b.ReportMetric(r.rate(0), "bare-records/s")
			b.ReportMetric(r.rate(1), "records/s")
			b.ReportMetric(100*r.rate(1)/r.rate(0), "%-of-bare")
		})
	}
}

// BenchmarkSlowRecord lets one handler of a partition run until all others are done, and
// compares the throughput of the others with that of a round in which it does not.
func BenchmarkSlowRecord(b *testing.B) {
	c := reach(b, kafkatest.Start(b).Addr())
	var r rounds
	for b.Loop() {
		for turn := range 2 * benchRounds {
			i := turn % 2
			address := filled(b, c)
			r.run(b, i, func() {
				var seen atomic.Int64
				others := make(chan struct{})
				eng(b, address, func(*redrive.Delivery) {
					switch n := seen.Add(1); {
					case n == 1 && i == 1:
						<-others
					case n == benchRecords:
						close(others)
					}
				})
			})
		}
	}
	b.ReportMetric(100*r.rate(1)/r.rate(0), "%-of-undisturbed")
	b.ReportMetric(r.each(1)-r.each(0), "more-cpu-us/record")
}
