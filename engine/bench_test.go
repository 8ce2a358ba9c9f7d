package engine_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// BenchmarkEngineMemory is the engine's own share: publish in batches, claim, a
// handler that does nothing, settle, over a store that costs little.
func BenchmarkEngineMemory(b *testing.B) {
	benchmarkEngine(b, memory.New(), false)
}

// BenchmarkEngineSQLite is the same over the embedded store, every publish and every
// settlement synced.
func BenchmarkEngineSQLite(b *testing.B) {
	for _, waiting := range []bool{false, true} {
		name := "flow"
		if waiting {
			name = "drain"
		}
		b.Run(name, func(b *testing.B) {
			store, err := sqlite.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			benchmarkEngine(b, store, waiting)
		})
	}
}

// benchmarkEngine publishes b.N messages in batches and has them handled: meanwhile,
// or afterwards, and then only the latter is measured.
func benchmarkEngine(b *testing.B, store driver.Store, waiting bool) {
	const batch = 100
	var handled atomic.Int64
	done := make(chan struct{})
	e := engine.New(store, engine.Options{})
	e.IsolateProcess()
	h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		if handled.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	if err := e.Handle("bench", h, engine.QueueOptions{Concurrency: 256}); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 256)
	ctx, cancel := context.WithCancel(b.Context())
	publish := func() {
		msgs := make([]redrive.Message, 0, batch)
		for n := 0; n < b.N; n += len(msgs) {
			msgs = msgs[:0]
			for range min(batch, b.N-n) {
				msgs = append(msgs, redrive.Message{Queue: "bench", Kind: "k", Body: body})
			}
			if err := driver.FirstError(store.Publish(ctx, msgs)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if waiting {
		publish()
	}

	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	go func() { ended <- e.Run(ctx) }()
	if !waiting {
		publish()
	}
	<-done
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/msg")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// cpuTime is what this process has used, in user and system mode.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
