package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// fillWaiting and fillDead store messages by SQL, beside the ledger.
func fillWaiting(t testing.TB, s *Store, queue string, n int) {
	t.Helper()
	fillDue(t, s, queue, n, time.Hour)
}

// fillDue stores messages that have been due for so long.
func fillDue(t testing.TB, s *Store, queue string, n int, since time.Duration) {
	t.Helper()
	_, err := s.pool.Exec(context.Background(), s.sql.in(`INSERT INTO redrive.message (queue, id, body, due, published, size)
		SELECT $1, 'w' || i, '\x00', now() - $3 * interval '1 second' + i * interval '1 microsecond', now(), 2 FROM generate_series(1, $2::int) i`), queue, n, since.Seconds())
	noErr(t, err)
}

func fillDead(t testing.TB, s *Store, queue string, n int) {
	t.Helper()
	_, err := s.pool.Exec(context.Background(), s.sql.in(`INSERT INTO redrive.dead (seq, died, due, published, token, nonce, turn, attempts, failures,
		earlier, crashes, generation, redrives, size, reason, lane, chosen, queue, id, signature, kind, key, reply_to, plan, origin, edited_from, body)
		SELECT i, now() - i * interval '1 millisecond', now(), now(), 1, 1, 0, 1, 1, 0, 0, 0, 0, 2, 1 + i % 3, 0, false, $1, 'd' || i, 'sig' || i % 50, '', '', '', '', '', '', '\x00'
		FROM generate_series(1, $2::int) i`), queue, n)
	noErr(t, err)
}

func analyze(t testing.TB, s *Store) {
	t.Helper()
	for _, table := range []string{"message", "dead", "remembered", "text"} {
		_, err := s.pool.Exec(context.Background(), "VACUUM (ANALYZE) "+pgx.Identifier{s.sql.schema, table}.Sanitize())
		noErr(t, err)
	}
}

// explain returns the plan of a statement as it is run, made for its arguments or for
// any.
func explain(t testing.TB, s *Store, name string, generic bool, args ...any) string {
	t.Helper()
	var b strings.Builder
	tx, err := s.pool.Begin(context.Background())
	noErr(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(context.Background(), "PREPARE explained AS "+s.sql.Get(name))
	noErr(t, err)
	mode := "force_custom_plan"
	if generic {
		mode = "force_generic_plan"
	}
	_, err = tx.Exec(context.Background(), "SET LOCAL plan_cache_mode = "+mode)
	noErr(t, err)
	rows, err := tx.Query(context.Background(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE explained"+sqlValues(args), pgx.QueryExecModeExec)
	noErr(t, err)
	for rows.Next() {
		var line string
		noErr(t, rows.Scan(&line))
		b.WriteString(line + "\n")
	}
	noErr(t, rows.Err())
	_, err = tx.Exec(context.Background(), "DEALLOCATE explained")
	noErr(t, err)
	return b.String()
}

// sqlValues writes arguments into SQL.
func sqlValues(args []any) string {
	if len(args) == 0 {
		return ""
	}
	list := make([]string, len(args))
	for i, a := range literals(args) {
		switch v := a.(type) {
		case nil:
			list[i] = "NULL"
		case time.Time:
			list[i] = "'" + v.Format(time.RFC3339Nano) + "'"
		default:
			list[i] = "'" + strings.ReplaceAll(fmt.Sprint(v), "'", "''") + "'"
		}
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// settleArgs are those of the statement settle for n messages, half of which are waiting.
func settleArgs(n int, queue string) []any {
	queues, ids, ones, fours, zeros, texts, empty := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]*string, n), make([]string, n)
	hashes := make([]*int64, n)
	for i := range n {
		queues[i], ids[i], ones[i], fours[i], hashes[i] = queue, fmt.Sprintf("w%d", 1+i*7), 1, int64(1+i%6), &ones[i]
	}
	return []any{queues, ids, ones, ones, fours, zeros, ones, texts, empty, hashes}
}

func made(n int) []bool {
	all := make([]bool, n)
	for i := range all {
		all[i] = true
	}
	return all
}

// publishArgs are those of the statement publish for messages that are there.
func publishArgs(n int, queue string) []any {
	items := make([]*sqlstore.Item, n)
	for i := range items {
		m := redrive.Message{Queue: queue, ID: fmt.Sprintf("w%d", i+1)}
		items[i] = sqlstore.NewItem(&m, nil, new(error))
		items[i].Made = true
	}
	return groupArgs(items)
}

// The statements of the hot path stay with their indexes, however large the tables are.
func TestPlansStayWithTheIndexes(t *testing.T) {
	s := open(t, func(s *Store) { // as behind a pooler, where the server may read whole tables
		s.adjust = func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe }
	})
	fillWaiting(t, s, "a", 50_000)
	fillDead(t, s, "a", 100_000)
	_, err := s.pool.Exec(t.Context(), s.sql.in(`INSERT INTO redrive.remembered (queue, id, hash, outcome, reason, at, keep)
		SELECT 'other', 'r' || i, 1, 0, 0, now(), '1 hour' FROM generate_series(1, 50000) i`))
	noErr(t, err)
	_, err = s.pool.Exec(t.Context(), s.sql.in(`INSERT INTO redrive.text (queue, hash, error, answer) SELECT 'a', i, 'error ' || i, '' FROM generate_series(2, 20000) i`))
	noErr(t, err)
	for _, pass := range []struct{ fresh, generic bool }{{true, false}, {true, true}, {false, false}, {false, true}} { // before and after the server has looked at the tables
		if !pass.fresh {
			analyze(t, s)
		}
		args, whole := settleArgs(1000, "a"), orWhole(time.Time{})
		pick := []any{"a", 100, int64(time.Minute / time.Microsecond), int64(1), false, "x", []string(nil), []string(nil), []string(nil)}
		for name, args := range map[string][]any{
			"settle":        args,
			"settle_done":   args[:4],
			"extend":        append(args[:4:4], make([]bool, 1000), int64(1000)),
			"there":         args[:2],
			"pick_lane":     append(pick[:9:9], int64(0), orWhole(time.Time{})),
			"pick_isolated": append(pick[:9:9], orWhole(time.Time{})),
			"pick_expired":  pick,
			"peek":          {[]string{"a", "b"}, []string{"a", "b"}, []int64{0, 5}, []*time.Time{&whole, &whole}},
			"first_due":     {"a", int64(0), []string(nil), []string(nil)},
			"peek_all":      nil,
			"publish":       publishArgs(1000, "a"),
			"reserve":       {args[0], args[1], args[2], made(1000)},
			"refused":       args[:2],
			"lock_dead":     args[:2],
			"remember":      {args[0], args[1], args[2], args[2], make([]bool, 1000)},
		} {
			plan := explain(t, s, name, pass.generic, args...)
			for _, table := range []string{"message", "dead", "remembered", "text"} {
				byName := name == "settle" || name == "settle_done" || name == "extend" || name == "there" || name == "lock_dead"
				if strings.Contains(plan, "Seq Scan on "+table) || byName && strings.Contains(plan, "using "+table+"_due") {
					t.Errorf("%s reads more than its items of %s (%+v):\n%s", name, table, pass, plan)
				}
			}
			if strings.Contains(plan, "Rows Removed by Join Filter") {
				t.Errorf("%s compares every item with every other (%+v):\n%s", name, pass, plan)
			}
		}
	}
}

// A claim delivers no more than it was asked for, whatever the plan is.
func TestClaimNeverExceedsItsLimit(t *testing.T) {
	for _, off := range [][]string{{"hashjoin", "mergejoin", "material"}, {"nestloop", "mergejoin"}, {"nestloop", "hashjoin"}, {"indexscan", "bitmapscan", "indexonlyscan"}} {
		s := open(t, func(s *Store) {
			s.adjust = func(cfg *pgxpool.Config) {
				for _, name := range off {
					cfg.ConnConfig.RuntimeParams["enable_"+name] = "off"
				}
			}
		})
		fillWaiting(t, s, "a", 1000)
		for _, max := range []int{1, 7} {
			got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: max, Lease: time.Minute, Instance: "x"})
			noErr(t, err)
			var leased int
			noErr(t, s.pool.QueryRow(t.Context(), s.sql.in("SELECT count(*) FROM redrive.message WHERE class = 5")).Scan(&leased))
			if len(got) != max || leased != map[int]int{1: 1, 7: 8}[max] {
				t.Errorf("without %v: claimed %d of %d, %d are leased", off, len(got), max, leased)
			}
		}
	}
}
