package rabbitmq

import (
	"context"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/rabbittest"
)

const (
	benchBody  = 256
	benchBatch = 100
)

// BenchmarkPublish publishes batches of 100 messages and waits for their confirms.
func BenchmarkPublish(b *testing.B) {
	node := rabbittest.Shared(b)
	body := make([]byte, benchBody)
	b.Run("Source", func(b *testing.B) {
		queue := made(b, node)
		s := connect(b, at(node.Addr(), "queue="+queue, "prefetch=1"), Options{})
		send := func() {
			msgs := make([]redrive.Message, benchBatch)
			for i := range msgs {
				msgs[i] = redrive.Message{Queue: s.o.Queue, Body: body}
			}
			if err := driver.FirstError(s.Publish(context.Background(), msgs)); err != nil {
				b.Fatal(err)
			}
		}
		send() // it connects
		measured(b, func() {
			for range b.N {
				send()
			}
		})
	})
	b.Run("Bare", func(b *testing.B) {
		queue := made(b, node)
		connect(b, at(node.Addr(), "queue="+queue, "prefetch=1"), Options{}) // a consumer, as beside the source
		ch := confirming(b, node)
		fill(b, ch, queue, body, 1)
		measured(b, func() { fill(b, ch, queue, body, b.N) })
	})
}

// measured calls run, and reports messages a second and the CPU time of this process, of
// which the bare client's is a part.
func measured(b *testing.B, run func()) {
	b.Helper()
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := spent()
	run()
	b.StopTimer()
	n := float64(b.N * benchBatch)
	b.ReportMetric(n/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64((spent()-before).Nanoseconds())/1000/n, "cpu-us/msg")
}

// made makes a quorum queue.
func made(b *testing.B, node *rabbittest.Node) string {
	b.Helper()
	name := rabbittest.Name()
	if _, err := channel(b, node).QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		b.Fatal(err)
	}
	return name
}

// confirming opens a channel of a plain client with confirms.
func confirming(b *testing.B, node *rabbittest.Node) *amqp.Channel {
	b.Helper()
	ch := channel(b, node)
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	return ch
}

// fill is a bare publisher: batches with mandatory and confirms.
func fill(b *testing.B, ch *amqp.Channel, queue string, body []byte, batches int) {
	b.Helper()
	confirms := make([]*amqp.DeferredConfirmation, benchBatch)
	for range batches {
		for i := range confirms {
			c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: redrive.NewID(), Timestamp: time.Now(), Body: body})
			if err != nil {
				b.Fatal(err)
			}
			confirms[i] = c
		}
		for _, c := range confirms {
			if !c.Wait() {
				b.Fatal("not confirmed")
			}
		}
	}
}

// BenchmarkConsume takes messages and acknowledges them, 100 at a time with one frame and
// the round trip of a settlement. Connecting is part of it, in both.
func BenchmarkConsume(b *testing.B) {
	node := rabbittest.Shared(b)
	body := make([]byte, benchBody)
	b.Run("Source", func(b *testing.B) {
		queue := made(b, node)
		fill(b, confirming(b, node), queue, body, b.N)
		measured(b, func() {
			consume(b, connect(b, at(node.Addr(), "queue="+queue, "prefetch=500"), Options{}), b.N*benchBatch)
		})
	})
	b.Run("Bare", func(b *testing.B) {
		queue := made(b, node)
		fill(b, confirming(b, node), queue, body, b.N)
		measured(b, func() { consumeBare(b, channel(b, node), queue, b.N*benchBatch) })
	})
}

func consume(b *testing.B, s *Source, left int) {
	b.Helper()
	done := make([]driver.Settlement, 0, benchBatch)
	var since uint64
	for left > 0 {
		ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: s.o.Queue, Max: benchBatch - len(done), Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if len(ds) == 0 {
			events, err := s.Wait(context.Background(), []driver.Watch{{Queue: s.o.Queue, Since: since}})
			if err != nil {
				b.Fatal(err)
			}
			since = events[0].Version
			continue
		}
		for i := range ds {
			done = append(done, driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone})
		}
		if len(done) < benchBatch {
			continue
		}
		if err := settle(s, done...); err != nil {
			b.Fatal(err)
		}
		left -= len(done)
		done = done[:0]
	}
}

func consumeBare(b *testing.B, ch *amqp.Channel, queue string, all int) {
	b.Helper()
	if err := ch.Qos(500, 0, false); err != nil {
		b.Fatal(err)
	}
	pushed, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	for n := 1; n <= all; n++ {
		d := <-pushed
		if n%benchBatch > 0 {
			continue
		}
		if err := d.Ack(true); err != nil {
			b.Fatal(err)
		}
		if err := ch.Qos(500, 0, false); err != nil {
			b.Fatal(err)
		}
	}
}
