package main

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/redisstream"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// Systems on Redis run on a server of their own over loopback, with an append-only file:
// synced every second, and before every answer.
const (
	everySecond = "everysec"
	everyAnswer = "always"
)

// onRedis makes a driver of a system on Redis for one setting of the server.
func onRedis(name, fsync, settings string, version func() string, open func(ctx context.Context, server *redistest.Server) (Queue, error)) Driver {
	durability := "publish and acknowledgement in the page cache, synced every second"
	if fsync == everyAnswer {
		durability = "publish and acknowledgement synced"
	}
	return Driver{
		Name: name + ", " + fsync, Version: version, Settings: settings, Durability: durability, Synced: fsync == everyAnswer,
		Open: func(dir string) (Queue, error) {
			bin, err := exec.LookPath("redis-server")
			if err != nil {
				return nil, errors.New("no redis-server: make bench-peers installs it")
			}
			server, err := redistest.New(bin, dir, redistest.Options{AppendOnly: true, Fsync: fsync})
			if err != nil {
				return nil, err
			}
			q, err := open(context.Background(), server)
			if err != nil {
				server.Kill()
				return nil, err
			}
			return q, nil
		},
	}
}

func thisTree() string { return "this tree" }

func redisStream(fsync string) Driver {
	return onRedis("redrive redisstream", fsync, "whole engine, concurrency 64; fail-once: fixed backoff of 1 ms, breaker off", thisTree, openRedisStream)
}

type redisStreamQueue struct {
	redriveQueue
	server *redistest.Server
}

func openRedisStream(ctx context.Context, server *redistest.Server) (Queue, error) {
	store, err := redisstream.Open(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	return &redisStreamQueue{redriveQueue{store: store}, server}, nil
}

func (q *redisStreamQueue) PID() int { return q.server.PID() }

func (q *redisStreamQueue) Close() error {
	err := q.redriveQueue.Close()
	q.server.Kill()
	return err
}

// redisStreamStore measures the store without the engine: fenced claims and settlements
// of 100, as the raw stream is read.
func redisStreamStore(fsync string) Driver {
	return onRedis("redisstream, store only", fsync, "Claim and Settle of 100, 2 loops", thisTree, func(ctx context.Context, server *redistest.Server) (Queue, error) {
		q, err := openRedisStream(ctx, server)
		if err != nil {
			return nil, err
		}
		return &storeQueue{q.(*redisStreamQueue)}, nil
	})
}

type storeQueue struct{ *redisStreamQueue }

// rawLoops is how many loops drain a raw stream or a bare store: one for each core here.
const rawLoops = 2

func (q *storeQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	return loops(ctx, func(n int) (bool, error) {
		lane := redrive.LaneFresh
		ds, err := q.store.Claim(context.WithoutCancel(ctx), driver.ClaimRequest{Queue: queueName, Lane: lane, Max: batchSize, Lease: time.Minute, Instance: strconv.Itoa(n)})
		if err != nil {
			return false, err
		}
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
			if handle(ds[i].Body) != nil {
				list[i].Outcome = redrive.OutcomeRelease
			}
		}
		return len(ds) > 0, driver.FirstError(q.store.Settle(context.WithoutCancel(ctx), list))
	})
}

// loops runs once in several loops until ctx ends; an idle one pauses for a millisecond.
func loops(ctx context.Context, once func(n int) (busy bool, err error)) error {
	errs := make([]error, rawLoops)
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() {
			for ctx.Err() == nil && errs[n] == nil {
				var busy bool
				if busy, errs[n] = once(n); !busy {
					select {
					case <-ctx.Done():
					case <-time.After(time.Millisecond):
					}
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func rawStream(fsync string) Driver {
	return onRedis("raw Redis stream", fsync, "XADD pipelined within a batch; XREADGROUP COUNT 100, XACK, XDEL and XADD of what failed in one pipeline, 2 loops", moduleOf("github.com/redis/go-redis/v9"), openRawStream)
}

func moduleOf(path string) func() string { return func() string { return moduleVersion(path) } }

type rawStreamQueue struct {
	client *redis.Client
	server *redistest.Server
}

func openRawStream(ctx context.Context, server *redistest.Server) (Queue, error) {
	q := &rawStreamQueue{client: redis.NewClient(&redis.Options{Addr: server.Addr}), server: server}
	return q, q.client.XGroupCreateMkStream(ctx, queueName, queueName, "0").Err()
}

func (q *rawStreamQueue) Batches() {}
func (q *rawStreamQueue) PID() int { return q.server.PID() }

func (q *rawStreamQueue) Publish(ctx context.Context, bodies [][]byte) error {
	_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, b := range bodies {
			p.XAdd(ctx, &redis.XAddArgs{Stream: queueName, Values: []any{"b", b}})
		}
		return nil
	})
	return err
}

func (q *rawStreamQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	return loops(ctx, func(n int) (bool, error) { return q.once(context.WithoutCancel(ctx), n, handle) })
}

func (q *rawStreamQueue) once(ctx context.Context, n int, handle func([]byte) error) (bool, error) {
	got, err := q.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: queueName, Consumer: strconv.Itoa(n), Streams: []string{queueName, ">"}, Count: batchSize, Block: -1}).Result()
	if err == redis.Nil { //nolint:errorlint // the client returns it bare
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ids := make([]string, len(got[0].Messages))
	var again []string // a failed one is added anew
	for i, m := range got[0].Messages {
		ids[i] = m.ID
		if body, ok := m.Values["b"].(string); ok && handle([]byte(body)) != nil {
			again = append(again, body)
		}
	}
	_, err = q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, body := range again {
			p.XAdd(ctx, &redis.XAddArgs{Stream: queueName, Values: []any{"b", body}})
		}
		p.XAck(ctx, queueName, queueName, ids...)
		p.XDel(ctx, queueName, ids...)
		return nil
	})
	return true, err
}

func (q *rawStreamQueue) Close() error {
	err := q.client.Close()
	q.server.Kill()
	return err
}
