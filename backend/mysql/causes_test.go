package mysql

import (
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/sqlstore"
)

// countDead writes the counters of dead letters that were stored beside them.
func countDead(t testing.TB, s *Store) {
	t.Helper()
	serve(t, s.sql.in(`INSERT INTO redrive_cause (queue, reason, signature, dead, series)
		SELECT queue, reason, signature, COUNT(*), 0 FROM redrive_dead GROUP BY queue, reason, signature`))
}

// sorted is how many rows a sort may read again.
const sorted = 20

// examined is how many rows the server reads for statements that return rows.
func examined(t *testing.T, s *Store, steps ...step) (n int64) {
	t.Helper()
	db := dial(t, "interpolateParams=true")
	db.SetMaxOpenConns(1)
	for _, st := range steps {
		found := 0
		func() {
			rows, err := db.QueryContext(t.Context(), st.sql, st.args...)
			noErr(t, err)
			defer func() { noErr(t, rows.Close()) }()
			for rows.Next() {
				found++
			}
			noErr(t, rows.Err())
		}()
		if found == 0 {
			t.Errorf("%s returns nothing", firstLine(st.sql))
		}
	}
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	noErr(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var reads int64
		noErr(t, rows.Scan(&name, &reads))
		n += reads
	}
	noErr(t, rows.Err())
	return n
}

// Causes and their counts cost the same however many dead letters there are, and lists of
// what was edited, or redriven by a plan, go by their index.
func TestCausesAreNotScanned(t *testing.T) {
	var small map[string]int64
	for _, n := range []int{10_000, 100_000} {
		s := open(t)
		fillTables(t, s, 1, n)
		countDead(t, s)
		var last int64
		noErr(t, dial(t).QueryRowContext(t.Context(), s.sql.in("SELECT MAX(died) FROM redrive_dead")).Scan(&last))
		all, a, one := redrive.Query{}, redrive.Query{Queue: "a"}, redrive.Query{Queue: "a", Reason: 2, Signature: "s1"}
		got := make(map[string]int64)
		for name, q := range map[string]*redrive.Query{"all": &all, "a queue": &a, "a cause": &one} {
			w := which(q)
			twice := append(append([]any{}, w.args...), w.args...)
			got["causes of "+name] = examined(t, s, step{sql: s.sql.with("counted_causes", ":which", w.sql(), ":first", "n DESC,"), args: append(twice, 200)})
			got["count of "+name] = examined(t, s, step{sql: s.sql.with("count_dead", ":which", w.sql()), args: twice})
			for _, index := range []string{"dead_died", "dead_cause"} {
				if q != &all && (index == "dead_died" || q == &one) {
					late := step{sql: s.sql.with("count_late", ":which", w.sql(), ":index", index), args: append(w.args, last-20)}
					got["late ones of "+name+" by "+index] = examined(t, s, late)
				}
			}
		}
		cause := causeArgs(&sqlstore.Cause{Queue: "a", Reason: 2, Signature: "s1"})
		got["first of a cause"] = examined(t, s, step{sql: s.sql.Get("cause_first"), args: cause})
		got["last of a cause"] = examined(t, s, step{sql: s.sql.Get("cause_last"), args: cause})
		if small == nil {
			small = got
		}
		for name, rows := range got {
			if t.Logf("%s: %d rows with %d dead letters", name, rows, n); rows > small[name]+sorted {
				t.Errorf("%s: %d rows with %d dead letters, %d with a tenth of them", name, rows, n, small[name])
			}
		}
		for name, q := range map[string]redrive.Query{"find_plan": {Plan: "p"}, "find_edited": {Edited: true}} {
			f := finder{&sqlstore.Finder{Query: &q, At: sqlstore.PageCursor{Queue: "a", Dead: true}}, s}
			found, where := f.statement()
			keys, _ := plan(t, s, s.sql.with(found, ":where", where.sql(), ":parts", f.parts()), append(where.args, 10)...)
			if found != name || len(keys) != 1 || !strings.HasSuffix(keys[0], strings.Replace(name, "find", "dead", 1)) {
				t.Errorf("%s: %s goes by %q", name, found, keys)
			}
		}
	}
}

// A cause of which no dead letter is left goes when the buckets of its deaths have gone.
func TestCausesGoWithTheirBuckets(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "gone"}, {Queue: "a", ID: "left"}})))
	for _, d := range claim(t, s, "a") {
		dead := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual, Failure: &redrive.Failure{Signature: d.ID}}
		noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{dead})))
	}
	_, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{{Queue: "a", ID: "gone"}}}, driver.Change{Action: driver.ActDrop}, 1)
	noErr(t, err)
	for _, want := range []int{2, 1} {
		_, err := s.Trim(t.Context(), driver.Retention{}, 10)
		noErr(t, err)
		var causes, series int
		noErr(t, dial(t).QueryRowContext(t.Context(), s.sql.in("SELECT COUNT(*), SUM(series) FROM redrive_cause")).Scan(&causes, &series))
		if causes != want || series != map[int]int{2: 2, 1: 0}[want] {
			t.Errorf("%d causes, %d with a series; want %d", causes, series, want)
		}
		serve(t, s.sql.in("UPDATE redrive_bucket SET start = start - 40 * 86400000000"))
	}
	faulttest.Audited(t, s)
}

// Verify names the causes whose counters are wrong.
func TestVerifyComparesCauses(t *testing.T) {
	s := open(t)
	fillTables(t, s, 1, 21)
	countDead(t, s)
	serve(t, s.sql.in("UPDATE redrive_cause SET dead = dead + 1 WHERE signature = 's5'"))
	audits, err := s.Verify(t.Context(), "a")
	noErr(t, err)
	if found := strings.Join(audits[0].Problems, "\n"); !strings.Contains(found, "s5: 2 counted, 1 found") || strings.Contains(found, "s4") {
		t.Error(found)
	}
}
