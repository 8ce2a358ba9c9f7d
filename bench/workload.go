package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bodySize     = 256
	batchSize    = 100
	maxWaiting   = 200_000 // most messages laid out before a drain
	maxFailing   = 20_000  // and before fail-once, which is run to its end
	latencyRate  = 1000    // messages a second
	floodCallers = 16
)

var (
	errUnfit = errors.New("the system does not do this")
	errOnce  = errors.New("failed once, on purpose")
)

// Result is one run of a workload on a driver.
type Result struct {
	Driver, Workload string
	Skipped          bool    `json:",omitempty"` // the system does not do this
	Rate             float64 // messages a second: published, or handled where there is a handler
	Published        float64 `json:",omitempty"` // messages a second meanwhile (flood)
	CPU              float64 // us a message
	Bytes            float64 // written a message
	Own              float64 `json:",omitempty"` // us a message of the system's own process, if it has one
	P50, P99         time.Duration
	CommitP99        time.Duration // from the return of Publish, where P99 is from its call
	Unhandled        int           `json:",omitempty"` // of the latency run, after its end
	Probe            Probe
}

// Workload is one thing to measure.
type Workload struct {
	Name, About string
	run         func(ctx context.Context, r *run) error
}

// run is one run: what the workload needs and where it puts what it saw.
type run struct {
	queue    Queue
	duration time.Duration
	result   *Result
	start    usage
	own      usage // of the process pid
	pid      int
}

var workloads = append([]Workload{
	{"publish-1", "one caller, one message a call", publish(1, 1)},
	{"publish-16", "16 callers, one message a call", publish(16, 1)},
	{"publish-128", "128 callers, one message a call", publish(128, 1)},
	{"publish-batch", "one caller, 100 messages a call", publish(1, batchSize)},
	{"drain", "a waiting backlog, a handler that does nothing, every message acknowledged", drain},
	{"latency", "1,000 messages a second, from the call of publish to the start of the handler", latency},
	{"fail-once", "as drain, but every message fails once; until the last is done", failOnce},
	{"flood", "16 callers publish as fast as they are answered; how much is handled meanwhile", flood},
}, append(sessionWorkloads, relayWorkloads...)...)

func (r *run) begin() (err error) {
	if o, ok := r.queue.(Outsider); ok {
		r.pid = o.PID()
		if r.own, _, err = usedBy(strconv.Itoa(r.pid)); err != nil {
			return err
		}
	}
	r.start, err = used(r.pid)
	return err
}

func (r *run) end(messages int64, took time.Duration) error {
	u, err := used(r.pid)
	if err != nil {
		return err
	}
	if messages == 0 {
		return errors.New("nothing was done")
	}
	d := u.since(r.start)
	r.result.Rate = float64(messages) / took.Seconds()
	r.result.CPU = float64(d.cpu.Nanoseconds()) / 1e3 / float64(messages)
	r.result.Bytes = float64(d.bytes) / float64(messages)
	if r.pid != 0 {
		own, _, err := usedBy(strconv.Itoa(r.pid))
		if err != nil {
			return err
		}
		r.result.Own = float64(own.since(r.own).cpu.Nanoseconds()) / 1e3 / float64(messages)
	}
	return nil
}

// callers publishes from n goroutines until ctx ends and returns how many messages.
func callers(ctx context.Context, q Queue, n, batch int) (int64, error) {
	var published atomic.Int64
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			bodies := make([][]byte, batch)
			for i := range bodies {
				bodies[i] = make([]byte, bodySize)
			}
			for ctx.Err() == nil {
				// A call that began is waited for: half a call is no measurement.
				if err := q.Publish(context.WithoutCancel(ctx), bodies); err != nil {
					failure.CompareAndSwap(nil, &err)
					return
				}
				published.Add(int64(batch))
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return 0, *err
	}
	return published.Load(), nil
}

func publish(n, batch int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		if _, ok := r.queue.(Batcher); batch > 1 && !ok {
			return errUnfit
		}
		ctx, cancel := context.WithTimeout(ctx, r.duration)
		defer cancel()
		if err := r.begin(); err != nil {
			return err
		}
		start := time.Now()
		published, err := callers(ctx, r.queue, n, batch)
		if err != nil {
			return err
		}
		return r.end(published, time.Since(start))
	}
}

// drain lays out a backlog and measures how fast it is handled, until it is empty or
// the time is over.
func drain(ctx context.Context, r *run) error {
	return r.drain(ctx, maxWaiting, r.duration, func([]byte) error { return nil })
}

// failOnce is not cut short: a system may well see to all first attempts before it
// repeats one.
func failOnce(ctx context.Context, r *run) error {
	seen := make([]atomic.Bool, maxFailing)
	return r.drain(ctx, maxFailing, 30*r.duration, func(body []byte) error {
		if !seen[binary.LittleEndian.Uint64(body)].Swap(true) {
			return errOnce
		}
		return nil
	})
}

func (r *run) drain(ctx context.Context, most int, limit time.Duration, handle func(body []byte) error) error {
	c, ok := r.queue.(Consumer)
	if !ok {
		return errUnfit
	}
	waiting, err := backlog(ctx, c, most, 2*r.duration)
	if err != nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	var handled atomic.Int64
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	var took time.Duration
	var once sync.Once
	stop := func() { once.Do(func() { took = time.Since(start); cancel() }) }
	if err := c.Consume(ctx, func(body []byte) error {
		err := handle(body)
		if err == nil && ctx.Err() == nil && handled.Add(1) == int64(waiting) {
			stop()
		}
		return err
	}); err != nil {
		return err
	}
	stop()
	// A consumer ends some time after it was stopped; what it handled was counted
	// only before.
	return r.end(handled.Load(), min(took, limit))
}

// backlog publishes up to most numbered messages in batches, or from many callers
// where there are none, for some time at most, and returns how many.
func backlog(ctx context.Context, q Queue, most int, limit time.Duration) (int, error) {
	size, n := 1, 64
	if _, ok := q.(Batcher); ok {
		size, n = batchSize, 4
	}
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(start) < limit {
				first := next.Add(int64(size)) - int64(size)
				if first+int64(size) > int64(most) {
					next.Add(-int64(size))
					return
				}
				bodies := make([][]byte, size)
				for i := range bodies {
					bodies[i] = make([]byte, bodySize)
					binary.LittleEndian.PutUint64(bodies[i], uint64(first)+uint64(i))
				}
				if err := q.Publish(ctx, bodies); err != nil {
					failure.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return 0, fmt.Errorf("backlog: %w", *err)
	}
	return int(next.Load()), nil
}

// latency publishes at a fixed rate, each message at its time whatever became of the
// one before, so that a stall is seen in all messages that it delayed.
func latency(ctx context.Context, r *run) error {
	c, ok := r.queue.(Consumer)
	if !ok {
		return errUnfit
	}
	n := int(r.duration.Seconds() * latencyRate)
	started, committed := make([]atomic.Int64, n), make([]atomic.Int64, n)
	var handled atomic.Int64
	all := make(chan struct{})
	begin := time.Now().Add(200 * time.Millisecond) // for the consumer to stand ready

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.Consume(ctx, func(body []byte) error {
			if started[binary.LittleEndian.Uint64(body)].CompareAndSwap(0, int64(time.Since(begin))) {
				if handled.Add(1) == int64(n) {
					close(all)
				}
			}
			return nil
		})
	}()

	if err := r.begin(); err != nil {
		return err
	}
	if err := atRate(ctx, c, begin, committed); err != nil {
		return err
	}
	select {
	case <-all:
	case err := <-ended:
		return fmt.Errorf("the consumer ended: %w", err)
	case <-time.After(2 * time.Second): // what has not come by then counts as such
	}
	var fromCall, fromCommit []time.Duration
	for i := range started {
		at := time.Duration(started[i].Load())
		if at == 0 {
			r.result.Unhandled++
			continue
		}
		fromCall = append(fromCall, at-due(i))
		fromCommit = append(fromCommit, max(at-time.Duration(committed[i].Load()), 0))
	}
	r.result.P50, r.result.P99 = quantile(fromCall, 0.5), quantile(fromCall, 0.99)
	r.result.CommitP99 = quantile(fromCommit, 0.99)
	if err := r.end(int64(len(fromCall)), r.duration); err != nil {
		return err
	}
	cancel()
	return <-ended
}

// due is when the i-th message of the latency workload is published.
func due(i int) time.Duration { return time.Duration(i) * time.Second / latencyRate }

// atRate publishes one message for each element of committed and writes there when
// Publish had returned.
func atRate(ctx context.Context, q Queue, begin time.Time, committed []atomic.Int64) error {
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	turns := make(chan int, len(committed))
	for range 64 {
		wg.Go(func() {
			for i := range turns {
				body := make([]byte, bodySize)
				binary.LittleEndian.PutUint64(body, uint64(i))
				if err := q.Publish(ctx, [][]byte{body}); err != nil {
					failure.CompareAndSwap(nil, &err)
				}
				committed[i].Store(int64(time.Since(begin)))
			}
		})
	}
	for i := range committed {
		time.Sleep(time.Until(begin.Add(due(i)))) //nolint:forbidigo // the workload is a rate
		turns <- i
	}
	close(turns)
	wg.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// flood publishes from closed loops and counts what is handled meanwhile.
func flood(ctx context.Context, r *run) error {
	c, ok := r.queue.(Consumer)
	if !ok {
		return errUnfit
	}
	ctx, cancel := context.WithTimeout(ctx, r.duration)
	defer cancel()
	if err := r.begin(); err != nil {
		return err
	}
	var handled atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- c.Consume(ctx, func([]byte) error {
			if ctx.Err() == nil {
				handled.Add(1)
			}
			return nil
		})
	}()
	published, err := callers(ctx, c, floodCallers, 1)
	if err != nil {
		return err
	}
	if err := r.end(max(handled.Load(), 1), r.duration); err != nil {
		return err
	}
	r.result.Published = float64(published) / r.duration.Seconds()
	return <-ended
}
