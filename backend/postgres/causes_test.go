package postgres

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/internal/faulttest"
)

// countDead writes the counters of dead letters that were stored beside them.
func countDead(t testing.TB, s *Store) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), s.sql.in(`INSERT INTO redrive.cause (queue, reason, signature, dead, series)
		SELECT queue, reason, signature, count(*), false FROM redrive.dead GROUP BY queue, reason, signature`))
	noErr(t, err)
}

var (
	scanned = regexp.MustCompile(`Scan .*on (?:dead|cause).*\(actual rows=([\d.]+) loops=(\d+)\)`)
	passed  = regexp.MustCompile(`Rows Removed by \w+(?: \w+)*: (\d+)`)
)

// examined is how many rows of dead letters and counters a statement reads.
func examined(t *testing.T, s *Store, name string, args ...any) (n float64) {
	t.Helper()
	plan := explain(t, s, name, true, args...)
	number := func(text string) float64 {
		f, err := strconv.ParseFloat(text, 64)
		noErr(t, err)
		return f
	}
	found := scanned.FindAllStringSubmatch(plan, -1)
	if len(found) == 0 {
		t.Fatalf("%s reads nothing:\n%s", name, plan)
	}
	for _, m := range found {
		n += number(m[1]) * number(m[2])
	}
	for _, m := range passed.FindAllStringSubmatch(plan, -1) {
		n += number(m[1])
	}
	return n
}

// Causes and their counts cost the same however many dead letters there are, and lists of
// what was edited, or redriven by a plan, go by their index.
func TestCausesAreNotScanned(t *testing.T) {
	var small map[string]float64
	for _, n := range []int{10_000, deadtest.ManyDead(t, 100_000)} {
		s := open(t)
		fillDead(t, s, "a", n)
		countDead(t, s)
		for _, sql := range []string{"UPDATE redrive.dead SET text = 1", "UPDATE redrive.dead SET text = 2 WHERE id IN (SELECT id FROM redrive.dead ORDER BY died, id LIMIT 12)"} {
			_, err := s.pool.Exec(t.Context(), s.sql.in(sql))
			noErr(t, err)
		}
		_, err := s.pool.Exec(t.Context(), "VACUUM "+s.sql.in("redrive.dead"))
		noErr(t, err)
		analyze(t, s)
		got := make(map[string]float64)
		a, one, sig := "a", "2", "sig1"
		for _, q := range []struct {
			name  string
			which []any
		}{{"all", []any{nil, nil, nil}}, {"of a queue", []any{a, nil, nil}}, {"of a cause", []any{a, one, sig}}} {
			got["causes "+q.name] = examined(t, s, "counted_causes", append(q.which, 200)...)
			got["count "+q.name] = examined(t, s, "count_dead", append(q.which, nil)...)
		}
		var last time.Time
		noErr(t, s.pool.QueryRow(t.Context(), s.sql.in("SELECT max(died) FROM redrive.dead")).Scan(&last))
		got["count of a queue with a cutoff"] = examined(t, s, "count_dead", a, nil, nil, last.Add(-20*time.Millisecond))
		got["count of a cause with a cutoff"] = examined(t, s, "count_cause", a, one, sig, last.Add(-20*time.Millisecond))
		got["a page by text"] = examined(t, s, "find_texts", a, time.Time{}, "", nil, nil, 101, []int64{2, 3})
		got["a page of many by text"] = examined(t, s, "find_texts", a, time.Time{}, "", nil, nil, 11, []int64{1, 2})
		got["count by text"] = examined(t, s, "count_texts", a, nil, nil, []int64{2, 3})
		began := time.Now()
		_, err = s.pool.Exec(t.Context(), s.sql.in("INSERT INTO redrive.text (queue, hash, error, answer) SELECT 'a', i, 'no stock of item ' || i, '' FROM generate_series(1, 2000) i"))
		noErr(t, err)
		page, err := s.Find(t.Context(), redrive.Query{Queue: a, State: redrive.StateDead, Text: "of item 2"})
		noErr(t, err)
		if t.Logf("a page by text of %d: %s", n, time.Since(began)); len(page.Entries) != 12 || page.Examined != 12 || !page.Index {
			t.Errorf("%d found, %d examined", len(page.Entries), page.Examined)
		}
		if small == nil {
			small = got
		}
		for name, rows := range got {
			if t.Logf("%s: %v rows with %d dead letters", name, rows, n); rows != small[name] {
				t.Errorf("%s: %v rows with %d dead letters, %v with a tenth of them", name, rows, n, small[name])
			}
		}
		list := []any{"a", "", redrive.Examined, 10, nil, nil, nil, "p", nil, nil, nil, nil, nil, nil, true, time.Time{}, nil, nil, nil}
		for name, index := range map[string]string{"find_plan": "dead_plan", "find_edited": "dead_edited"} {
			if plan := explain(t, s, name, true, list...); !strings.Contains(plan, index) {
				t.Errorf("%s does not go by its index:\n%s", name, plan)
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
		noErr(t, s.pool.QueryRow(t.Context(), s.sql.in("SELECT count(*), count(*) FILTER (WHERE series) FROM redrive.cause")).Scan(&causes, &series))
		if causes != want || series != map[int]int{2: 2, 1: 0}[want] {
			t.Errorf("%d causes, %d with a series; want %d", causes, series, want)
		}
		_, err = s.pool.Exec(t.Context(), s.sql.in("UPDATE redrive.bucket SET start = start - interval '40 days'"))
		noErr(t, err)
	}
	faulttest.Audited(t, s)
}

// Verify names the causes whose counters are wrong.
func TestVerifyComparesCauses(t *testing.T) {
	s := open(t)
	fillDead(t, s, "a", 50)
	countDead(t, s)
	_, err := s.pool.Exec(t.Context(), s.sql.in("UPDATE redrive.cause SET dead = dead + 1 WHERE signature = 'sig7'"))
	noErr(t, err)
	audits, err := s.Verify(t.Context(), "a")
	noErr(t, err)
	if found := strings.Join(audits[0].Problems, "\n"); !strings.Contains(found, "sig7: 2 counted, 1 found") || strings.Contains(found, "sig8") {
		t.Error(found)
	}
}
