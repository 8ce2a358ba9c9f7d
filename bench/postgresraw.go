package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var rawPostgres = Driver{
	Name:       "raw SQL on PostgreSQL",
	Version:    func() string { return moduleVersion("github.com/jackc/pgx/v5") },
	Settings:   postgresSettings + "; statements by hand on one table: multi-row INSERT; 8 consumers claim 100 by UPDATE ... SKIP LOCKED and delete 100 in one round trip; no history, ledger or retries; a failed message is due again at once",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Subject:    postgresName,
	Open:       func(string) (Queue, error) { return openRaw() },
}

const rawConsumers = 8

type rawQueue struct {
	server *postgresServer
	pool   *pgxpool.Pool
}

const (
	rawTable  = `CREATE TABLE raw (id bigserial PRIMARY KEY, queue text NOT NULL, due timestamptz NOT NULL DEFAULT now(), token int NOT NULL DEFAULT 0, body bytea NOT NULL) WITH (fillfactor = 80); CREATE INDEX ON raw (queue, due)`
	rawInsert = `INSERT INTO raw (queue, body) VALUES ($1, $2)`
	rawMany   = `INSERT INTO raw (queue, body) SELECT $1, unnest($2::bytea[])`
	rawDelete = `DELETE FROM raw WHERE id = ANY ($1)`
	rawFailed = `UPDATE raw SET due = now() WHERE id = ANY ($1)`
	rawClaim  = `WITH c AS MATERIALIZED (SELECT id FROM raw WHERE queue = $1 AND due <= now() ORDER BY due LIMIT 100 FOR UPDATE SKIP LOCKED)
		UPDATE raw r SET due = now() + interval '1 minute', token = token + 1 FROM c WHERE c.id = r.id RETURNING r.id, r.token, r.body`
)

func openRaw() (Queue, error) {
	server, err := startPostgres()
	if err != nil {
		return nil, err
	}
	q := &rawQueue{server: server}
	ctx := context.Background()
	if q.pool, err = server.connect(ctx); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	if _, err := q.pool.Exec(ctx, rawTable); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *rawQueue) Batches() {}

func (q *rawQueue) Publish(ctx context.Context, bodies [][]byte) error {
	if len(bodies) == 1 {
		_, err := q.pool.Exec(ctx, rawInsert, queueName, bodies[0])
		return err
	}
	_, err := q.pool.Exec(ctx, rawMany, queueName, bodies)
	return err
}

func (q *rawQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	errs := make([]error, rawConsumers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = q.consume(ctx, handle) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// consume claims, and deletes what it claimed before in the same round trip.
func (q *rawQueue) consume(ctx context.Context, handle func([]byte) error) error {
	var done, failed []int64
	for last := false; !last; {
		last = ctx.Err() != nil
		var batch pgx.Batch
		if len(done) > 0 {
			batch.Queue(rawDelete, done)
		}
		if len(failed) > 0 {
			batch.Queue(rawFailed, failed)
		}
		var bodies [][]byte
		var ids []int64
		if !last {
			batch.Queue(rawClaim, queueName).Query(func(rows pgx.Rows) error {
				var id int64
				var token int
				var body []byte
				_, err := pgx.ForEachRow(rows, []any{&id, &token, &body}, func() error {
					ids, bodies, body = append(ids, id), append(bodies, body), nil
					return nil
				})
				return err
			})
		}
		if batch.Len() > 0 {
			if err := q.pool.SendBatch(context.WithoutCancel(ctx), &batch).Close(); err != nil {
				return err
			}
		}
		done, failed = nil, nil
		for i, body := range bodies {
			if handle(body) == nil {
				done = append(done, ids[i])
			} else {
				failed = append(failed, ids[i])
			}
		}
		if len(ids) == 0 && !last {
			time.Sleep(time.Millisecond) //nolint:forbidigo // a poll
		}
	}
	return nil
}

func (q *rawQueue) Close() error {
	if q.pool != nil {
		q.pool.Close()
	}
	q.server.Remove()
	return nil
}

func (q *rawQueue) PID() int { return q.server.PID() }
