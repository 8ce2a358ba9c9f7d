package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

const queueName = "bench"

var redriveSQLite = Driver{
	Name:       "redrive sqlite",
	Version:    func() string { return "this tree" },
	Settings:   "whole engine, concurrency 64; fail-once: fixed backoff of 1 ms, breaker off",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open: func(dir string) (Queue, error) {
		store, err := sqlite.Open(dir)
		if err != nil {
			return nil, err
		}
		return &redriveQueue{store: store}, nil
	},
}

var redriveMemory = Driver{
	Name:       "redrive memory",
	Version:    func() string { return "this tree" },
	Settings:   redriveSQLite.Settings,
	Durability: "none",
	Open:       func(string) (Queue, error) { return &redriveQueue{store: memory.New()}, nil },
}

type redriveQueue struct {
	store       driver.Store
	concurrency int // 0: the default
}

func (q *redriveQueue) Batches() {}

func (q *redriveQueue) Publish(ctx context.Context, bodies [][]byte) error {
	msgs := make([]redrive.Message, len(bodies))
	for i, b := range bodies {
		msgs[i] = redrive.Message{Queue: queueName, Body: b}
	}
	return driver.FirstError(q.store.Publish(ctx, msgs))
}

func (q *redriveQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	e := engine.New(q.store, engine.Options{Grace: time.Second})
	policy := redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}}.WithDefaults()
	err := e.Handle(queueName, redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		return handle(d.Body)
	}), engine.QueueOptions{
		Concurrency: q.concurrency,
		Policies:    engine.Policies{Default: policy},
		Breaker:     engine.BreakerOptions{Off: true},
	})
	if err != nil {
		return err
	}
	if err := e.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (q *redriveQueue) Close() error { return q.store.Close() }

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return fmt.Sprintf("%s %s", path, m.Version)
		}
	}
	return path + ", version unknown"
}
