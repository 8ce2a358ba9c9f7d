package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var deadCases = []testCase{
	{name: "47_MoveAtomicUnderKill", run: moveUnderKill, needs: []need{crash}},
	{name: "48_MoveTwiceOneCopy", run: moveTwice},
	{name: "49_MoveWide", run: moveWide},
	{name: "50_MoveWhenFull", run: moveWhenFull, needs: []need{fill}},
	{name: "51_BodyHeadersHistoryIntact", run: historyIntact},
	{name: "52_NeverSilentlyTrimmed", run: neverTrimmed},
	{name: "53_PeekDoesNotConsume", run: peek},
	{name: "54_FilterPageStable", run: filterPageStable},
	{name: "55_PurgeOnlySelected", run: purgeOnlySelected},
}

// moveUnderKill lets the process die at different moments of a move. Each message
// must then be in exactly one place, and each acknowledged move must stand.
func moveUnderKill(c *C) {
	const rounds, n = 5, 40
	for round := range rounds {
		prefix := fmt.Sprintf("r%d-", round)
		var msgs []redrive.Message
		for i := range n {
			msgs = append(msgs, redrive.Message{ID: fmt.Sprintf("%s%02d", prefix, i), Body: []byte(prefix)})
		}
		c.publish(msgs...)
		got := c.get(n, c.short(n))
		var mu sync.Mutex
		moved := map[string]bool{}
		atKill := make(chan struct{})
		var wg sync.WaitGroup
		store := c.store
		wg.Go(func() {
			for i := range got {
				if i == round*n/rounds {
					close(atKill)
				}
				if err := driver.FirstError(store.Settle(c.ctx, []driver.Settlement{deadly(got[i], redrive.ReasonPermanent)})); err != nil {
					continue
				}
				mu.Lock()
				moved[got[i].ID] = true
				mu.Unlock()
			}
		})
		<-atKill
		mu.Lock()
		before := len(moved)
		acknowledged := make([]string, 0, before)
		for id := range moved {
			acknowledged = append(acknowledged, id)
		}
		mu.Unlock()
		c.use(c.f.Crash(c, c.store))
		wg.Wait()
		for _, id := range acknowledged {
			c.inState(id, redrive.StateDead)
		}
		c.runOut()
		for _, d := range got {
			if e := c.entry(d.ID); e.State != redrive.StateDead && e.State != redrive.StateWaiting {
				c.Errorf("%s is %s after the crash", d.ID, e.State)
			}
		}
		if copies := len(c.find(redrive.Query{Queue: c.q, Body: prefix, Limit: 1000})); copies != n {
			c.Errorf("%d copies of %d messages", copies, n)
		}
		c.drain()
		c.balanced()
	}
}

func moveTwice(c *C) {
	c.publish(redrive.Message{ID: "m"})
	d := c.one(c.ask(1))
	s := deadly(d, redrive.ReasonPermanent)
	c.noError(c.settle(s), "dead")
	c.is(c.settle(s), "dead again", redrive.ErrLeaseLost, redrive.ErrNotFound)
	errs := c.src.Settle(c.ctx, []driver.Settlement{s, s})
	c.is(at(errs, 0), "and again", redrive.ErrLeaseLost, redrive.ErrNotFound)
	c.holds(0, 1)
	if found := c.find(redrive.Query{Queue: c.q}); len(found) != 1 {
		c.Errorf("%d copies", len(found))
	}

	c.publish(redrive.Message{ID: "twice-in-a-batch"})
	s = deadly(c.one(c.ask(1)), redrive.ReasonPermanent)
	errs = c.src.Settle(c.ctx, []driver.Settlement{s, s})
	c.is(at(errs, 0), "the first of a batch", nil)
	c.is(at(errs, 1), "the same in one batch", redrive.ErrLeaseLost, redrive.ErrNotFound)
	c.holds(0, 2)

	// A dead letter that is parked again under the same id stays one.
	e := redrive.Entry{Message: redrive.Message{Queue: c.q, ID: "parked", Body: []byte("b")}, State: redrive.StateDead, Reason: redrive.ReasonRejected}
	for i, want := range []error{nil, redrive.ErrDuplicate, redrive.ErrDuplicate} {
		got, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{e}})
		c.noError(err, "apply")
		c.is(at(got, 0), fmt.Sprintf("parking %d", i+1), want)
	}
	c.holds(0, 3)
	c.redrive("parked")
	c.done(c.one(c.lane(1, redrive.LaneRedrive)))
	got, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{e}})
	c.noError(err, "apply")
	c.is(at(got, 0), "parking again after it was handled", redrive.ErrDuplicate)
	c.holds(0, 2)
}

func moveWide(c *C) {
	var wide redrive.Headers
	for i := range redrive.MaxHeaders {
		wide.Add(fmt.Sprintf("header-%03d", i), string(noise(200)))
	}
	c.publish(redrive.Message{ID: "wide", Headers: wide}, redrive.Message{ID: "large", Body: noise(1 << 20)})
	got := c.get(2, c.ask(2))
	for _, d := range got {
		s := deadly(d, redrive.ReasonPermanent)
		s.Failure.Stack = string(bytes.Repeat([]byte("s"), 16<<10))
		c.noError(c.settle(s), "dead")
	}
	sameHeaders(c, c.entry("wide").Headers, wide)
	if !bytes.Equal(c.entry("large").Body, noise(1<<20)) {
		c.Errorf("the large body changed")
	}
	c.redrive("wide")
	c.redrive("large")
	for _, d := range c.get(2, c.lane(2, redrive.LaneRedrive)) {
		if d.ID == "wide" {
			sameHeaders(c, d.Headers, wide)
		}
		c.done(d)
	}
}

func moveWhenFull(c *C) {
	c.publishN(20)
	got := c.get(20, c.ask(20))
	empty := c.f.Fill(c, c.store)
	refused := 0
	for i := range 100 {
		err := at(c.sink.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: fmt.Sprintf("more-%d", i), Body: noise(64 << 10)}}), 0)
		if err != nil {
			c.is(err, "publish into a full store", redrive.ErrFull)
			refused++
		}
	}
	if refused == 0 {
		c.Errorf("a full store took everything")
	}
	var moved []string
	for _, d := range got {
		if c.settle(deadly(d, redrive.ReasonPermanent)) == nil {
			moved = append(moved, d.ID)
		}
	}
	empty()
	for _, d := range got {
		if !slices.Contains(moved, d.ID) {
			c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead after there was room")
		}
		c.inState(d.ID, redrive.StateDead)
	}
	if n := c.counts(); n.AllDead() != 20 || n.AllWaiting() != int64(100-refused) {
		c.Errorf("%d dead, %d waiting; want 20, %d", n.AllDead(), n.AllWaiting(), 100-refused)
	}
	c.publish(redrive.Message{ID: "after"})
}

func historyIntact(c *C) {
	var headers redrive.Headers
	headers.Add("a", "\x00\xff")
	headers.Add("a", "again")
	want := c.publish(redrive.Message{ID: "m", Kind: "k", Key: "key", Headers: headers, Body: []byte("\x00body\xff"), ReplyTo: "answers"})[0]
	failures := make([]*redrive.Failure, 3)
	for i := range failures {
		r := c.lane(1, redrive.LaneRetry)
		if i == 0 {
			r = c.ask(1)
		}
		d := c.one(r)
		if d.Attempt != i+1 || d.Failures != i {
			c.Errorf("attempt %d, failures %d; want %d, %d", d.Attempt, d.Failures, i+1, i)
		}
		failures[i] = failure(d.Attempt, fmt.Sprintf("text %d ü", i))
		s := retry(d, 0)
		if i == 2 {
			s = deadly(d, redrive.ReasonExhausted)
		}
		s.Failure = failures[i]
		c.noError(c.settle(s), "settle")
	}
	e := c.entry("m")
	if e.State != redrive.StateDead || e.Reason != redrive.ReasonExhausted || e.Attempts != 3 || e.History.Count != 3 {
		c.Errorf("%s as %s after %d attempts and %d failures; want dead as exhausted after 3 and 3", e.State, e.Reason, e.Attempts, e.History.Count)
	}
	if off := c.now().Sub(e.DiedAt); off < -time.Second || off > time.Minute {
		c.Errorf("died %s ago", off)
	}
	sameFailure(c, "first", e.History.First, failures[0])
	sameFailure(c, "last", e.History.Last, failures[2])
	if !bytes.Equal(e.Body, want.Body) || e.Kind != "k" || e.Key != "key" || e.ReplyTo != "answers" {
		c.Errorf("the message changed: %+v", e.Message)
	}
	sameHeaders(c, e.Headers, headers)
	d := c.one(dead(c.ask(1)))
	if d.Dead != redrive.ReasonExhausted || !bytes.Equal(d.Body, want.Body) {
		c.Errorf("claimed as %s with body %q", d.Dead, d.Body)
	}
	sameHeaders(c, d.Headers, headers)
	c.noError(c.settle(release(d, 0)), "release")
}

func sameFailure(c *C, which string, got, want *redrive.Failure) {
	c.Helper()
	if got == nil {
		c.Errorf("the %s failure is gone", which)
		return
	}
	g, w := *got, *want
	if !g.At.Equal(w.At) {
		c.Errorf("the %s failure is of %s, want %s", which, g.At, w.At)
	}
	g.At, w.At = time.Time{}, time.Time{}
	if !reflect.DeepEqual(g, w) {
		c.Errorf("the %s failure changed:\n got %+v\nwant %+v", which, g, w)
	}
}

func neverTrimmed(c *C) {
	const n = muchDead
	for base := 0; base < n; base += 500 {
		msgs := make([]redrive.Message, 500)
		for i := range msgs {
			msgs[i] = redrive.Message{ID: fmt.Sprintf("d%05d", base+i)}
		}
		c.publish(msgs...)
		c.kill(500, redrive.ReasonPermanent)
	}
	if c.f.Advance != nil {
		c.f.Advance(2 * 365 * 24 * time.Hour)
	}
	t, err := c.store.Trim(c.ctx, driver.Retention{}, 100_000)
	if err != nil || t.Dead != 0 {
		c.Errorf("trim without a bound removed %d dead letters, %v", t.Dead, err)
	}
	c.holds(0, n)
	if c.lookUp(c.q, "d00000") == nil || c.lookUp(c.q, fmt.Sprintf("d%05d", n-1)) == nil {
		c.Errorf("a dead letter is gone")
	}
}

func peek(c *C) {
	c.publishN(20)
	c.kill(10, redrive.ReasonPermanent)
	before := c.counts()
	for range 5 {
		if got := c.find(redrive.Query{Queue: c.q, Bodies: true, Limit: 3}); len(got) != 20 {
			c.Fatalf("found %d of 20", len(got))
		}
		c.entry("m0001")
		c.entry("m0015")
	}
	if after := c.counts(); !reflect.DeepEqual(before, after) {
		c.Errorf("looking changed the counts from %+v to %+v", before, after)
	}
	for _, d := range c.get(10, c.ask(10)) {
		if d.Attempt != 1 || d.Suspect {
			c.Errorf("looking counted: %s is at attempt %d, suspect %t", d.ID, d.Attempt, d.Suspect)
		}
	}
	for _, d := range c.get(10, dead(c.ask(20))) {
		c.noError(c.settle(release(d, 0)), "release")
	}
	c.holds(10, 10)
}

func filterPageStable(c *C) {
	const n = 60
	for i := range n {
		m := redrive.Message{ID: fmt.Sprintf("m%02d", i), Kind: fmt.Sprintf("kind-%d", i%3), Key: fmt.Sprintf("key-%d", i%2), Body: fmt.Appendf(nil, "body %02d.", i)}
		m.Headers.Add("tenant", fmt.Sprintf("t%d", i%4))
		c.publish(m)
		d := c.one(c.ask(1))
		s := deadly(d, redrive.ReasonPermanent)
		if i%2 == 1 {
			s.Reason, s.Failure = redrive.ReasonExhausted, failure(1, "odd")
		}
		c.noError(c.settle(s), "dead")
	}
	for what, tc := range map[string]struct {
		q    redrive.Query
		want int
	}{
		"all":           {redrive.Query{}, n},
		"dead":          {redrive.Query{State: redrive.StateDead}, n},
		"waiting":       {redrive.Query{State: redrive.StateWaiting}, 0},
		"kind":          {redrive.Query{Kind: "kind-1"}, n / 3},
		"key":           {redrive.Query{Key: "key-0"}, n / 2},
		"reason":        {redrive.Query{Reason: redrive.ReasonExhausted}, n / 2},
		"signature":     {redrive.Query{Signature: failure(1, "odd").Signature}, n / 2},
		"header":        {redrive.Query{Header: "tenant=t3"}, n / 4},
		"header's name": {redrive.Query{Header: "tenant"}, n},
		"no header":     {redrive.Query{Header: "tenan"}, 0},
		"body":          {redrive.Query{Body: "body 07."}, 1},
		"error text":    {redrive.Query{Text: "odd"}, n / 2},
		"body literal":  {redrive.Query{Body: "body %"}, 0},
		"several":       {redrive.Query{Kind: "kind-1", Key: "key-1", Reason: redrive.ReasonExhausted}, n / 6},
		"since":         {redrive.Query{Since: c.now().Add(time.Hour)}, 0},
		"until":         {redrive.Query{Until: c.now().Add(-24 * time.Hour)}, 0},
	} {
		tc.q.Queue, tc.q.Limit = c.q, 7
		if got := c.find(tc.q); len(got) != tc.want {
			c.Errorf("filter by %s found %d, want %d", what, len(got), tc.want)
		}
	}

	// What stays is seen once, whatever comes and goes meanwhile.
	seen := map[string]int{}
	q := redrive.Query{Queue: c.q, State: redrive.StateDead, Limit: 9}
	for page := 0; ; page++ {
		p, err := c.store.Find(c.ctx, q)
		c.noError(err, "find")
		for _, id := range entryIDs(p.Entries) {
			seen[id]++
		}
		if q.After = p.Next; q.After == "" {
			break
		}
		switch page {
		case 0:
			c.update(driver.Change{Action: driver.ActDrop}, "m01", "m02")
		case 1:
			c.publish(redrive.Message{ID: "newcomer"})
			c.kill(1, redrive.ReasonPermanent)
		case 2:
			c.redrive("m55")
			c.drain()
		}
	}
	for i := range n {
		id := fmt.Sprintf("m%02d", i)
		if gone := i == 1 || i == 2 || i == 55; !gone && seen[id] != 1 {
			c.Errorf("%s was seen %d times", id, seen[id])
		}
	}
	if _, err := c.store.Find(c.ctx, redrive.Query{After: "not a place\x00"}); err != nil && !errors.Is(err, redrive.ErrInvalid) {
		c.Errorf("a place that never was: %v", err)
	}
}

func purgeOnlySelected(c *C) {
	c.publishN(30)
	c.kill(10, redrive.ReasonPermanent)
	c.kill(10, redrive.ReasonManual)
	c.q = "other"
	c.publishN(5)
	c.kill(5, redrive.ReasonManual)
	c.q = "sms"
	sel := driver.Selection{Query: &redrive.Query{Queue: c.q, State: redrive.StateDead, Reason: redrive.ReasonManual}}
	removed := 0
	for range 20 {
		got, err := c.store.Update(c.ctx, sel, driver.Change{Action: driver.ActDrop}, 4)
		c.noError(err, "drop")
		if len(got) == 0 {
			break
		}
		if len(got) > 4 {
			c.Errorf("%d dropped in one call, want at most 4", len(got))
		}
		for _, u := range got {
			c.noError(u.Err, "drop %s", u.Ref)
			removed++
		}
	}
	if removed != 10 {
		c.Errorf("%d removed, want 10", removed)
	}
	c.holds(10, 10)
	n := c.counts()
	if n.Ledger.Dropped != 10 || n.Dead[redrive.ReasonManual] != 0 || n.Dead[redrive.ReasonPermanent] != 10 {
		c.Errorf("after the purge: %+v", n)
	}
	if o := c.countsOf("other"); o.Dead[redrive.ReasonManual] != 5 {
		c.Errorf("the other queue lost dead letters: %+v", o)
	}
	r, err := c.store.Recall(c.ctx, []redrive.Ref{{Queue: c.q, ID: "m0011"}})
	if err != nil || r[0] == nil || r[0].Outcome != redrive.OutcomeDrop {
		c.Errorf("what is remembered of a dropped message: %+v, %v", r[0], err)
	}
}
