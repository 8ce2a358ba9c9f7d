package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Each benchmark stands beside what plain SQL does on the same server, so that their
// ratio counts, not the machine. The server of the tests syncs nothing: this is what
// the work costs beside the disk. With the disk: bench/, drivers "mariadb".

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
func rawTable(b *testing.B) (*sql.DB, string) {
	b.Helper()
	db := dial(b, "interpolateParams=true")
	db.SetMaxIdleConns(16)
	table := newPrefix() + "raw"
	serve(b, "CREATE TABLE "+table+" (id BIGINT AUTO_INCREMENT PRIMARY KEY, queue VARBINARY(64) NOT NULL, due DATETIME(6) NOT NULL, body BLOB NOT NULL, KEY (queue, due))")
	return db, table
}

func rawInsert(b *testing.B, db *sql.DB, table string, n int) {
	args := make([]any, 0, 2*n)
	for range n {
		args = append(args, "a", payload)
	}
	_, err := db.ExecContext(context.Background(), "INSERT INTO "+table+" (queue, due, body) VALUES "+
		strings.TrimSuffix(strings.Repeat("(?,UTC_TIMESTAMP(6),?),", n), ","), args...)
	noErr(b, err)
}

func batchOf(n int) []redrive.Message {
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "a", Body: payload}
	}
	return msgs
}

func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 128} {
		b.Run(fmt.Sprintf("redrive/callers=%d", n), func(b *testing.B) {
			s := open(b)
			callers(b, n, func() { noErr(b, driver.FirstError(s.Publish(context.Background(), batchOf(1)))) })
			perMessage(b, b.N)
		})
		b.Run(fmt.Sprintf("raw/callers=%d", n), func(b *testing.B) {
			db, table := rawTable(b)
			db.SetMaxOpenConns(64)
			callers(b, n, func() { rawInsert(b, db, table, 1) })
			perMessage(b, b.N)
		})
	}
}

func BenchmarkPublishBatch(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("redrive/batch=%d", n), func(b *testing.B) {
			s := open(b)
			callers(b, 4, func() { noErr(b, driver.FirstError(s.Publish(context.Background(), batchOf(n)))) })
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("redrive-chosen/batch=%d", n), func(b *testing.B) {
			s := open(b)
			var next atomic.Int64
			callers(b, 4, func() {
				base := next.Add(int64(n))
				msgs := batchOf(n)
				for i := range msgs {
					msgs[i].ID = fmt.Sprint(base + int64(i))
				}
				noErr(b, driver.FirstError(s.Publish(context.Background(), msgs)))
			})
			perMessage(b, b.N*n)
		})
		b.Run(fmt.Sprintf("raw/batch=%d", n), func(b *testing.B) {
			db, table := rawTable(b)
			callers(b, 4, func() { rawInsert(b, db, table, n) })
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
				through.Add(int64(step()))
			}
		})
	}
	wg.Wait()
}

func BenchmarkDrain(b *testing.B) {
	const n, batch = 20_000, 100
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("redrive/workers=%d", workers), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := open(b)
				for range n / 1000 {
					noErr(b, driver.FirstError(s.Publish(context.Background(), batchOf(1000))))
				}
				b.StartTimer()
				drain(workers, n, func() int {
					got, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "a", Max: batch, Lease: time.Minute, Instance: "x"})
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
				db, table := rawTable(b)
				for range n / 1000 {
					rawInsert(b, db, table, 1000)
				}
				b.StartTimer()
				drain(workers, n, func() int { return rawStep(b, db, table, batch) })
			}
			perMessage(b, b.N*n)
		})
	}
}

// rawStep claims and deletes once. The server breaks deadlocks of such steps, which are
// then begun anew.
func rawStep(b *testing.B, db *sql.DB, table string, batch int) int {
	ids, err := rawClaim(db, table, batch)
	if err == nil && len(ids) > 0 {
		_, err = db.ExecContext(context.Background(), "DELETE FROM "+table+" WHERE id IN ("+numbers(ids)+")")
		for code(err) == codeDeadlock {
			_, err = db.ExecContext(context.Background(), "DELETE FROM "+table+" WHERE id IN ("+numbers(ids)+")")
		}
	}
	if code(err) == codeDeadlock {
		return 0
	}
	noErr(b, err)
	return len(ids)
}

func rawClaim(db *sql.DB, table string, batch int) (ids []int64, err error) {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	rows, err := tx.QueryContext(ctx,
		"SELECT id, body FROM "+table+" WHERE queue = 'a' AND due <= UTC_TIMESTAMP(6) ORDER BY due LIMIT ? FOR UPDATE SKIP LOCKED", batch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET due = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE WHERE id IN ("+numbers(ids)+")"); err != nil {
		return nil, err
	}
	return ids, tx.Commit()
}

func BenchmarkPublishTx(b *testing.B) {
	s := open(b)
	db, table := rawTable(b)
	for name, f := range map[string]func(tx *sql.Tx) error{
		"redrive": func(tx *sql.Tx) error {
			return s.PublishTx(context.Background(), tx, redrive.Message{Queue: "a", Body: payload})
		},
		"bare-insert": func(tx *sql.Tx) error {
			_, err := tx.ExecContext(context.Background(), "INSERT INTO "+table+" (queue, due, body) VALUES (?, UTC_TIMESTAMP(6), ?)", "a", payload)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			callers(b, 1, func() {
				tx, err := db.BeginTx(context.Background(), nil)
				noErr(b, err)
				noErr(b, f(tx))
				noErr(b, tx.Commit())
			})
			perMessage(b, b.N)
		})
	}
}

// BenchmarkPublishBySQL publishes in transactions by the library, by the procedure, and by the
// procedure on a server that has no CRC32C.
func BenchmarkPublishBySQL(b *testing.B) {
	s, slow := open(b), open(b)
	byteByByte(b, slow)
	call := "CALL redrive_publish('a', '', ?, NULL, @id)"
	for _, size := range []int{256, 4 << 10, 64 << 10} {
		for _, n := range []int{1, 100} {
			msgs := make([]redrive.Message, n)
			by := func(s *Store) func(tx *sql.Tx) error {
				return func(tx *sql.Tx) error {
					for range n {
						if _, err := tx.ExecContext(context.Background(), s.sql.in(call), make([]byte, size)); err != nil {
							return err
						}
					}
					return nil
				}
			}
			for name, f := range map[string]func(tx *sql.Tx) error{
				"library": func(tx *sql.Tx) error {
					for i := range msgs {
						msgs[i] = redrive.Message{Queue: "a", Body: make([]byte, size)}
					}
					return s.PublishTx(context.Background(), tx, msgs...)
				},
				"sql": by(s), "sql-byte-by-byte": by(slow),
			} {
				b.Run(fmt.Sprintf("%s/%d bytes/%d a transaction", name, size, n), func(b *testing.B) {
					callers(b, 1, func() {
						tx, err := s.pool.BeginTx(context.Background(), nil)
						noErr(b, err)
						noErr(b, f(tx))
						noErr(b, tx.Commit())
					})
					perMessage(b, b.N*n)
				})
			}
		}
	}
}

// upTo is a table of the numbers from 1 to n, as "seq", on any server.
func upTo(n int) string {
	const digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	sum, from := "1", ""
	for place, power := 0, 1; power < n || place == 0; place, power = place+1, power*10 {
		if place > 0 {
			from += " CROSS JOIN "
		}
		sum += fmt.Sprintf(" + %d * d%d.d", power, place)
		from += fmt.Sprintf("%s d%d", digits, place)
	}
	return fmt.Sprintf("(SELECT seq FROM (SELECT %s AS seq FROM %s) every WHERE seq <= %d ORDER BY seq) numbers", sum, from, n)
}

// fillTables puts rows into the tables as a store that was used for long has them.
func fillTables(b testing.TB, s *Store, waiting, dead int) {
	b.Helper()
	const columns = "queue, id, due, published, size, body"
	script := fmt.Sprintf(`INSERT INTO redrive_message (%s) SELECT 'a', CONCAT('w', seq), 1700000000000000 + seq, 1700000000000000, 300, REPEAT('x', 256) FROM %s;
INSERT INTO redrive_dead (%s, seq, died, token, nonce, turn, attempts, failures, earlier, crashes, generation, redrives, reason, lane, chosen, signature, kind, msg_key, reply_to, plan, edited_from)
SELECT 'a', CONCAT('d', seq), 1700000000000000 + seq, 1700000000000000, 300, REPEAT('x', 256), 100000000 + seq, 1700000000000000 + seq, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1 + seq %% 3, 0, 0, CONCAT('s', seq %% 7), '', '', '', '', '' FROM %s;
ANALYZE TABLE redrive_message, redrive_dead`, columns, upTo(waiting), columns, upTo(dead))
	serve(b, s.sql.in(script))
}

// BenchmarkClaimDeep compares claims from a small table with those from one that holds a
// million waiting and a million dead messages.
func BenchmarkClaimDeep(b *testing.B) {
	for _, size := range []int{10_000, 1_000_000} {
		s := open(b)
		fillTables(b, s, size, size)
		b.Run(fmt.Sprintf("waiting=%d", size), func(b *testing.B) {
			for range b.N {
				got, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "a", Max: 50, Lease: time.Minute, Instance: "x"})
				noErr(b, err)
				if len(got) != 50 {
					b.Fatalf("claimed %d", len(got))
				}
				b.StopTimer()
				list := make([]driver.Settlement, len(got))
				for i := range got {
					list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeRelease}
				}
				noErr(b, driver.FirstError(s.Settle(context.Background(), list)))
				b.StartTimer()
			}
		})
	}
}
