package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

const queue = "accounts"

// Loop polls accounts, each again and again. An account is one recurring message: it is
// in the list, in flight at a worker, or waiting for its next turn, and a turn puts
// it back in the step that takes it off. So no account is lost with a worker, and none
// is polled twice at once.
type Loop struct {
	list *redislist.Source
	// Who shall leave the loop, and who is just leaving. It is the application's own
	// knowledge, kept where all workers see it.
	redis            *redis.Client
	stopped, leaving string
	interval         time.Duration
	poll             func(ctx context.Context, account string) error
}

// NewLoop makes a loop on a Redis server. Any number of processes may have it. An account
// is polled again after the interval; poll's errors are retried with a growing delay.
func NewLoop(ctx context.Context, url, prefix string, interval time.Duration, poll func(ctx context.Context, account string) error) (*Loop, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// An account may come back at any time after it left: its id is known only as long
	// as it is in the loop. Who failed too often stays beside it, for all to see.
	list, err := redislist.Open(ctx, url+"?prefix="+prefix, redislist.Options{KeepDead: true, Remember: -1})
	if err != nil {
		return nil, err
	}
	return &Loop{list: list, redis: redis.NewClient(o), stopped: prefix + ":stopped", leaving: prefix + ":leaving", interval: interval, poll: poll}, nil
}

// Close releases the connections.
func (l *Loop) Close() error { return errors.Join(l.list.Close(), l.redis.Close()) }

// Add lets an account be polled. One that is in the loop stays there once.
func (l *Loop) Add(ctx context.Context, account string) error {
	if n, err := l.redis.SRem(ctx, l.stopped, account).Result(); err != nil || n == 1 {
		return err // it was to stop, and had not yet
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		leaving, err := l.redis.SIsMember(ctx, l.leaving, account).Result()
		if err != nil {
			return err
		}
		err = driver.FirstError(l.list.Publish(ctx, []redrive.Message{{Queue: queue, ID: account}}))
		switch {
		case err == nil:
			return l.redis.SRem(ctx, l.leaving, account).Err()
		case !errors.Is(err, redrive.ErrDuplicate):
			return err
		case !leaving:
			return nil // it is in the loop
		}
		select { // until it has left
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop takes an account out of the loop at its next turn.
func (l *Loop) Stop(ctx context.Context, account string) error {
	return l.redis.SAdd(ctx, l.stopped, account).Err()
}

// Failed returns the accounts that left the loop because polling failed too often, with
// the history of their first and last failure.
func (l *Loop) Failed(ctx context.Context) ([]redrive.Entry, error) {
	return l.list.DeadLetters(ctx, queue, 1000)
}

// PutBack lets an account that failed be polled again.
func (l *Loop) PutBack(ctx context.Context, account string) error {
	return driver.FirstError(l.list.Redrive(ctx, queue, account))
}

// Work polls accounts until ctx ends.
func (l *Loop) Work(ctx context.Context, policy redrive.Policy) error {
	store := memory.New() // nothing is parked: the list keeps what is delayed and dead
	return engine.Run(ctx, store, queue, redrive.HandlerFunc(l.turn), engine.QueueOptions{
		Sources: []driver.Source{l.list}, Policies: engine.Policies{Default: policy}, Concurrency: 8,
	})
}

// turn is one turn of an account.
func (l *Loop) turn(ctx context.Context, d *redrive.Delivery) error {
	leaves, err := l.leaves(ctx, d.ID)
	switch {
	case err != nil:
		return err
	case leaves:
		return nil // done: it ends
	}
	if err := l.poll(ctx, d.ID); err != nil {
		return err
	}
	return redrive.RepeatAfter(l.interval)
}

// leaves reports whether an account shall leave. A worker that dies after this and before
// the message ended finds it among the leaving ones.
func (l *Loop) leaves(ctx context.Context, account string) (bool, error) {
	if moved, err := l.redis.SMove(ctx, l.stopped, l.leaving, account).Result(); err != nil || moved {
		return moved, err
	}
	return l.redis.SIsMember(ctx, l.leaving, account).Result()
}
