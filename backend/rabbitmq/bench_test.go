package rabbitmq

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
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
		s := connect(b, addressOf(node, "prefetch=1"), Options{})
		msgs := make([]redrive.Message, benchBatch)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			for i := range msgs {
				msgs[i] = redrive.Message{Queue: s.o.Queue, Body: body}
			}
			if err := redrive.FirstError(s.Publish(context.Background(), msgs)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "msgs/s")
	})
	b.Run("Bare", func(b *testing.B) {
		queue := made(b, node)
		b.ReportAllocs()
		b.ResetTimer()
		fill(b, node, queue, body, b.N)
		b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "msgs/s")
	})
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

// fill is a bare publisher: batches with mandatory and confirms.
func fill(b *testing.B, node *rabbittest.Node, queue string, body []byte, batches int) {
	b.Helper()
	ch := channel(b, node)
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
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
// the round trip of a settlement.
func BenchmarkConsume(b *testing.B) {
	node := rabbittest.Shared(b)
	body := make([]byte, benchBody)
	b.Run("Source", func(b *testing.B) {
		queue := made(b, node)
		fill(b, node, queue, body, b.N)
		b.ReportAllocs()
		b.ResetTimer()
		s := connect(b, at(node.Addr(), "queue="+queue, "prefetch=500"), Options{})
		done := make([]redrive.Settlement, 0, benchBatch)
		var since uint64
		for left := b.N * benchBatch; left > 0; {
			ds, err := s.Claim(context.Background(), redrive.ClaimRequest{Queue: queue, Max: benchBatch, Lease: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			if len(ds) == 0 {
				events, err := s.Wait(context.Background(), []redrive.Watch{{Queue: queue, Since: since}})
				if err != nil {
					b.Fatal(err)
				}
				since = events[0].Version
				continue
			}
			done = done[:0]
			for i := range ds {
				done = append(done, redrive.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone})
			}
			if err := settle(s, done...); err != nil {
				b.Fatal(err)
			}
			left -= len(ds)
		}
		b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "msgs/s")
	})
	b.Run("Bare", func(b *testing.B) {
		queue := made(b, node)
		fill(b, node, queue, body, b.N)
		b.ReportAllocs()
		b.ResetTimer()
		ch := channel(b, node)
		if err := ch.Qos(500, 0, false); err != nil {
			b.Fatal(err)
		}
		pushed, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		for n := 1; n <= b.N*benchBatch; n++ {
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
		b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "msgs/s")
	})
}
