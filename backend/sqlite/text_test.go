package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// putSaying puts dead letters whose failures say what text says of their number.
func putSaying(t testing.TB, s *Store, queue string, died time.Time, n int, text func(int) string) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		list := make([]redrive.Entry, min(n-from, 1000))
		for i := range list {
			list[i] = redrive.Entry{Message: message(queue, "x"), State: redrive.StateDead, Reason: redrive.ReasonExhausted, DiedAt: died,
				History: redrive.History{Count: 1, First: &redrive.Failure{Message: text(from + i), Signature: "s"}}}
		}
		errs, err := s.Apply(t.Context(), driver.Batch{Put: list})
		noErr(t, append(errs, err)...)
	}
}

func same(text string) func(int) string { return func(int) string { return text } }

// What is found by text costs the same whatever the number of other dead letters, and an error that
// many share is stored once.
func TestTextsAreFoundByAnIndex(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	putSaying(t, s, "q", c.now(), 7, same("no stock of 4711"))
	putSaying(t, s, "q", c.now(), 5, same("no stock of 4712"))
	type answer struct {
		n, examined int
		index       bool
	}
	look := func(dead int64) map[string]int64 {
		n := make(map[string]int64)
		for text, want := range map[string]answer{"4711": {7, 7, true}, "no stock": {12, 12, true}, "nowhere": {0, 0, true}} {
			q := redrive.Query{State: redrive.StateDead, Text: text}
			n[text] = steps(t, s, func() {
				page, err := s.Find(t.Context(), q)
				noErr(t, err)
				equal(t, answer{len(page.Entries), page.Examined, page.Index}, want)
				equal(t, page.Complete, true)
			})
			n["count "+text] = steps(t, s, func() {
				got, err := s.Count(t.Context(), q)
				noErr(t, err)
				equal(t, got, driver.Count{N: int64(want.n), Complete: true, Examined: int64(want.n), Index: true})
			})
			n["causes "+text] = steps(t, s, func() {
				list, complete, err := s.Causes(t.Context(), q)
				noErr(t, err)
				equal(t, []any{len(list), complete}, []any{min(want.n, 1), true})
			})
		}
		n["page of many"] = steps(t, s, func() {
			page, err := s.Find(t.Context(), redrive.Query{Queue: "q", State: redrive.StateDead, Text: "refused", Limit: 10})
			noErr(t, err)
			equal(t, []any{len(page.Entries), page.Examined, page.Index, page.Next != ""}, []any{10, 10, true, true})
		})
		got, err := s.Count(t.Context(), redrive.Query{State: redrive.StateDead, Text: "refused"})
		noErr(t, err)
		equal(t, got.N, dead)
		return n
	}
	putSaying(t, s, "q", c.now().Add(-time.Hour), manyDead/10, same("refused"))
	few := look(manyDead / 10)
	putSaying(t, s, "q", c.now().Add(-time.Hour), manyDead-manyDead/10, same("refused"))
	if many := look(manyDead); fmt.Sprint(few) != fmt.Sprint(many) {
		t.Errorf("steps with %d dead letters: %v\nwith %d: %v", manyDead/10, few, manyDead, many)
	}
	texts, err := s.w.value("SELECT count(*) FROM text")
	noErr(t, err)
	equal(t, texts, 3)
	verify(t, s)
}

// Texts beyond the most that a queue has in its index are looked at one by one, which the page says;
// when others have gone there is room for new ones.
func TestTooManyTextsAreScanned(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now), func(s *Store) { s.maxTexts = 3 })
	putSaying(t, s, "q", c.now(), 5, func(i int) string { return fmt.Sprint("order ", i) })
	find := func(text string, n int, index bool) {
		t.Helper()
		q := redrive.Query{State: redrive.StateDead, Text: text}
		page, err := s.Find(t.Context(), q)
		noErr(t, err)
		count, err := s.Count(t.Context(), q)
		noErr(t, err)
		equal(t, []any{len(page.Entries), page.Index, count.N, count.Complete, count.Index}, []any{n, index, int64(n), true, index})
	}
	find("order", 5, false)
	find("order 1", 1, false)
	find("order 4", 1, false)
	drop := func() {
		_, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{State: redrive.StateDead}}, driver.Change{Action: driver.ActDrop}, 10)
		noErr(t, err)
		verify(t, s)
	}
	drop()
	putSaying(t, s, "q", c.now(), 3, func(i int) string { return fmt.Sprint("other ", i) })
	find("other", 3, true)
	find("order", 0, true)
	drop()
	putSaying(t, s, "q", c.now(), mostLists+1, same("unlike"))
	s.maxTexts = driver.MaxTexts
	putSaying(t, s, "q", c.now(), mostLists+1, func(i int) string { return fmt.Sprint("like ", i) })
	page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead, Text: "like"})
	noErr(t, err)
	equal(t, []any{len(page.Entries), page.Index}, []any{100, false}) // most of what is dead
	verify(t, s)
}

// What a mask names when its message dies is in no index.
func TestWhatIsMaskedIsNotIndexed(t *testing.T) {
	s := open(t, t.TempDir())
	s.SetMasks(driver.Masks{Text: func(queue, text string) string {
		if queue == "cards" && text == "card 4111" {
			return "card ***"
		}
		return text
	}})
	for _, queue := range []string{"cards", "open"} {
		putSaying(t, s, queue, time.Time{}, 2, func(i int) string { return []string{"card 4111", "timeout"}[i] })
	}
	noErr(t, s.do(t.Context(), 1, func(tx *tx) error {
		texts, err := tx.read("SELECT count(*) FROM text WHERE error = 'card 4111'").one()
		equal(t, texts, 1)
		return err
	}))
	for _, c := range []struct {
		queue, text string
		shown       bool
		n           int
		index       bool
	}{
		{"cards", "4111", false, 1, false}, {"cards", "4111", true, 0, false}, {"cards", "***", true, 1, false},
		{"cards", "timeout", true, 1, false}, {"open", "4111", true, 1, true}, {"open", "timeout", false, 1, true},
	} {
		page, err := s.Find(t.Context(), redrive.Query{Queue: c.queue, State: redrive.StateDead, Text: c.text, Shown: c.shown})
		noErr(t, err)
		equal(t, []any{c, len(page.Entries), page.Index}, []any{c, c.n, c.index})
	}
	verify(t, s)
}
