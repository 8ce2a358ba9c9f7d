package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

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

// A page by text reads the bodies of what stands on it, and not of all that it looks at.
func TestAPageByTextReadsItsBodiesOnly(t *testing.T) {
	asked := make(map[string]int)
	var mu sync.Mutex
	s := open(t, WithTrace(func(statement string, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		asked[statement]++
	}))
	var put []redrive.Entry
	for i := range 300 {
		f := &redrive.Failure{Message: "no stock"}
		put = append(put, redrive.Entry{Message: redrive.Message{Queue: "a", ID: fmt.Sprintf("m%03d", i), Body: fmt.Appendf(nil, "body %d", i)},
			State: redrive.StateDead, Reason: redrive.ReasonManual, History: redrive.History{Count: 1, First: f}})
	}
	_, err := s.Apply(t.Context(), driver.Batch{Put: put})
	noErr(t, err)
	q, seen := redrive.Query{State: redrive.StateDead, Text: "stock", Bodies: true, Limit: 70}, 0
	for {
		page, err := s.Find(t.Context(), q)
		noErr(t, err)
		for i := range page.Entries {
			e := &page.Entries[i]
			if want := fmt.Sprintf("body %s", strings.TrimLeft(e.ID[1:3], "0")+e.ID[3:]); string(e.Body) != want || e.History.First.Message != "no stock" || e.Checksum == nil {
				t.Errorf("%s: %s", e.ID, e.Body)
			}
		}
		seen += len(page.Entries)
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	mu.Lock()
	if seen != 300 || asked["find_texts"] != 5 || asked["get_messages"] != 5 || asked["find_texts_whole"] != 0 {
		t.Errorf("%d found with %v", seen, asked)
	}
	mu.Unlock()
	page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: "stock", Body: "body 29", Limit: 10})
	noErr(t, err)
	if len(page.Entries) != 10 || page.Next == "" {
		t.Errorf("%d found, next %q", len(page.Entries), page.Next)
	}
}

// A text that is there already needs no room: it is used also by a process that starts when there is none.
func TestTextsThatAreThereNeedNoRoom(t *testing.T) {
	s := open(t)
	die := func(s *Store, id, text string) {
		t.Helper()
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: id}})))
		for _, d := range claim(t, s, "a") {
			dead := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual, Failure: &redrive.Failure{Message: text}}
			noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{dead})))
		}
	}
	find := func(text string, want int, index bool) {
		t.Helper()
		page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: text})
		noErr(t, err)
		if len(page.Entries) != want || page.Index != index {
			t.Errorf("%s: %d found, by an index %t; want %d, %t", text, len(page.Entries), page.Index, want, index)
		}
	}
	s.base.Texts.Most = 3
	die(s, "m1", "one")
	die(s, "m2", "two")
	again := connect(t, s)
	again.base.Texts.Most = 3
	die(again, "m3", "one") // these are there, and count not twice
	die(again, "m4", "two")
	die(again, "m5", "three")
	third := connect(t, s)
	third.base.Texts.Most = 3
	die(third, "m6", "three")
	find("o", 4, true)
	find("three", 2, true)
	die(third, "m7", "four")
	find("four", 1, false)
	var n int
	noErr(t, s.pool.QueryRow(t.Context(), s.sql.in("SELECT count(*) FROM redrive.text")).Scan(&n))
	if n != 3 {
		t.Errorf("%d texts, want 3", n)
	}
}
