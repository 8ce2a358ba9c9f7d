package mysql

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/deadtest"
)

// readBy is how many rows the server reads for f. What the store does beside counts as well: the least
// of some tries is what is meant.
func readBy(t *testing.T, f func()) int64 {
	t.Helper()
	client := dial(t)
	read := func() (n int64) {
		rows, err := client.QueryContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Handler_read%'")
		noErr(t, err)
		defer func() { noErr(t, rows.Close()) }()
		for rows.Next() {
			var name string
			var reads int64
			noErr(t, rows.Scan(&name, &reads))
			n += reads
		}
		noErr(t, rows.Err())
		return n
	}
	least := int64(1 << 62)
	for range 5 {
		before := read()
		f()
		least = min(least, read()-before)
	}
	return least
}

// What a person asks at three in the morning is exact, and reads as many rows of 10,000 dead letters as of many more.
func TestTheCostOfManyDeadLetters(t *testing.T) {
	var few map[string]int64
	for _, n := range []int{10_000, deadtest.ManyDead(t, 50_000)} {
		s := open(t)
		began := time.Now()
		fillTables(t, s, 1, n)
		countDead(t, s)
		t.Logf("%d dead letters written in %s", n, time.Since(began).Round(time.Millisecond))
		cost := make(map[string]int64)
		ask := func(what string, f func()) {
			cost[what] = readBy(t, f)
			began := time.Now()
			f()
			t.Logf("%s of %d: %s, %d rows", what, n, time.Since(began).Round(10*time.Microsecond), cost[what])
		}
		count := func(what string, want int, q redrive.Query) {
			ask(what, func() {
				got, err := s.Count(t.Context(), q)
				noErr(t, err)
				if got.N != int64(want) || !got.Complete {
					t.Errorf("%s: %+v, want %d", what, got, want)
				}
			})
		}
		of := 0 // the cause has the rows of which the number is 1 (mod 3) and 2 (mod 7)
		for i := 1; i <= n; i++ {
			if i%3 == 1 && i%7 == 2 {
				of++
			}
		}
		ask("causes", func() {
			list, complete, err := s.Causes(t.Context(), redrive.Query{})
			noErr(t, err)
			all := int64(0)
			for i := range list {
				all += list[i].Count
			}
			if len(list) != 21 || !complete || all != int64(n) {
				t.Errorf("%d causes of %d, %v", len(list), all, complete)
			}
		})
		count("total", n, redrive.Query{State: redrive.StateDead})
		count("total of a cause", of, redrive.Query{Queue: "a", Reason: 2, Signature: "s2"})
		count("total of a plan", of, redrive.Query{Queue: "a", State: redrive.StateDead, Reason: 2, Signature: "s2", Until: time.Now()})
		ask("a page of a cause", func() {
			page, err := s.Find(t.Context(), redrive.Query{Queue: "a", Reason: 2, Signature: "s2"})
			noErr(t, err)
			if len(page.Entries) != redrive.DefaultPage || page.Next == "" {
				t.Errorf("%d entries, then %q", len(page.Entries), page.Next)
			}
		})
		page, err := s.Find(t.Context(), redrive.Query{Queue: "a", State: redrive.StateDead, Text: "nowhere"})
		noErr(t, err)
		if more := n > redrive.Examined; page.Complete == more || more && page.Examined != redrive.Examined { // there is no index
			t.Errorf("a search of texts: %d examined, complete %v", page.Examined, page.Complete)
		}
		if few == nil {
			few = cost
		}
		for what, rows := range few {
			if cost[what] > rows+sorted {
				t.Errorf("%s: %d rows of %d dead letters, %d of 10,000", what, cost[what], n, rows)
			}
		}
	}
}
