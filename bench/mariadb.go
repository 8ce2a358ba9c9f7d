package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver

	"github.com/redrive/redrive/backend/mysql"
	"github.com/redrive/redrive/internal/mariadbtest"
)

// Both on a private server of their own with the same settings: every commit is synced.

var redriveMariaDB = Driver{
	Name:       "redrive mariadb",
	Version:    func() string { return "this tree" },
	Settings:   fmt.Sprintf("whole engine, concurrency %d, 16 connections; fail-once: fixed backoff of 1 ms, breaker off", postgresConcurrency),
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open: func(string) (Queue, error) {
		server, err := startMariaDB()
		if err != nil {
			return nil, err
		}
		store, err := mysql.Open(context.Background(), server.URL(mariaDatabase))
		if err != nil {
			server.Remove()
			return nil, err
		}
		return &mariaQueue{redriveQueue{store: store, concurrency: postgresConcurrency}, server}, nil
	},
}

var rawMariaDB = Driver{
	Name:       "raw SQL mariadb",
	Version:    func() string { return moduleVersion("github.com/go-sql-driver/mysql") },
	Settings:   "a plain table by hand; 64 connections; 4 consumers that claim 100 with SKIP LOCKED under a lease and delete 100",
	Durability: "publish and acknowledgement synced",
	Synced:     true,
	Open:       openRawMariaDB,
}

const mariaDatabase = "bench"

func startMariaDB() (*mariadbtest.Server, error) {
	server, err := mariadbtest.Run(map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_log_file_size": "512M"})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", "root@tcp("+server.Addr()+")/")
	if err == nil {
		_, err = db.Exec("CREATE DATABASE " + mariaDatabase) //nolint:noctx // nobody cancels it
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		server.Remove()
		return nil, err
	}
	return server, nil
}

type mariaQueue struct {
	redriveQueue
	server *mariadbtest.Server
}

// PID makes the server's work count.
func (q *mariaQueue) PID() int { return q.server.PID() }

func (q *mariaQueue) Close() error {
	err := q.redriveQueue.Close()
	q.server.Remove()
	return err
}

const rawMariaConsumers = 4

type rawMariaQueue struct {
	db     *sql.DB
	server *mariadbtest.Server
}

func openRawMariaDB(string) (Queue, error) {
	server, err := startMariaDB()
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", "root@tcp("+server.Addr()+")/"+mariaDatabase+"?interpolateParams=true")
	if err == nil {
		db.SetMaxOpenConns(64)
		db.SetMaxIdleConns(64)
		_, err = db.Exec("CREATE TABLE raw (id BIGINT AUTO_INCREMENT PRIMARY KEY, queue VARBINARY(64) NOT NULL, " + //nolint:noctx // nobody cancels it
			"due DATETIME(6) NOT NULL, body BLOB NOT NULL, KEY (queue, due)) ENGINE=InnoDB")
	}
	if err != nil {
		server.Remove()
		return nil, err
	}
	return &rawMariaQueue{db, server}, nil
}

func (q *rawMariaQueue) Batches() {}

// PID makes the server's work count.
func (q *rawMariaQueue) PID() int { return q.server.PID() }

func (q *rawMariaQueue) Publish(ctx context.Context, bodies [][]byte) error {
	args := make([]any, 0, 2*len(bodies))
	for _, b := range bodies {
		args = append(args, queueName, b)
	}
	_, err := q.db.ExecContext(ctx, "INSERT INTO raw (queue, due, body) VALUES "+
		strings.TrimSuffix(strings.Repeat("(?,UTC_TIMESTAMP(6),?),", len(bodies)), ","), args...)
	return err
}

func (q *rawMariaQueue) Consume(ctx context.Context, handle func([]byte) error) error {
	errs := make([]error, rawMariaConsumers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = q.consume(context.WithoutCancel(ctx), handle)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// consume claims, handles and deletes once. What failed waits for the end of its lease.
func (q *rawMariaQueue) consume(ctx context.Context, handle func([]byte) error) error {
	ids, bodies, err := q.claim(ctx)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	done, failed := make([]string, 0, len(ids)), make([]string, 0)
	for i, id := range ids {
		if handle(bodies[i]) == nil {
			done = append(done, fmt.Sprint(id))
		} else {
			failed = append(failed, fmt.Sprint(id))
		}
	}
	for statement, list := range map[string][]string{
		"DELETE FROM raw WHERE id IN (%s)": done, "UPDATE raw SET due = UTC_TIMESTAMP(6) WHERE id IN (%s)": failed,
	} {
		if len(list) > 0 {
			if _, err := q.db.ExecContext(ctx, fmt.Sprintf(statement, strings.Join(list, ","))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *rawMariaQueue) claim(ctx context.Context) (ids []int64, bodies [][]byte, err error) {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, "SELECT id, body FROM raw WHERE queue = ? AND due <= UTC_TIMESTAMP(6) ORDER BY due LIMIT 100 FOR UPDATE SKIP LOCKED", queueName)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var id int64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, nil, err
		}
		ids, bodies, list = append(ids, id), append(bodies, body), append(list, fmt.Sprint(id))
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	_, err = tx.ExecContext(ctx, "UPDATE raw SET due = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE WHERE id IN ("+strings.Join(list, ",")+")")
	if err != nil {
		return nil, nil, err
	}
	return ids, bodies, tx.Commit()
}

func (q *rawMariaQueue) Close() error {
	err := q.db.Close()
	q.server.Remove()
	return err
}
