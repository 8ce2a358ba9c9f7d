package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive/backend/postgres"
	"github.com/redrive/redrive/internal/pgtest"
)

// All that compare themselves on PostgreSQL get a server of their own a run, set alike.
const (
	postgresName     = "redrive postgres"
	postgresSettings = "PostgreSQL 15 of its own over loopback, synchronous_commit on, 256 MB of buffers, pool of 16"
	postgresConns    = 16
	// postgresConcurrency is more than the default of 64: handlers that do nothing wait
	// for claims and settlements only, which cost less the larger they are.
	postgresConcurrency = 256
)

var redrivePostgres = Driver{
	Name:       postgresName,
	Version:    redriveSQLite.Version,
	Settings:   postgresSettings + fmt.Sprintf("; whole engine, concurrency %d; fail-once: fixed backoff of 1 ms, breaker off", postgresConcurrency),
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open: func(string) (Queue, error) {
		server, err := startPostgres()
		if err != nil {
			return nil, err
		}
		store, err := postgres.Open(context.Background(), server.URL())
		if err != nil {
			server.Remove()
			return nil, err
		}
		return &postgresQueue{redriveQueue{store: store, concurrency: postgresConcurrency}, server}, nil
	},
}

// postgresServer is a private server.
type postgresServer struct{ *pgtest.Server }

func startPostgres() (*postgresServer, error) {
	server, err := pgtest.Run(map[string]string{"max_wal_size": "4GB", "checkpoint_timeout": "15min"})
	if err != nil {
		return nil, err
	}
	return &postgresServer{server}, nil
}

// connect opens a pool as large as a store's.
func (s *postgresServer) connect(ctx context.Context) (*pgxpool.Pool, error) {
	return pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", s.URL(), postgresConns))
}

type postgresQueue struct {
	redriveQueue
	server *postgresServer
}

func (q *postgresQueue) Close() error {
	err := q.redriveQueue.Close()
	q.server.Remove()
	return err
}

func (q *postgresQueue) PID() int { return q.server.PID() }
