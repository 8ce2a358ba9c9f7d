package backendtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Searches by text.
var searchCases = []testCase{
	{name: "SearchFollowsEverything", run: searchFollows},
	{name: "SearchIsLiteral", run: searchLiteral},
	{name: "SearchOfWhatIsMaskedLater", run: searchMasked, needs: []need{texts, masked}},
}

// texts is the need of a store with an index of texts.
func texts(c *C) string { return missing(!c.caps.Texts, "an index of texts") }

// searched compares what is found by text with a look at each dead letter. masks are those of the store.
func (c *C) searched(after string, masks *driver.Masks, needles []string) {
	c.Helper()
	all := c.find(redrive.Query{State: redrive.StateDead, Bodies: true, Limit: redrive.MaxPage})
	views := []redrive.View{redrive.ViewAll}
	if c.caps.Texts {
		views = append(views, redrive.ViewShown, redrive.ViewErrors)
	}
	for _, needle := range needles {
		for _, view := range views {
			q := redrive.Query{State: redrive.StateDead, Text: needle, View: view, Limit: 3}
			var want []string
			var g driver.Grouping
			for i := range all {
				if masks.HasText(&q, all[i].Queue, all[i].History.Latest()) {
					want = append(want, all[i].Ref().String())
					g.Add(&all[i])
				}
			}
			var got []string
			for _, e := range c.find(q) {
				got = append(got, e.Ref().String())
			}
			if !slices.Equal(got, want) {
				c.Fatalf("after %s: %q in view %d is found in %v, want %v", after, needle, view, got, want)
			}
			c.count(after, q, int64(len(want)))
			q.Limit = redrive.MaxPage
			causes, complete, err := c.store.Causes(c.ctx, q)
			c.noError(err, "causes")
			if some, _ := g.Causes(redrive.MaxPage); len(causes) != len(some) || !complete {
				c.Fatalf("after %s: %q in view %d has the causes %+v, want %+v", after, needle, view, causes, some)
			}
		}
	}
}

func searchFollows(c *C) {
	m := newChanger(c)
	for i := range 60 {
		what := m.change()
		c.searched(fmt.Sprintf("step %d, %s", i, what), nil, []string{"one", "t", "no Stock", "nowhere"})
	}
}

// searchLiteral looks for texts that a pattern or a collation would take for others.
func searchLiteral(c *C) {
	said := []string{"100% _of_ it", "100 percent", "No stock", "no stock", `a "quoted\" <b> & text`, "ünïcode", "unicode", "line\nline", "tab\there"}
	for i, text := range said {
		c.publish(redrive.Message{ID: fmt.Sprintf("m%d", i), Body: []byte("body: " + text)})
		d := c.one(c.ask(1))
		s := deadly(d, redrive.ReasonPermanent)
		if s.Failure = failure(1, text); i%2 == 1 {
			s.Failure.Message, s.Failure.Details = "refused", map[string]string{driver.DetailAnswer: text}
		}
		c.noError(c.settle(s), "dead")
	}
	c.searched("all died", nil, append(said, "%", "_", "stock", "NO STOCK", "\\", `"quoted`, "<b>", "ü", "u", "e\nl", "refused"))
	for i, text := range said {
		want := []string{}
		for j := range said {
			if strings.Contains("body: "+said[j], text) {
				want = append(want, fmt.Sprintf("m%d", j))
			}
		}
		if got := entryIDs(c.find(redrive.Query{Queue: c.q, State: redrive.StateDead, Body: text})); !slices.Equal(got, want) {
			c.Errorf("the body of %d is found in %v, want %v", i, got, want)
		}
	}
	if got := c.find(redrive.Query{Queue: c.q, State: redrive.StateDead, Text: "body"}); len(got) != 0 {
		c.Errorf("a text is found in the bodies of %v", entryIDs(got))
	}
}

// searchMasked has masks that are switched on and off while there are dead letters.
func searchMasked(c *C) {
	of, _ := driver.As[driver.Masked](c.sink)
	var on atomic.Bool
	hide := func(what string) func(string, string) string {
		return func(queue, text string) string {
			if on.Load() && queue == someQueues[0] {
				return strings.ReplaceAll(text, what, "***")
			}
			return text
		}
	}
	masks := driver.Masks{Text: hide("two"), Answer: hide("no Stock")}
	of.SetMasks(masks)
	m := newChanger(c)
	for i := range 60 {
		on.Store(i/20%2 == 1)
		what := m.change()
		c.searched(fmt.Sprintf("step %d, %s, masks %t", i, what, on.Load()), &masks, []string{"one", "two", "no Stock", "***"})
	}
}
