package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/config"
)

// benchCmd measures a store on this machine.
type benchCmd struct {
	Data     string      `type:"store" placeholder:"STORE" help:"The store to measure, which should be an empty one; otherwise a new folder in the temporary one."`
	Messages int         `default:"20000" placeholder:"N" help:"How many (default 20000)."`
	Size     config.Size `default:"1KiB" placeholder:"SIZE" help:"Of a body (default 1KiB)."`
	Writers  int         `default:"64" placeholder:"N" help:"How many publish at once, one message a call (default 64)."`
}

func (*benchCmd) Help() string {
	return examples("redrive bench", "how fast this disk publishes and delivers", "redrive bench --data postgres://user@host/empty --messages 5000", "a server")
}

const (
	benchQueue = "redrive-bench"
	benchSlots = 64
	maxBench   = 10_000_000
)

// measured is the result, for --json.
type measured struct {
	Store     string  `json:"store"`
	Messages  int     `json:"messages"`
	Published float64 `json:"published_per_second"`
	P50       string  `json:"publish_p50"`
	P99       string  `json:"publish_p99"`
	Delivered float64 `json:"delivered_per_second"`
}

// Run publishes, then delivers to a handler that does nothing.
func (c *benchCmd) Run(ctx context.Context, t *terminal) (err error) {
	if c.Messages < 1 || c.Messages > maxBench || c.Writers < 1 || c.Writers > 4096 || c.Size < 0 || c.Size > redrive.MaxBodySize {
		return usagef("--messages is from 1 to %d, --writers from 1 to 4096, --size up to %s", maxBench, config.Size(redrive.MaxBodySize))
	}
	data := c.Data
	if data == "" {
		dir, err := os.MkdirTemp("", "redrive-bench-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is in the temporary folder
		data = filepath.Join(dir, "data")
	}
	address := storeAddress(data)
	store, err := openStore(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	counts, err := store.Counts(ctx, benchQueue)
	if err != nil {
		return err
	}
	if len(counts) > 0 && counts[0].AllWaiting() > 0 {
		return fmt.Errorf("the queue %s is not empty: purge it first", benchQueue)
	}
	m := measured{Store: address.String(), Messages: c.Messages}
	took, latencies, err := c.publish(ctx, t, store)
	if err != nil {
		return err
	}
	m.Published = float64(c.Messages) / took.Seconds()
	slices.Sort(latencies)
	p50, p99 := latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	m.P50, m.P99 = p50.Round(time.Microsecond).String(), p99.Round(time.Microsecond).String()
	if took, err = c.deliver(ctx, t, store); err != nil {
		return err
	}
	m.Delivered = float64(c.Messages) / took.Seconds()
	if t.json {
		return t.writeJSON(m)
	}
	fields(t, "", "store", clean(m.Store), "messages", fmt.Sprintf("%s of %s", grouped(int64(c.Messages)), c.Size),
		"published", fmt.Sprintf("%s/s, each durable, by %d at once; half within %s, 99%% within %s", grouped(int64(m.Published)), c.Writers, m.P50, m.P99),
		"delivered", fmt.Sprintf("%s/s to a handler that does nothing, %d at once", grouped(int64(m.Delivered)), benchSlots))
	return nil
}

// publish publishes all messages and returns how long that took, and each.
func (c *benchCmd) publish(ctx context.Context, t *terminal, store driver.Store) (time.Duration, []time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	line := &progress{t: t}
	defer line.clear()
	latencies := make([]time.Duration, c.Messages)
	body := make([]byte, c.Size)
	for i := range body {
		body[i] = "redrive bench "[i%14]
	}
	var next atomic.Int64
	var writers sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range min(c.Writers, c.Messages) {
		writers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= c.Messages {
					return
				}
				at := time.Now()
				if err := driver.FirstError(store.Publish(ctx, []redrive.Message{{Queue: benchQueue, Body: body}})); err != nil {
					cancel(err)
					return
				}
				latencies[i] = time.Since(at)
				mu.Lock()
				line.update("%s published", grouped(int64(i)))
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	return time.Since(began), latencies, context.Cause(ctx)
}

// deliver delivers all messages.
func (c *benchCmd) deliver(ctx context.Context, t *terminal, store driver.Store) (time.Duration, error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var handled atomic.Int64
	h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		if handled.Add(1) == int64(c.Messages) {
			stop()
		}
		return nil
	})
	line := &progress{t: t}
	defer line.clear()
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		ended <- engine.Run(run, store, benchQueue, h, engine.QueueOptions{Concurrency: benchSlots})
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return time.Since(began), errors.Join(err, ctx.Err())
		case <-tick.C:
			line.update("%s delivered", grouped(handled.Load()))
		}
	}
}
