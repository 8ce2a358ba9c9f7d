package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Counters of causes, and deaths by time.
var causeCases = []testCase{
	{name: "CountersFollowEverything", run: countersFollow},
	{name: "AllCausesInPages", run: causesInPages},
	{name: "CountWithACutoff", run: countCutoff},
	{name: "CountOfWhatWaits", run: countWaiting},
	{name: "CountOfASlowFilter", run: countSlow},
	{name: "DeathsByTime", run: deathsByTime},
	{name: "DeathsAreNotUndone", run: deathsNotUndone},
	{name: "DeathsAreFolded", run: deathsFolded, needs: []need{advance}},
	{name: "DeathSeriesAreBounded", run: deathSeriesBounded},
	{name: "FilterByPlanAndEdit", run: filterPlanEdit},
}

// counted compares causes and counts with a scan of what is there.
func (c *C) counted(after string) {
	c.Helper()
	var g driver.Grouping
	all := c.find(redrive.Query{State: redrive.StateDead, Bodies: true, Limit: redrive.MaxPage})
	for i := range all {
		g.Add(&all[i])
	}
	want, _ := g.Causes(redrive.MaxPage)
	got, complete, err := c.store.Causes(c.ctx, redrive.Query{Limit: redrive.MaxPage})
	c.noError(err, "causes")
	if !complete || len(got) != len(want) {
		c.Fatalf("after %s: causes %+v, complete %t, want %+v", after, got, complete, want)
	}
	sums := map[redrive.Query]int64{{State: redrive.StateDead}: 0}
	for i := range want {
		a, b := got[i], want[i]
		ok := slices.ContainsFunc(all, func(e redrive.Entry) bool {
			return e.Ref() == a.Example && e.DiedAt.Equal(b.Last) && e.Queue == b.Queue && e.Reason == b.Reason
		})
		if a.Queue != b.Queue || a.Reason != b.Reason || a.Signature != b.Signature || a.Count != b.Count || !a.First.Equal(b.First) || !a.Last.Equal(b.Last) || !ok {
			c.Fatalf("after %s: cause %d is %+v, want %+v", after, i, a, b)
		}
		for j, q := range []redrive.Query{
			{State: redrive.StateDead}, {State: redrive.StateDead, Queue: b.Queue}, {State: redrive.StateDead, Reason: b.Reason}, {State: redrive.StateDead, Queue: b.Queue, Reason: b.Reason},
			{State: redrive.StateDead, Queue: b.Queue, Signature: b.Signature}, {State: redrive.StateDead, Queue: b.Queue, Reason: b.Reason, Signature: b.Signature},
		} {
			if j < 4 || b.Signature != "" {
				sums[q] += b.Count
			}
		}
	}
	for q, n := range sums {
		if c.count(after, q, n).Examined != 0 {
			c.Fatalf("after %s: the dead letters were looked at to count %+v", after, q)
		}
	}
}

// count checks how many match a query that counters answer.
func (c *C) count(after string, q redrive.Query, want int64) driver.Count {
	c.Helper()
	got, err := c.store.Count(c.ctx, q)
	c.noError(err, "count")
	if got.N != want || !got.Complete {
		c.Fatalf("after %s: %d of %+v, complete %t; want %d", after, got.N, q, got.Complete, want)
	}
	return got
}

// Reasons, texts of failures and queues that the random batches use.
var (
	someReasons = []redrive.Reason{redrive.ReasonPermanent, redrive.ReasonExhausted, redrive.ReasonManual}
	someTexts   = []string{"one", "two", "three"}
	someAnswers = []string{"", `{"error":"no Stock"}`, `100% "one"`}
	someQueues  = []string{"sms", "mail"}
)

// changer changes a store at random.
type changer struct {
	*C
	r    *rand.Rand
	made int
}

func newChanger(c *C) *changer { return &changer{C: c, r: rand.New(rand.NewPCG(7, 7))} }

// change does something, and says what.
func (m *changer) change() string {
	return pick(m, []func() string{m.publishes, m.dies, m.dies, m.dies, m.kills, m.puts, m.puts, m.redrives, m.redrives, m.ends, m.edits, m.trims, m.worksOnDead, m.worksOnDead})()
}

// failure is one of a few, with one of a few answers.
func (m *changer) failure() *redrive.Failure {
	f := failure(1, pick(m, someTexts))
	if answer := pick(m, someAnswers); answer != "" {
		f.Details[driver.DetailAnswer] = answer
	}
	return f
}

func countersFollow(c *C) {
	m := newChanger(c)
	for i := range 80 {
		what := m.change()
		c.counted(fmt.Sprintf("step %d, %s", i, what))
	}
	for { // and all of it can end
		got, err := c.store.Update(c.ctx, driver.Selection{Query: &redrive.Query{State: redrive.StateDead}}, driver.Change{Action: driver.ActDrop}, 100)
		c.noError(err, "drop")
		if len(got) == 0 {
			break
		}
	}
	c.counted("everything")
}

func pick[T any](m *changer, from []T) T { return from[m.r.IntN(len(from))] }

func (m *changer) publishes() string {
	for range 1 + m.r.IntN(3) {
		m.made++
		m.publish(redrive.Message{Queue: pick(m, someQueues), ID: fmt.Sprintf("m%d", m.made), Kind: "k", Body: []byte("b")})
	}
	return "publish"
}

func (m *changer) dies() string {
	m.publishes()
	r := m.ask(1 + m.r.IntN(3))
	r.Queue, r.Lane = pick(m, someQueues), redrive.Lane(m.r.IntN(driver.Lanes))
	var list []driver.Settlement
	for _, d := range m.claim(r) {
		s := settled(d, redrive.OutcomeDead)
		s.Reason = pick(m, someReasons)
		if m.r.IntN(5) > 0 {
			s.Failure = m.failure()
		}
		list = append(list, s)
	}
	if len(list) > 0 {
		m.noError(m.settle(list...), "dead")
	}
	return fmt.Sprintf("%d deaths", len(list))
}

func (m *changer) updates(q redrive.Query, ch driver.Change) string {
	n := 1 + m.r.IntN(3)
	_, err := m.store.Update(m.ctx, driver.Selection{Query: &q}, ch, n)
	m.noError(err, "%s", ch.Action)
	return fmt.Sprintf("%s of %d", ch.Action, n)
}

func (m *changer) kills() string {
	m.publishes()
	return m.updates(redrive.Query{Queue: pick(m, someQueues), State: redrive.StateWaiting}, driver.Change{Action: driver.ActKill, Reason: pick(m, someReasons), Note: pick(m, someTexts)})
}

func (m *changer) puts() string {
	n := 1 + m.r.IntN(4)
	put := make([]redrive.Entry, n)
	for i := range put {
		m.made++
		put[i] = redrive.Entry{Message: redrive.Message{Queue: pick(m, someQueues), ID: fmt.Sprintf("m%d", m.made), Body: []byte("b")}, State: redrive.StateDead, Reason: pick(m, someReasons)}
		if m.r.IntN(3) > 0 {
			put[i].DiedAt = m.now().Add(-time.Duration(m.r.IntN(100)) * time.Hour).Truncate(time.Millisecond)
		}
		put[i].History.Record(m.failure(), true)
	}
	_, err := m.store.Apply(m.ctx, driver.Batch{Put: put, Entered: driver.EnteredImported})
	m.noError(err, "put")
	return fmt.Sprintf("put of %d", n)
}

func (m *changer) redrives() string {
	ch := driver.Change{Action: driver.ActRedrive, Plan: "p", NewID: m.r.IntN(4) == 0}
	if m.r.IntN(3) == 0 {
		ch.To = pick(m, someQueues)
	}
	if m.r.IntN(3) == 0 {
		ch.Edit = &redrive.Edit{Body: []byte("mended")}
	}
	q := redrive.Query{State: redrive.StateDead, Queue: pick(m, someQueues)}
	if m.r.IntN(2) == 0 {
		q.Signature = "sig-" + pick(m, someTexts)
	}
	return m.updates(q, ch)
}

func (m *changer) ends() string {
	a := pick(m, []driver.Action{driver.ActDrop, driver.ActArchive})
	return m.updates(redrive.Query{State: redrive.StateDead, Reason: pick(m, someReasons)}, driver.Change{Action: a})
}

func (m *changer) edits() string {
	kind := pick(m, someTexts)
	return m.updates(redrive.Query{State: redrive.StateDead}, driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Kind: &kind}})
}

func (m *changer) trims() string {
	if n := m.countsOf(someQueues[0]).AllDead(); n > 1 {
		_, err := m.store.Trim(m.ctx, driver.Retention{Queue: someQueues[0], DeadKeep: n - 1, Archived: m.r.IntN(2) == 0}, 10)
		m.noError(err, "trim")
	}
	return "trim"
}

func (m *changer) worksOnDead() string {
	r := dead(m.ask(1 + m.r.IntN(3)))
	r.Queue = pick(m, someQueues)
	outcomes := []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeDrop, redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeDead}
	if m.caps.Repeats {
		outcomes = append(outcomes, redrive.OutcomeRepeat)
	}
	var chosen []string
	for _, d := range m.claim(r) {
		s := settled(d, pick(m, outcomes))
		switch s.Outcome {
		case redrive.OutcomeDrop, redrive.OutcomeDead:
			s.Reason = redrive.ReasonManual
		case redrive.OutcomeDone, redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeRepeat:
		}
		if (s.Outcome == redrive.OutcomeRetry || s.Outcome == redrive.OutcomeDead) && m.r.IntN(2) == 0 {
			s.Failure = m.failure() // of what worked on it: another cause
		}
		if (s.Outcome == redrive.OutcomeDead || s.Outcome == redrive.OutcomeRepeat) && m.r.IntN(2) == 0 {
			s.Edit = &redrive.Edit{Body: []byte("mended")}
		}
		chosen = append(chosen, s.Outcome.String())
		m.noError(m.settle(s), "settle a dead letter")
	}
	return "dead letters settled: " + strings.Join(chosen, ", ")
}

func countCutoff(c *C) {
	die := func(prefix, text string, n int) {
		for i := range n {
			c.publish(redrive.Message{ID: fmt.Sprintf("%s%d", prefix, i)})
		}
		for _, d := range c.get(n, c.ask(n)) {
			s := deadly(d, redrive.ReasonPermanent)
			s.Failure = failure(1, text)
			c.noError(c.settle(s), "dead")
		}
	}
	die("a", "one", 5)
	c.pass(c.tick)
	cutoff := c.now()
	c.pass(c.tick)
	die("b", "one", 3)
	die("c", "two", 2)
	old := redrive.Query{State: redrive.StateDead, Queue: c.q, Until: cutoff}
	one := old
	one.Reason, one.Signature = redrive.ReasonPermanent, "sig-one"
	c.count("deaths", old, 5)
	c.count("deaths", one, 5)
	c.redrive("a1")
	c.redrive("b1")
	c.count("redrives", old, 4)
	c.count("redrives", one, 4)
	put := redrive.Entry{Message: redrive.Message{Queue: c.q, ID: "put"}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: cutoff.Add(-time.Hour)}
	put.History.Record(failure(1, "one"), true)
	_, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{put}})
	c.noError(err, "put")
	c.count("a put", one, 5)
	c.count("a put", redrive.Query{State: redrive.StateDead, Until: cutoff}, 5)
	none := one
	none.Reason = redrive.ReasonManual
	c.count("a put", none, 0)
	c.count("a put", redrive.Query{State: redrive.StateDead, Queue: "nowhere", Until: cutoff}, 0)
}

func countWaiting(c *C) {
	c.publishN(7)
	c.publish(redrive.Message{Queue: "other", ID: "m"})
	c.get(2, c.ask(2))
	got := c.get(1, c.ask(1))
	c.noError(c.settle(deadly(got[0], redrive.ReasonPermanent)), "dead")
	for q, want := range map[redrive.Query]int64{
		{Queue: c.q, State: redrive.StateWaiting}: 4,
		{Queue: c.q, State: redrive.StateLeased}:  2,
		{Queue: c.q, State: redrive.StateDead}:    1,
		{Queue: c.q}:                              7,
		{State: redrive.StateWaiting}:             5,
		{State: redrive.StateBlocked}:             0,
		{Queue: "other"}:                          1,
		{Queue: c.q, Kind: "none"}:                0,
		{Queue: "nowhere"}:                        0,
		{Reason: redrive.ReasonPermanent}:         1,
	} {
		c.count("publishing", q, want)
	}
}

// countSlow counts by what no counter knows, from a place on.
func countSlow(c *C) {
	for i := range 30 {
		c.publish(redrive.Message{ID: fmt.Sprintf("m%d", i), Kind: []string{"a", "b", "c"}[i%3]})
	}
	c.kill(20, redrive.ReasonPermanent)
	c.count("deaths", redrive.Query{Queue: c.q, Kind: "a"}, 10)
	for kind, n := range map[string]int64{"a": 7, "b": 7, "c": 6} {
		if c.f.Partitions {
			break // others may have died
		}
		c.count("deaths", redrive.Query{Queue: c.q, State: redrive.StateDead, Kind: kind}, n)
	}
	page, err := c.store.Find(c.ctx, redrive.Query{Queue: c.q, Kind: "a", Limit: 4})
	c.noError(err, "find")
	if page.Examined < len(page.Entries) || page.Examined > 30 {
		c.Errorf("a page of %d examined %d", len(page.Entries), page.Examined)
	}
	got, err := c.store.Count(c.ctx, redrive.Query{Queue: c.q, Kind: "a", After: page.Next})
	c.noError(err, "count")
	if got.N != int64(10-len(page.Entries)) || !got.Complete {
		c.Errorf("%d after the first %d, complete %t", got.N, len(page.Entries), got.Complete)
	}
}

// deaths returns the deaths of a query as text, summed up by width.
func (c *C) deaths(q redrive.Query) map[time.Duration]int64 {
	c.Helper()
	all, err := c.store.Deaths(c.ctx, q)
	c.noError(err, "deaths")
	sums := make(map[time.Duration]int64)
	for _, d := range all {
		if len(d.Buckets) == 0 {
			c.Errorf("an empty series %+v", d)
		}
		for i, b := range d.Buckets {
			if b.Count <= 0 || b.Start.UnixNano()%int64(b.Width) != 0 || i > 0 && b.Start.Before(d.Buckets[i-1].Start) {
				c.Errorf("bucket %d of %s: %+v", i, d.Signature, d.Buckets)
			}
			sums[b.Width] += b.Count
		}
	}
	return sums
}

// deathsAre checks sums of deaths by width: of minutes, hours and days.
func (c *C) deathsAre(what string, q redrive.Query, minutes, hours, days int64) {
	c.Helper()
	got := c.deaths(q)
	for w, want := range map[time.Duration]int64{time.Minute: minutes, time.Hour: hours, 24 * time.Hour: days} {
		if got[w] != want {
			c.Errorf("%s: %d deaths in buckets of %s, want %d (all: %v)", what, got[w], w, want, got)
		}
		delete(got, w)
	}
	if len(got) > 0 {
		c.Errorf("%s: buckets of other widths: %v", what, got)
	}
}

func (c *C) putDied(id, text string, ago time.Duration) {
	c.Helper()
	put := redrive.Entry{Message: redrive.Message{Queue: c.q, ID: id}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: c.now().Add(-ago)}
	put.History.Record(failure(1, text), true)
	_, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{put}})
	c.noError(err, "put")
}

const day = 24 * time.Hour

func deathsByTime(c *C) {
	c.publish(redrive.Message{ID: "settled"}, redrive.Message{ID: "killed"})
	c.noError(c.settle(deadly(c.one(c.ask(1)), redrive.ReasonPermanent)), "dead")
	waiting := redrive.Query{Queue: c.q, State: redrive.StateWaiting}
	_, err := c.store.Update(c.ctx, driver.Selection{Query: &waiting}, driver.Change{Action: driver.ActKill}, 5)
	c.noError(err, "kill")
	all := redrive.Query{Queue: c.q}
	c.deathsAre("a settlement and a kill", all, 2, 0, 0)
	for i, ago := range []time.Duration{0, 20 * time.Minute, 2 * time.Hour, 50 * time.Hour, 5 * day, 20 * day, 40 * day, 400 * day} {
		c.putDied(fmt.Sprintf("put-%d", i), "put", ago)
	}
	c.deathsAre("all", all, 4, 2, 2)
	c.deathsAre("by signature", redrive.Query{Queue: c.q, Signature: "sig-put"}, 2, 2, 2)
	c.deathsAre("by reason", redrive.Query{Queue: c.q, Reason: redrive.ReasonManual}, 1, 0, 0)
	c.deathsAre("of any queue", redrive.Query{}, 4, 2, 2)
	c.deathsAre("of another", redrive.Query{Queue: "other"}, 0, 0, 0)
	c.deathsAre("since yesterday", redrive.Query{Since: c.now().Add(-30 * time.Hour)}, 4, 1, 0)
	list, err := c.store.Deaths(c.ctx, all)
	c.noError(err, "deaths")
	var causes []string
	for _, d := range list {
		if d.Queue != c.q {
			c.Errorf("of queue %q", d.Queue)
		}
		causes = append(causes, d.Reason.String()+" "+d.Signature)
	}
	if len(causes) != 3 || !slices.Equal(causes[:2], []string{"permanent sig-cannot-be-done", "permanent sig-put"}) || !strings.HasPrefix(causes[2], "manual ") {
		c.Errorf("series %q", causes)
	}
}

func deathsNotUndone(c *C) {
	c.publishN(6)
	c.kill(6, redrive.ReasonPermanent)
	all := redrive.Query{Queue: c.q}
	for _, id := range []string{"m0001", "m0002"} {
		c.redrive(id)
	}
	for id, a := range map[string]driver.Action{"m0003": driver.ActDrop, "m0004": driver.ActArchive} {
		c.noError(c.update(driver.Change{Action: a}, id)[0].Err, "%s", a)
	}
	c.noError(c.update(driver.Change{Action: driver.ActRedrive, To: "other"}, "m0005")[0].Err, "move")
	for _, d := range c.get(1, dead(c.ask(1))) {
		c.noError(c.settle(retry(d, 0)), "retry") // what works on it failed; it does not die again
	}
	c.deathsAre("nothing died since", all, 6, 0, 0)
	c.noError(c.settle(deadly(c.one(c.lane(1, redrive.LaneRedrive)), redrive.ReasonPermanent)), "dead")
	c.deathsAre("one died again", all, 7, 0, 0)
	c.counted("all that")
}

func deathsFolded(c *C) {
	trim := func() {
		c.Helper()
		for range 20 {
			_, err := c.store.Trim(c.ctx, driver.Retention{}, 100)
			c.noError(err, "trim")
		}
	}
	all := redrive.Query{Queue: c.q}
	for i := range 5 {
		c.putDied(fmt.Sprintf("m%d", i), "put", 0)
		c.pass(10 * time.Minute)
	}
	trim()
	c.deathsAre("within an hour", all, 5, 0, 0)
	c.pass(2 * time.Hour)
	c.putDied("later", "put", 0)
	trim()
	c.deathsAre("after two hours", all, 1, 5, 0)
	c.pass(4 * day)
	trim()
	c.deathsAre("after four days", all, 0, 0, 6)
	c.putDied("last", "another", 0)
	c.pass(31 * day)
	trim()
	c.deathsAre("after a month", all, 0, 0, 0)
	c.count("a month", redrive.Query{Queue: c.q, State: redrive.StateDead}, 7)
	c.counted("a month")
}

func deathSeriesBounded(c *C) {
	const n = driver.MaxDeathSeries + 20
	put := make([]redrive.Entry, n)
	for i := range put {
		put[i] = redrive.Entry{Message: redrive.Message{Queue: c.q, ID: fmt.Sprintf("m%d", i)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent}
		put[i].History.Record(&redrive.Failure{Message: "m", Signature: fmt.Sprintf("sig-%d", i)}, true)
	}
	for part := range slices.Chunk(put, c.caps.Most(500)) {
		_, err := c.store.Apply(c.ctx, driver.Batch{Put: part})
		c.noError(err, "put")
	}
	all, err := c.store.Deaths(c.ctx, redrive.Query{Queue: c.q})
	c.noError(err, "deaths")
	var sum, others int64
	for _, d := range all {
		for _, b := range d.Buckets {
			sum += b.Count
			if d.Signature == driver.OtherCauses && d.Reason == 0 {
				others += b.Count
			}
		}
	}
	if sum != n || others < n-driver.MaxDeathSeries || len(all) > driver.MaxDeathSeries+1 {
		c.Errorf("%d deaths in %d series, %d of them of others; want all %d, in %d and one", sum, len(all), others, n, driver.MaxDeathSeries)
	}
	c.count("many causes", redrive.Query{Queue: c.q, State: redrive.StateDead}, n)
	c.count("many causes", redrive.Query{Queue: c.q, State: redrive.StateDead, Signature: fmt.Sprintf("sig-%d", n-1)}, 1)
	got, complete, err := c.store.Causes(c.ctx, redrive.Query{Queue: c.q, Limit: 10})
	c.noError(err, "causes")
	if len(got) != 10 || complete {
		c.Errorf("%d causes of 10, complete %t", len(got), complete)
	}
}

func filterPlanEdit(c *C) {
	c.publishN(6)
	c.kill(4, redrive.ReasonPermanent)
	dying := entryIDs(c.find(redrive.Query{Queue: c.q, State: redrive.StateDead}))
	waiting := entryIDs(c.find(redrive.Query{Queue: c.q, State: redrive.StateWaiting}))
	edit := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("edited")}}
	for _, id := range []string{dying[0], dying[1], waiting[0]} {
		c.noError(c.update(edit, id)[0].Err, "edit")
	}
	for _, id := range []string{dying[1], dying[2]} {
		c.noError(c.update(driver.Change{Action: driver.ActRedrive, Plan: "p1"}, id)[0].Err, "redrive")
	}
	for _, tc := range []struct {
		what string
		q    redrive.Query
		want []string
	}{
		{"edited", redrive.Query{Edited: true}, []string{dying[0], dying[1], waiting[0]}},
		{"edited and dead", redrive.Query{Queue: c.q, State: redrive.StateDead, Edited: true}, []string{dying[0]}},
		{"edited and waiting", redrive.Query{Queue: c.q, State: redrive.StateWaiting, Edited: true}, []string{dying[1], waiting[0]}},
		{"of a plan", redrive.Query{Plan: "p1"}, []string{dying[1], dying[2]}},
		{"of a plan and edited", redrive.Query{Queue: c.q, Plan: "p1", Edited: true}, []string{dying[1]}},
		{"of a plan and dead", redrive.Query{Plan: "p1", State: redrive.StateDead}, nil},
		{"of another plan", redrive.Query{Plan: "p2"}, nil},
	} {
		c.sameSet(tc.what, entryIDs(c.find(tc.q)), tc.want)
		c.count("edits", tc.q, int64(len(tc.want)))
	}
	d := c.one(c.lane(1, redrive.LaneRedrive))
	c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	c.sameSet("of a plan and dead again", entryIDs(c.find(redrive.Query{Plan: "p1", State: redrive.StateDead})), []string{d.ID})
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, dying[0])[0].Err, "drop")
	c.sameSet("edited and gone", entryIDs(c.find(redrive.Query{Queue: c.q, Edited: true})), []string{dying[1], waiting[0]})
}

// All causes can be gone through in pages, each once, also if the one where a page ended goes.
func causesInPages(c *C) {
	const perReason = 60
	var put []redrive.Entry
	for _, queue := range someQueues {
		for _, reason := range someReasons {
			for i := range perReason {
				e := redrive.Entry{Message: redrive.Message{Queue: queue, ID: fmt.Sprintf("%d-%d", reason, i)}, State: redrive.StateDead, Reason: reason}
				if i > 0 { // else it has no signature
					e.History.Record(&redrive.Failure{Message: "m", Signature: fmt.Sprintf("2-%d", i*i)}, true)
				}
				put = append(put, e)
			}
		}
	}
	for part := range slices.Chunk(put, c.caps.Most(500)) {
		_, err := c.store.Apply(c.ctx, driver.Batch{Put: part})
		c.noError(err, "put")
	}
	queues, reasons := len(someQueues), len(someReasons)
	for _, look := range []struct {
		of   redrive.Query
		want int
	}{
		{redrive.Query{Queue: someQueues[0]}, reasons * perReason},
		{redrive.Query{Reason: someReasons[1]}, queues * perReason},
		{redrive.Query{Queue: someQueues[1], Reason: someReasons[2]}, perReason},
		{redrive.Query{Signature: "2-9"}, queues * reasons},
		{redrive.Query{Queue: "none"}, 0},
		{redrive.Query{}, len(put)},
	} {
		got := make(map[driver.Cause]bool)
		for cause, err := range driver.AllCauses(c.ctx, smallPages{c.store}, look.of) {
			c.noError(err, "causes")
			name := driver.Cause{Queue: cause.Queue, Reason: cause.Reason, Signature: cause.Signature}
			if got[name] || cause.Count != 1 || cause.Last.IsZero() || cause.Example.ID == "" {
				c.Fatalf("of %+v: %+v, again: %t", look.of, cause, got[name])
			}
			if got[name] = true; look.of == (redrive.Query{}) && len(got) == smallPage {
				_, err := c.store.Update(c.ctx, driver.Selection{Refs: []redrive.Ref{cause.Example}}, driver.Change{Action: driver.ActDrop}, 1)
				c.noError(err, "drop")
			}
		}
		if len(got) != look.want {
			c.Fatalf("of %+v: %d causes, want %d", look.of, len(got), look.want)
		}
	}
}

const smallPage = 7

// smallPages are the pages of a store, which are small.
type smallPages struct{ driver.CauseLister }

func (p smallPages) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	q.Limit = smallPage
	return p.CauseLister.Causes(ctx, q)
}
