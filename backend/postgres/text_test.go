package postgres

import (
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// A text goes a day after it was last met, if no dead letter has it. A process that still takes it for
// there writes a dead letter that is looked at one by one, not one that a search misses.
func TestATextThatIsGoneIsNotMissed(t *testing.T) {
	s := open(t)
	die := func(id string) {
		t.Helper()
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: id}})))
		for _, d := range claim(t, s, "a") {
			dead := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual, Failure: &redrive.Failure{Message: "no stock"}}
			noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{dead})))
		}
	}
	find := func(want int, index bool) {
		t.Helper()
		page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: "stock"})
		noErr(t, err)
		if len(page.Entries) != want || page.Index != index {
			t.Errorf("%d found, by an index %t; want %d, %t", len(page.Entries), page.Index, want, index)
		}
	}
	trim := func(want int) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), s.sql.in("UPDATE redrive.text SET used = used - interval '2 days'"))
		noErr(t, err)
		_, err = s.Trim(t.Context(), driver.Retention{}, 10)
		noErr(t, err)
		var n int
		noErr(t, s.pool.QueryRow(t.Context(), s.sql.in("SELECT count(*) FROM redrive.text")).Scan(&n))
		if n != want {
			t.Errorf("%d texts, want %d", n, want)
		}
	}
	die("m1")
	die("m2")
	trim(1)
	find(2, true)
	_, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{State: redrive.StateDead}}, driver.Change{Action: driver.ActDrop}, 10)
	noErr(t, err)
	trim(0)
	find(0, true)
	die("m3")
	find(1, false)
}
