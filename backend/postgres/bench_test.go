package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/pgtest"
)

// Each benchmark stands beside what plain SQL does on the same server, so that their
// ratio counts, not the machine.

var payload = make([]byte, 256)

// perMessage reports messages a second for n of them.
func perMessage(b *testing.B, n int) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
}

// callers runs b.N calls of f by so many goroutines.
func callers(b *testing.B, n int, f func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
}

// rawTable is a plain table of messages, as one would write it by hand.
func rawTable(b *testing.B) (*pgxpool.Pool, string) {
	b.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.Shared(b).URL())
	noErr(b, err)
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	noErr(b, err)
	b.Cleanup(pool.Close)
	table := fmt.Sprintf("raw_%d", schemas.Add(1))
	_, err = pool.Exec(context.Background(), "CREATE TABLE "+table+" (id bigserial PRIMARY KEY, queue text, due timestamptz DEFAULT now(), body bytea); CREATE INDEX ON "+table+" (queue, due)")
	noErr(b, err)
	return pool, table
}

func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("redrive/callers=%d", n), func(b *testing.B) {
			s := open(b)
			callers(b, n, func() {
				noErr(b, driver.FirstError(s.Publish(context.Background(), []redrive.Message{{Queue: "a", Body: payload}})))
			})
			perMessage(b, b.N)
		})
		b.Run(fmt.Sprintf("raw/callers=%d", n), func(b *testing.B) {
			pool, table := rawTable(b)
			sql := "INSERT INTO " + table + " (queue, body) VALUES ($1, $2)"
			callers(b, n, func() {
				_, err := pool.Exec(context.Background(), sql, "a", payload)
				noErr(b, err)
			})
			perMessage(b, b.N)
		})
	}
}

func BenchmarkPublishBatch(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("redrive/batch=%d", n), func(b *testing.B) {
			s := open(b)
			callers(b, 4, func() {
				msgs := make([]redrive.Message, n)
				for i := range msgs {
					msgs[i] = redrive.Message{Queue: "a", Body: payload}
				}
				noErr(b, driver.FirstError(s.Publish(context.Background(), msgs)))
			})
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("redrive-chosen/batch=%d", n), func(b *testing.B) {
			s := open(b)
			var next atomic.Int64
			callers(b, 4, func() {
				base := next.Add(int64(n))
				msgs := make([]redrive.Message, n)
				for i := range msgs {
					msgs[i] = redrive.Message{Queue: "a", ID: fmt.Sprint(base + int64(i)), Body: payload}
				}
				noErr(b, driver.FirstError(s.Publish(context.Background(), msgs)))
			})
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("raw/batch=%d", n), func(b *testing.B) {
			pool, table := rawTable(b)
			sql := "INSERT INTO " + table + " (queue, body) SELECT * FROM unnest($1::text[], $2::bytea[])"
			callers(b, 4, func() {
				queues, bodies := make([]string, n), make([][]byte, n)
				for i := range queues {
					queues[i], bodies[i] = "a", payload
				}
				_, err := pool.Exec(context.Background(), sql, queues, bodies)
				noErr(b, err)
			})
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("raw-copy/batch=%d", n), func(b *testing.B) {
			pool, table := rawTable(b)
			callers(b, 4, func() {
				_, err := pool.CopyFrom(context.Background(), pgx.Identifier{table}, []string{"queue", "body"},
					pgx.CopyFromSlice(n, func(int) ([]any, error) { return []any{"a", payload}, nil }))
				noErr(b, err)
			})
			perMessage(b, b.N*n)
		})
	}
}

func BenchmarkPublishTx(b *testing.B) {
	s := open(b)
	pool, table := rawTable(b)
	insert := "INSERT INTO " + s.sql.in("redrive.message") + " (queue, id, body, due, published, size) VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp(), $4)"
	for name, f := range map[string]func(tx pgx.Tx) error{
		"redrive": func(tx pgx.Tx) error {
			return s.PublishTx(context.Background(), tx, redrive.Message{Queue: "a", Body: payload})
		},
		"bare-insert-same-table": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), insert, "a", redrive.NewID(), payload, len(payload))
			return err
		},
		"bare-insert-raw-table": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "INSERT INTO "+table+" (queue, body) VALUES ($1, $2)", "a", payload)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			callers(b, 1, func() {
				noErr(b, pgx.BeginFunc(context.Background(), pool, f))
			})
			perMessage(b, b.N)
		})
	}
}

// BenchmarkPublishBySQL publishes in transactions by the library and by the function of the schema.
func BenchmarkPublishBySQL(b *testing.B) {
	s := open(b)
	call := s.sql.in("SELECT redrive.publish('a', '', $1::bytea, wake => false)")
	for _, size := range []int{256, 4 << 10, 64 << 10} {
		for _, n := range []int{1, 100} {
			msgs := make([]redrive.Message, n)
			for name, f := range map[string]func(tx pgx.Tx) error{
				"library": func(tx pgx.Tx) error {
					for i := range msgs {
						msgs[i] = redrive.Message{Queue: "a", Body: make([]byte, size)}
					}
					return s.PublishTx(context.Background(), tx, msgs...)
				},
				"sql": func(tx pgx.Tx) error {
					for range n {
						if _, err := tx.Exec(context.Background(), call, make([]byte, size)); err != nil {
							return err
						}
					}
					return nil
				},
			} {
				b.Run(fmt.Sprintf("%s/%d bytes/%d a transaction", name, size, n), func(b *testing.B) {
					callers(b, 1, func() { noErr(b, pgx.BeginFunc(context.Background(), s.pool, f)) })
					perMessage(b, b.N*n)
				})
			}
		}
	}
}

func BenchmarkDrain(b *testing.B) {
	const n = 20_000
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("redrive/workers=%d", workers), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := open(b)
				for range n / 1000 {
					msgs := make([]redrive.Message, 1000)
					for i := range msgs {
						msgs[i] = redrive.Message{Queue: "a", Body: payload}
					}
					noErr(b, driver.FirstError(s.Publish(context.Background(), msgs)))
				}
				b.StartTimer()
				drain(workers, n, func() int {
					got, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "a", Max: 100, Lease: time.Minute, Instance: "x"})
					noErr(b, err)
					list := make([]driver.Settlement, len(got))
					for i := range got {
						list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}
					}
					if len(list) > 0 {
						noErr(b, driver.FirstError(s.Settle(context.Background(), list)))
					}
					return len(list)
				})
			}
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("raw/workers=%d", workers), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				pool, table := rawTable(b)
				_, err := pool.Exec(context.Background(), "INSERT INTO "+table+" (queue, body) SELECT 'a', '\\x00' FROM generate_series(1, $1)", n)
				noErr(b, err)
				b.StartTimer()
				drain(workers, n, func() int {
					rows, err := pool.Query(context.Background(), `WITH c AS MATERIALIZED (SELECT id FROM `+table+` WHERE queue = 'a' AND due <= now()
						ORDER BY due, id LIMIT 100 FOR UPDATE SKIP LOCKED)
						UPDATE `+table+` t SET due = now() + interval '1 minute' FROM c WHERE c.id = t.id RETURNING t.id, t.body`)
					noErr(b, err)
					ids, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (int64, error) {
						var id int64
						var body []byte
						err := r.Scan(&id, &body)
						return id, err
					})
					noErr(b, err)
					if len(ids) > 0 {
						_, err = pool.Exec(context.Background(), "DELETE FROM "+table+" WHERE id = ANY ($1)", ids)
						noErr(b, err)
					}
					return len(ids)
				})
			}
			perMessage(b, b.N*n)
		})
	}
}

// drain runs steps until n messages are through.
func drain(workers, n int, step func() int) {
	var through atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for through.Load() < int64(n) {
				if through.Add(int64(step())) >= int64(n) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRetryAndDead(b *testing.B) {
	for _, o := range []redrive.Outcome{redrive.OutcomeRetry, redrive.OutcomeDead} {
		b.Run(o.String(), func(b *testing.B) {
			s := open(b)
			n := 0
			for range b.N {
				b.StopTimer()
				fillWaiting(b, s, fmt.Sprintf("q%d", n), 100)
				got := claim(b, s, fmt.Sprintf("q%d", n))
				list := make([]driver.Settlement, len(got))
				for i := range got {
					list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: o, After: time.Hour, Reason: redrive.ReasonExhausted,
						Failure: &redrive.Failure{Message: "failed", Signature: "s", Types: []string{"a"}}}
				}
				b.StartTimer()
				noErr(b, driver.FirstError(s.Settle(context.Background(), list)))
				n++
			}
			perMessage(b, b.N*100)
		})
	}
}

// BenchmarkClaimDeep compares claims from a small table with those from one that holds a
// million waiting and a million dead messages.
func BenchmarkClaimDeep(b *testing.B) {
	for _, size := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", size), func(b *testing.B) {
			s := open(b)
			fillWaiting(b, s, "a", max(size, 500*b.N)) // each claim takes away
			fillDead(b, s, "a", size)
			analyze(b, s)
			b.ResetTimer()
			for range b.N {
				got := 0
				for range 10 {
					d, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "a", Max: 50, Lease: time.Minute, Instance: "x"})
					noErr(b, err)
					got += len(d)
					list := make([]driver.Settlement, len(d))
					for i := range d {
						list[i] = driver.Settlement{Receipt: d[i].Receipt, Outcome: redrive.OutcomeRelease, After: time.Hour}
					}
					b.StopTimer()
					noErr(b, driver.FirstError(s.Settle(context.Background(), list)))
					b.StartTimer()
				}
				if got != 500 {
					b.Fatalf("claimed %d", got)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*10), "us/claim")
		})
	}
}

// BenchmarkClaimHeldSnapshot drains a lane behind dead rows that an old transaction
// elsewhere keeps the server from removing.
func BenchmarkClaimHeldSnapshot(b *testing.B) {
	ctx := context.Background()
	for _, dead := range []int{0, 100_000, 1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("dead=%d", dead), func(b *testing.B) {
			s := open(b)
			holdSnapshot(b)
			bury(b, s, dead)
			fillWaiting(b, s, "a", 50*b.N+1000)
			var took []time.Duration
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				got, err := s.Claim(ctx, driver.ClaimRequest{Queue: "a", Max: 50, Lease: time.Minute, Instance: "x"})
				noErr(b, err)
				took = append(took, time.Since(began))
				list := make([]driver.Settlement, len(got))
				for i := range got {
					list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}
				}
				noErr(b, driver.FirstError(s.Settle(ctx, list)))
			}
			slices.Sort(took)
			at := func(share int) float64 { return float64(took[(len(took)-1)*share/100].Microseconds()) }
			b.ReportMetric(at(50), "p50-us/claim")
			b.ReportMetric(at(99), "p99-us/claim")
			b.ReportMetric(at(100), "max-us/claim")
		})
	}
}
