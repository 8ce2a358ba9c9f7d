package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

var riverDriver = Driver{
	Name:       "river",
	Version:    func() string { return moduleVersion("github.com/riverqueue/river") },
	Settings:   fmt.Sprintf("%s; %d workers, fetch cooldown %s, fetch poll %s; batches by InsertManyFast; fail-once: retry after 1 ms", postgresSettings, riverWorkers, riverCooldown, riverPoll),
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Subject:    postgresName,
	Open:       func(string) (Queue, error) { return openRiver() },
}

// Its defaults are 100 ms and 1 s, which bound how much it fetches.
const (
	riverWorkers  = 2000
	riverCooldown = time.Millisecond
	riverPoll     = 50 * time.Millisecond
)

type riverQueue struct {
	server *postgresServer
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only
}

type riverArgs struct {
	Body []byte `json:"body"`
}

func (riverArgs) Kind() string { return queueName }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle func([]byte) error
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	return w.handle(job.Args.Body)
}

// riverRetry retries at once.
type riverRetry struct{}

func (riverRetry) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Millisecond) }

func openRiver() (Queue, error) {
	server, err := startPostgres()
	if err != nil {
		return nil, err
	}
	q := &riverQueue{server: server}
	ctx := context.Background()
	if q.pool, err = server.connect(ctx); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	m, err := rivermigrate.New(riverpgxv5.New(q.pool), nil)
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		q.client, err = river.NewClient(riverpgxv5.New(q.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *riverQueue) Batches() {}

func (q *riverQueue) Publish(ctx context.Context, bodies [][]byte) error {
	if len(bodies) == 1 {
		_, err := q.client.Insert(ctx, riverArgs{bodies[0]}, nil)
		return err
	}
	many := make([]river.InsertManyParams, len(bodies))
	for i, b := range bodies {
		many[i].Args = riverArgs{b}
	}
	_, err := q.client.InsertManyFast(ctx, many)
	return err
}

func (q *riverQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		Workers:           workers,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown:     riverCooldown,
		FetchPollInterval: riverPoll,
		RetryPolicy:       riverRetry{},
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Stop(stop)
}

func (q *riverQueue) Close() error {
	if q.pool != nil {
		q.pool.Close()
	}
	q.server.Remove()
	return nil
}

func (q *riverQueue) PID() int { return q.server.PID() }
