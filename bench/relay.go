package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

const (
	relaySlots   = 64    // deliveries at once: the daemon's default
	relayAhead   = 4_000 // most messages that are published and not yet delivered
	relayStreams = 4     // connections of NDJSON
	relayLine    = 100   // messages of one stream, so that no result is waited for too long
)

// Relayer is a Queue that hands what it takes to an HTTP receiver in this process.
type Relayer interface {
	Queue
	// Stream publishes so many messages by one request.
	Stream(ctx context.Context, bodies int) error
	Received() int64
}

var relayWorkloads = []Workload{
	{"relay-ndjson", "NDJSON in over 4 connections, at most 4,000 ahead, delivery by HTTP to a receiver on this machine", relay(relayStreams, relayLine)},
	{"relay-128", "single HTTP publishes from 128 connections, delivery by HTTP to a receiver on this machine", relay(128, 1)},
}

var relayRedrive = Driver{
	Name:       "relay, redrive serve",
	Version:    func() string { return "this tree" },
	Settings:   "the daemon over backend/sqlite, a process of its own, whose CPU is shown by itself; deliveries unsigned",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open:       openRelay,
}

var relayBare = Driver{
	Name:       "relay, bare loop",
	Version:    runtime.Version,
	Settings:   "64 goroutines that post with net/http's client",
	Durability: "none",
	Open: func(string) (Queue, error) {
		t, err := newTarget()
		if err != nil {
			return nil, err
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: relaySlots}}
		return &postLoop{target: t, client: client}, nil
	},
}

// target is the receiver.
type target struct {
	url      string
	received atomic.Int64
	server   *http.Server
}

func newTarget() (*target, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + l.Addr().String()}
	t.server = &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		t.received.Add(1)
	})}
	go func() { _ = t.server.Serve(l) }()
	return t, nil
}

func (t *target) Received() int64 { return t.received.Load() }

// relay publishes with so many messages a call, and counts what the receiver got.
func relay(connections, batch int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		q, ok := r.queue.(Relayer)
		if !ok {
			return errUnfit
		}
		ctx, cancel := context.WithTimeout(ctx, r.duration)
		defer cancel()
		if err := r.begin(); err != nil {
			return err
		}
		start, first := time.Now(), q.Received()
		var sent atomic.Int64
		_, err := callers(ctx, relayPublisher{q, &sent, batch}, connections, 1)
		if err != nil {
			return err
		}
		return r.end(q.Received()-first, time.Since(start))
	}
}

// relayPublisher keeps what is ahead of the receiver bounded.
type relayPublisher struct {
	Relayer
	sent  *atomic.Int64
	batch int
}

func (p relayPublisher) Publish(ctx context.Context, bodies [][]byte) error {
	for p.sent.Load()-p.Received() > relayAhead {
		time.Sleep(time.Millisecond) //nolint:forbidigo // the sender's own pace
	}
	p.sent.Add(int64(p.batch))
	if p.batch == 1 {
		return p.Relayer.Publish(ctx, bodies)
	}
	return p.Stream(ctx, p.batch)
}

// postLoop is the least that delivers.
type postLoop struct {
	*target
	client *http.Client
}

func (q *postLoop) Publish(context.Context, [][]byte) error { return errUnfit }

func (q *postLoop) Close() error { return q.server.Close() }

// Stream posts each message itself, as many at once as the daemon delivers.
func (q *postLoop) Stream(_ context.Context, bodies int) error {
	body := make([]byte, bodySize)
	failed := make(chan error, relaySlots/relayStreams)
	var left atomic.Int64
	left.Store(int64(bodies))
	for range cap(failed) {
		go func() {
			for left.Add(-1) >= 0 {
				resp, err := q.client.Post(q.url, "application/octet-stream", bytes.NewReader(body)) //nolint:noctx // loopback
				if err != nil {
					failed <- err
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			failed <- nil
		}()
	}
	var err error
	for range cap(failed) {
		err = errors.Join(err, <-failed)
	}
	return err
}

// relayQueue is the daemon in a process of its own.
type relayQueue struct {
	*httpQueue
	*target
	process *exec.Cmd
	stream  []byte
	client  *http.Client
}

func openRelay(dir string) (_ Queue, err error) {
	t, err := newTarget()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-serve", t.url, "-dir", dir, "-cpuprofile", relayProfile) //nolint:noctx // ended by Close
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=352MiB") // as redrive serve sets them
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(errors.New("the daemon did not start"), err, cmd.Wait())
	}
	q := &relayQueue{target: t, process: cmd, client: new(http.Client)}
	q.httpQueue = &httpQueue{addr: strings.TrimSpace(addr)}
	line := fmt.Appendf(nil, "{\"body\":%q}\n", strings.Repeat("x", bodySize))
	q.stream = bytes.Repeat(line, relayLine)
	return q, nil
}

func (q *relayQueue) PID() int { return q.process.Process.Pid }

func (q *relayQueue) Stream(ctx context.Context, _ int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.addr+"/v1/queues/"+queueName+"/messages", bytes.NewReader(q.stream))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := q.client.Do(req)
	if err != nil {
		return err
	}
	results, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if n := bytes.Count(results, []byte(`"id"`)); err == nil && (resp.StatusCode != http.StatusOK || n < relayLine) {
		return fmt.Errorf("%s, %d of %d messages were taken: %.200s", resp.Status, n, relayLine, results)
	}
	return err
}

func (q *relayQueue) Close() error {
	err := q.process.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, q.process.Wait(), q.server.Close())
}

// relayProfile is where the daemon writes a CPU profile of a run; "": nowhere.
var relayProfile string

// serveTo runs the daemon that delivers to a URL until a signal ends it, and prints its address.
func serveTo(ctx context.Context, o options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	if o.profile != "" {
		end, err := profile(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = end() }()
	}
	cfg := config.Default()
	cfg.Listen, cfg.Store, cfg.Grace = "127.0.0.1:0", config.Address("sqlite:"+o.dir), config.Duration(time.Second)
	cfg.Queues[queueName] = &config.Queue{Deliver: &config.Deliver{URL: o.serve, AllowPrivate: true}}
	return daemon.Run(ctx, cfg, daemon.Options{Started: func(a net.Addr) { fmt.Println(a) }})
}
