package jetstream

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
)

// The benchmarks are to be compared in pairs: the same work by the bare client, with the
// same acknowledgements, and by a source.
const benchBatch = 100

var benchBody = make([]byte, 256)

func fill(b *testing.B, s *Source, n int) {
	b.Helper()
	for at := 0; at < n; at += benchBatch {
		if err := driver.FirstError(s.Publish(context.Background(), benchMessages(min(benchBatch, n-at)))); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMessages(n int) []redrive.Message {
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: brokertest.Queue, Body: benchBody}
	}
	return msgs
}

func BenchmarkPublishBare(b *testing.B) {
	r := start(b)
	s := connect(b, r.stream(b, workQueue), Options{})
	b.ResetTimer()
	for at := 0; at < b.N; at += benchBatch {
		acks := make([]jetstream.PubAckFuture, 0, benchBatch)
		for range min(benchBatch, b.N-at) {
			m := &nats.Msg{Subject: s.publish, Data: benchBody, Header: nats.Header{jetstream.MsgIDHeader: {redrive.NewID()}}}
			ack, err := r.js.PublishMsgAsync(m)
			if err != nil {
				b.Fatal(err)
			}
			acks = append(acks, ack)
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	s := connect(b, start(b).stream(b, workQueue), Options{})
	b.ResetTimer()
	fill(b, s, b.N)
}

// BenchmarkConsumeBare acknowledges each message and waits for the answer, 64 at a time.
func BenchmarkConsumeBare(b *testing.B) {
	r := start(b)
	s := connect(b, r.stream(b, workQueue), Options{})
	fill(b, s, b.N)
	consumer, err := r.js.Consumer(context.Background(), s.at.stream, "redrive")
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var done atomic.Int64
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	ended := make(chan struct{})
	running, err := consumer.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		all.Go(func() {
			if err := m.DoubleAck(context.Background()); err != nil {
				b.Error(err)
			}
			<-slots
			if done.Add(1) == int64(b.N) {
				close(ended)
			}
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	<-ended
	all.Wait()
	running.Stop()
}

func BenchmarkConsume(b *testing.B) {
	s := connect(b, start(b).stream(b, workQueue), Options{})
	fill(b, s, b.N)
	b.ResetTimer()
	req := claim(benchBatch)
	since := uint64(0)
	for left := b.N; left > 0; {
		ds, err := s.Claim(context.Background(), req)
		if err != nil {
			b.Fatal(err)
		}
		if len(ds) == 0 {
			events, err := s.Wait(context.Background(), []driver.Watch{{Queue: brokertest.Queue, Since: since}})
			if err != nil {
				b.Fatal(err)
			}
			since = events[0].Version
			continue
		}
		if err := driver.FirstError(s.Settle(context.Background(), settled(redrive.OutcomeDone, ds...))); err != nil {
			b.Fatal(err)
		}
		left -= len(ds)
	}
}

// BenchmarkEngine is BenchmarkConsume with an engine above it.
func BenchmarkEngine(b *testing.B) {
	s := connect(b, start(b).stream(b, workQueue), Options{})
	fill(b, s, b.N)
	b.ResetTimer()
	var n atomic.Int64
	ended := make(chan struct{})
	stop := brokertest.Consume(b, memory.New(), 0, func(context.Context, *redrive.Delivery) error {
		if n.Add(1) == int64(b.N) {
			close(ended)
		}
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{s}, Concurrency: 64})
	<-ended
	stop()
}
