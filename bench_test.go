package redrive_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
)

// BenchmarkEngineMemory is the engine's own share: publish in batches, claim, a
// handler that does nothing, settle, over a store that costs little.
func BenchmarkEngineMemory(b *testing.B) {
	const batch = 64
	store := memory.New()
	var handled atomic.Int64
	done := make(chan struct{})
	e := redrive.NewEngine(store, redrive.EngineOptions{})
	e.IsolateProcess()
	h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		if handled.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	if err := e.Handle("bench", h, redrive.QueueOptions{}); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 200)
	msgs := make([]redrive.Message, 0, batch)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)

	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	go func() { ended <- e.Run(ctx) }()
	for n := 0; n < b.N; n += len(msgs) {
		msgs = msgs[:0]
		for range min(batch, b.N-n) {
			msgs = append(msgs, redrive.Message{Queue: "bench", Kind: "k", Body: body})
		}
		if err := redrive.FirstError(store.Publish(ctx, msgs)); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/msg")
}

// cpuTime is what this process has used, in user and system mode.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
