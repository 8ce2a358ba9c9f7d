package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

func TestLeaseIsExtendedAtAThird(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		var at []time.Duration
		from := time.Now()
		r.fail.extend = func(ctx context.Context, rs []redrive.Receipt, lease time.Duration) []error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(from))
			if lease != 30*time.Second || len(rs) != 10 {
				t.Errorf("%d leases extended by %s in one call, want 10 by 30s", len(rs), lease)
			}
			return r.store.Extend(ctx, rs, lease)
		}
		var runs atomic.Int32
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			runs.Add(1)
			<-time.After(123 * time.Second)
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour})})
		r.publish("sms", 10)
		r.start()
		r.ended(3*time.Minute, "sms")
		if runs.Load() != 10 {
			t.Errorf("%d attempts, want 10", runs.Load())
		}
		for i, d := range at {
			if want := time.Duration(i+1) * 10 * time.Second; d < want || d > want+6*time.Second*time.Duration(i+1) {
				t.Errorf("extension %d was at %s", i+1, d)
			}
		}
		if len(at) < 8 || len(at) > 12 {
			t.Errorf("%d extensions in two minutes", len(at))
		}
	})
}

func TestLostLeaseCancelsAndTheResultIsStillOffered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.fail.extend = func(_ context.Context, rs []redrive.Receipt, _ time.Duration) []error {
			return all(len(rs), redrive.ErrLeaseLost)
		}
		causes := make(chan error, 2)
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			if d.ID == "sms-0" {
				return nil // it had just succeeded
			}
			if d.Attempt == 1 && !d.Suspect {
				return ctx.Err()
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour, MaxAttempts: 1})})
		r.publish("sms", 2)
		r.start()
		for range 2 {
			if err := <-causes; !errors.Is(err, redrive.ErrLeaseLost) {
				t.Errorf("the context ended because of %v", err)
			}
		}
		synctest.Wait()
		if n := r.counts("sms").Ledger.Done; n != 1 {
			t.Errorf("%d done, want 1: the result was offered, and nobody else had the message", n)
		}
		if e := r.entry("sms", "sms-1"); e == nil || e.State == redrive.StateDead || e.History.Count != 0 {
			t.Errorf("a lost lease was taken for a failure: %+v", e)
		}
	}, engine.Options{Grace: time.Second})
}

func TestIdleQueuesCostNoGoroutines(t *testing.T) {
	const queues = 10_000
	if testing.Short() {
		t.Skip("measures memory")
	}
	r := newRig(t, engine.Options{})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	for i := range queues { // what the store itself needs for a queue does not count
		name := "queue-" + strconv.Itoa(i)
		r.publishAll(redrive.Message{Queue: name})
		ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: name, Max: 1, Lease: time.Minute, Instance: "before"})
		if err != nil {
			t.Fatal(err)
		}
		r.store.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone}})
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	handled := make(chan string, queues)
	for i := range queues {
		r.handle("queue-"+strconv.Itoa(i), func(_ context.Context, d *redrive.Delivery) error {
			handled <- d.Queue
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx) }()
	for i := range queues { // each has been at work once
		r.publishAll(redrive.Message{Queue: "queue-" + strconv.Itoa(i)})
	}
	for range queues {
		<-handled
	}
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > goroutines+50 && time.Now().Before(deadline) {
		<-time.After(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 50 {
		t.Errorf("%d goroutines for %d idle queues", n, queues)
	}
	used := heap() - before
	t.Logf("%d idle queues: %d goroutines, %.1f MB", queues, runtime.NumGoroutine()-goroutines, float64(used)/1e6)
	if used > 50e6 {
		t.Errorf("%d bytes for %d idle queues", used, queues)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(r)
}
