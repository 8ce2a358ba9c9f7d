package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/redrive/redrive/internal/redistest"
)

func asynqOn(fsync string) Driver {
	return onRedis("asynq", fsync, "concurrency 64; fail-once: retry after 1 ms, looked for every 100 ms", moduleOf("github.com/hibiken/asynq"), openAsynq)
}

type asynqQueue struct {
	client *asynq.Client
	server *redistest.Server
}

func openAsynq(_ context.Context, server *redistest.Server) (Queue, error) {
	return &asynqQueue{client: asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr}), server: server}, nil
}

func (q *asynqQueue) PID() int { return q.server.PID() }

func (q *asynqQueue) Publish(ctx context.Context, bodies [][]byte) error {
	var errs []error
	for _, b := range bodies {
		_, err := q.client.EnqueueContext(ctx, asynq.NewTask(queueName, b))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (q *asynqQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	worker := asynq.NewServer(asynq.RedisClientOpt{Addr: q.server.Addr}, asynq.Config{
		Concurrency: 64, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Millisecond }, DelayedTaskCheckInterval: 100 * time.Millisecond,
	})
	if err := worker.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { return handle(t.Payload()) })); err != nil {
		return err
	}
	<-ctx.Done()
	worker.Shutdown()
	return nil
}

func (q *asynqQueue) Close() error {
	err := q.client.Close()
	q.server.Kill()
	return err
}
