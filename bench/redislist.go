package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/redistest"
)

var redriveList = Driver{
	Name:       "redrive redislist",
	Version:    func() string { return "this tree, " + redisVersion() },
	Settings:   "whole engine, concurrency 64; fail-once: fixed backoff of 1 ms, breaker off; appendfsync everysec",
	Durability: "publish and acknowledgement in the append-only file, synced every second",
	Open: func(dir string) (Queue, error) {
		server, err := startRedis(dir)
		if err != nil {
			return nil, err
		}
		list, err := redislist.Open(context.Background(), server.URL(), redislist.Options{})
		if err != nil {
			server.Kill()
			return nil, err
		}
		return &listQueue{redriveQueue: redriveQueue{store: memory.New()}, list: list, server: server}, nil
	},
}

// listQueue publishes to a list and consumes it beside a store that stays empty.
type listQueue struct {
	redriveQueue
	list   *redislist.Source
	server *redistest.Server
}

func (q *listQueue) PID() int { return q.server.PID() }

func (q *listQueue) Publish(ctx context.Context, bodies [][]byte) error {
	msgs := make([]redrive.Message, len(bodies))
	for i, b := range bodies {
		msgs[i] = redrive.Message{Queue: queueName, Body: b}
	}
	return driver.FirstError(q.list.Publish(ctx, msgs))
}

func (q *listQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	e := engine.New(q.store, engine.Options{Grace: time.Second})
	policy := redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}}.WithDefaults()
	err := e.Handle(queueName, redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		return handle(d.Body)
	}), engine.QueueOptions{
		Policies: engine.Policies{Default: policy},
		Breaker:  engine.BreakerOptions{Off: true},
		Sources:  []driver.Source{q.list},
	})
	if err != nil {
		return err
	}
	if err := e.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (q *listQueue) Close() error {
	err := errors.Join(q.list.Close(), q.store.Close())
	q.server.Kill()
	return err
}

// startRedis starts a private server that syncs its file every second.
func startRedis(dir string) (*redistest.Server, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w; install it with `make bench-peers`", err)
	}
	return redistest.New(bin, dir, redistest.Options{AppendOnly: true, Fsync: "everysec"})
}

func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output() //nolint:noctx // it ends by itself
	if err != nil {
		return "Redis, not installed"
	}
	var version string
	if _, err := fmt.Sscanf(string(out), "Redis server v=%s", &version); err != nil {
		return "Redis, version unknown"
	}
	return "Redis " + version
}
