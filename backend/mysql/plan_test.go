package mysql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// plan explains a statement: the index of each table that it reads, and whether it
// sorts.
func plan(t *testing.T, s *Store, sql string, args ...any) (keys []string, sorts bool) {
	t.Helper()
	explain := "EXPLAIN FORMAT=TRADITIONAL "
	if s.maria {
		explain = "EXPLAIN "
	}
	rows, err := dial(t, "interpolateParams=true").QueryContext(t.Context(), explain+sql, args...)
	noErr(t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	noErr(t, err)
	for rows.Next() {
		values := make([]*string, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		noErr(t, rows.Scan(dest...))
		line := make(map[string]string)
		for i, c := range columns {
			if values[i] != nil {
				line[c] = *values[i]
			}
		}
		if strings.HasPrefix(line["table"], s.sql.prefix) || line["table"] == "m" || line["table"] == "d" {
			keys = append(keys, line["type"]+" "+line["key"])
			sorts = sorts || strings.Contains(line["Extra"], "filesort") || strings.Contains(line["Extra"], "temporary")
		}
	}
	noErr(t, rows.Err())
	return keys, sorts
}

// The statements of the hot path go by their index, in its order, whatever the server's
// statistics say: those of an almost empty table, as they are when a queue fills up, too.
func TestHotStatementsGoByTheirIndex(t *testing.T) {
	for _, filled := range []int{1, 5000} {
		t.Run(fmt.Sprint(filled, " rows"), func(t *testing.T) {
			s := open(t)
			fillTables(t, s, filled, filled)
			a := []byte("a")
			for _, tc := range []struct {
				want string
				sql  string
				args []any
			}{
				{"range message_due", s.sql.with("pick", ":filter", ""), []any{a, 0, 0, 50}},
				{"range message_expires", s.sql.with("pick_expired", ":filter", ""), []any{a, 50}},
				{"range dead_due", s.sql.with("pick_dead", ":filter", ""), []any{a, 50}},
				{"range PRIMARY", s.sql.with("take", ":seqs", "1,2,3"), []any{1, 2, false, a}},
				{"range PRIMARY", s.sql.with("held", ":seqs", "1,2,3"), nil},
				{"eq_ref PRIMARY", s.sql.with("delete_messages", ":seqs", "1,2,3"), nil},
				{"eq_ref PRIMARY", s.sql.with("fold_drop", ":seqs", "1,2,3"), nil},
				{"range PRIMARY", s.sql.with("back", ":seqs", "1,2,3"), []any{true, 1, true, true, false, false}},
				{"range message_id", s.sql.with("lock_messages", ":ids", "?,?"), []any{a, []byte("w1"), []byte("w2")}},
				{"range PRIMARY", s.sql.with("lock_dead", ":ids", "?,?"), []any{a, []byte("d1"), []byte("d2")}},
				{"const PRIMARY", s.sql.Get("delete_dead"), []any{a, []byte("d1")}},
			} {
				keys, sorts := plan(t, s, tc.sql, tc.args...)
				if len(keys) != 1 || keys[0] != tc.want || sorts {
					t.Errorf("%s: %q, sorts: %t; want %s", firstLine(tc.sql), keys, sorts, tc.want)
				}
			}
		})
	}
}

// Looking where queues begin reads one entry of the index for each class, not all.
func TestPeekSkipsThroughTheIndex(t *testing.T) {
	s := open(t)
	fillTables(t, s, 20_000, 20_000)
	for range 3 {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "b"}})))
	}
	reads := func() (n int64) {
		t.Helper()
		db := dial(t, "interpolateParams=true")
		db.SetMaxOpenConns(1)
		for _, name := range []string{"peek", "peek_dead"} {
			_, err := db.ExecContext(t.Context(), s.sql.with(name, ":ids", "?,?"), []byte("a"), []byte("b")) // rows are of no interest
			noErr(t, err)
		}
		rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		noErr(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			var reads int64
			noErr(t, rows.Scan(&name, &reads))
			if name != "Handler_read_rnd_next" {
				n += reads
			}
		}
		noErr(t, rows.Err())
		return n
	}
	if n := reads(); n > 200 {
		t.Errorf("%d entries were read", n)
	} else {
		t.Logf("%d entries were read", n)
	}
}
