package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
)

// The fixture: causes of every dead letter, and texts of all but the rare ones.
const (
	proofCauses = 50
	proofTexts  = 2000
	proofRare   = 12
)

// writeDead writes n dead letters into a queue by SQL, as deaths would: the first died a day ago, and
// the next each a microsecond later.
func writeDead(t *testing.T, s *Store, queue string, n int64) {
	t.Helper()
	const chunk = 50_000
	began := s.now() - int64(24*time.Hour)
	for from := int64(0); from < n; from += chunk {
		noErr(t, s.do(t.Context(), 1, func(tx *tx) error {
			q, err := tx.queue(queue)
			if err != nil {
				return err
			}
			to := min(from+chunk, n)
			texts := int64(0)
			if from == 0 {
				texts = proofTexts + 1
				err = tx.write(`WITH RECURSIVE i (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM i WHERE i < ?)
					INSERT INTO text (text, queue, hash, error, answer) SELECT i + 1, ?, i, iif(i = 0, 'a rare one', 'no stock of item ' || i), '{"error":"no stock"}' FROM i`).int(proofTexts).int(q.id).run()
			}
			numbers := `WITH RECURSIVE i (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM i WHERE i < ?) `
			for _, sql := range []string{
				numbers + `INSERT INTO message (seq, queue, id, published, generation, redrives, body) SELECT i + 1, ?, 'd' || i, 1, 0, 0, CAST('{"n":' || i || '}' AS BLOB) FROM i`,
				numbers + `INSERT INTO failure (slot, json) SELECT 2 * (i + 1), CAST('{"message":"' || iif(i < 12, 'a rare one', 'no stock of item ' || (1 + i % 2000)) || '"}' AS BLOB) FROM i WHERE ?`,
				numbers + `INSERT INTO dead (seq, died, due, reason, signature, lane, attempts, failures, earlier, crashes, flags, token, turn, kind, text, queue)
					SELECT i + 1, ` + fmt.Sprint(began) + ` + i * 1000, 0, 1, 'sig' || (i % 50), 0, 1, 1, 0, 0, 8, 0, 0, NULL, iif(i < 12, 1, 2 + i % 2000), ? FROM i`,
				numbers + `INSERT INTO cause (queue, reason, signature, dead) SELECT q, 1, signature, n FROM (SELECT 'sig' || (i % 50) AS signature, count(*) AS n FROM i GROUP BY 1), (SELECT ? AS q) WHERE true
					ON CONFLICT (queue, reason, signature) DO UPDATE SET dead = dead + excluded.dead`,
			} {
				if err == nil {
					err = tx.write(sql).int(from).int(to - 1).int(q.id).run()
				}
			}
			tx.count(q, countImported, to-from)
			tx.count(q, deadCounter(redrive.ReasonExhausted), to-from)
			tx.count(q, countTexts, texts)
			return err
		}))
	}
}

// What a person asks at three in the morning reads as many rows of 10,000 dead letters as of millions.
func TestTheCostOfManyDeadLetters(t *testing.T) {
	var few map[string]int64
	for _, n := range []int64{10_000, int64(deadtest.ManyDead(t, 50_000))} {
		s := open(t, t.TempDir())
		began := time.Now()
		writeDead(t, s, "q", n)
		t.Logf("%d dead letters written in %s", n, time.Since(began).Round(time.Millisecond))
		cost := make(map[string]int64)
		ask := func(what string, f func()) {
			cost[what] = steps(t, s, f)
			began := time.Now()
			f()
			t.Logf("%s of %d: %s, %d steps", what, n, time.Since(began).Round(10*time.Microsecond), cost[what])
		}
		count := func(what string, want int64, q redrive.Query) {
			ask(what, func() {
				got, err := s.Count(t.Context(), q)
				noErr(t, err)
				equal(t, []any{got.N, got.Complete}, []any{want, true})
			})
		}
		ask("causes", func() {
			list, complete, err := s.Causes(t.Context(), redrive.Query{})
			noErr(t, err)
			equal(t, []any{len(list), complete, list[0].Count}, []any{proofCauses, true, n / proofCauses})
		})
		count("total", n, redrive.Query{State: redrive.StateDead})
		count("total of a cause", n/proofCauses, redrive.Query{Queue: "q", Reason: redrive.ReasonExhausted, Signature: "sig7"})
		count("total of a plan", n/proofCauses, redrive.Query{Queue: "q", State: redrive.StateDead, Signature: "sig7", Until: time.Now()})
		count("count by text", proofRare, redrive.Query{State: redrive.StateDead, Text: "rare"})
		count("count of what is nowhere", 0, redrive.Query{State: redrive.StateDead, Text: "nowhere"})
		for text, most := range map[string]int{"rare": proofRare, "of item 77": 100, "nowhere": 0} {
			ask("a page by text "+text, func() {
				page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: text})
				noErr(t, err)
				equal(t, []any{len(page.Entries) <= most, page.Index}, []any{true, true})
			})
		}
		if n == 10_000 { // 5 of each text: not the 100 of a page
			delete(cost, "a page by text of item 77")
			few = cost
		}
		for what, steps := range few {
			if cost[what] != steps {
				t.Errorf("%s: %d steps of %d dead letters, %d of 10,000", what, cost[what], n, steps)
			}
		}
		if n <= 100_000 {
			verify(t, s)
		}
		if n > 100_000 { // how long a scan of bodies takes
			began := time.Now()
			got := driver.Count{}
			for q := (redrive.Query{State: redrive.StateDead, Body: "nowhere", Limit: redrive.MaxPage}); ; {
				page, err := s.Find(t.Context(), q)
				noErr(t, err)
				if got.Examined += int64(page.Examined); page.Next == "" {
					break
				}
				q.After = page.Next
			}
			t.Logf("bodies: %d looked at, %.0f/s", got.Examined, float64(got.Examined)/time.Since(began).Seconds())
		}
	}
}
