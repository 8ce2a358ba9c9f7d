package backendtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Apply, emits and repeats: what happens in one step.
var applyCases = []testCase{
	{name: "ApplyIsOneStep", run: applyOneStep},
	{name: "ApplySingleItemsFailByThemselves", run: applyItems},
	{name: "PutKeepsEntries", run: putKeeps},
	{name: "PutRestoresWhatWasRemoved", run: putRemoved},
	{name: "PutRefusesNoDeadLetter", run: putForeign},
	{name: "PutRefusesImpossibleNumbers", run: putNumbers},
	{name: "EachWayInRefusesTheSame", run: eachWayIn, needs: []need{emits}},
	{name: "DeleteRange", run: deleteRange},
	{name: "EmitInTheSameStep", run: emitSameStep, needs: []need{emits}},
	{name: "EmitRefusedUndoesItsItemOnly", run: emitRefused, needs: []need{emits}},
	{name: "RepeatStartsANewGeneration", run: repeatGenerations, needs: []need{repeats}},
	{name: "DropIsCounted", run: dropCounted},
	{name: "RecallTellsTheOutcome", run: recall, needs: []need{remembers}},
	{name: "ConfigureAppliesToAllClients", run: configureAll},
}

func applyOneStep(c *C) {
	batch := func(version int64) driver.Batch {
		return driver.Batch{
			Publish: []redrive.Message{{Queue: c.q, ID: "published"}},
			Put:     []redrive.Entry{{Message: redrive.Message{Queue: c.q, ID: "put"}, State: redrive.StateDead, Reason: redrive.ReasonRejected}},
			Records: []driver.RecordWrite{{Space: "s", Key: "other", Value: []byte("x"), Version: driver.AnyVersion}, {Space: "s", Key: "k", Value: []byte("v"), Version: version}},
			Delete:  []driver.Range{{Queue: c.q, Key: "session", UpTo: "r1"}},
		}
	}
	c.publish(redrive.Message{ID: "r1", Key: "session"})
	_, err := c.store.Apply(c.ctx, batch(7))
	c.is(err, "apply with a version that is not there", redrive.ErrVersion)
	c.inState("published", 0)
	c.inState("put", 0)
	c.inState("r1", redrive.StateWaiting)
	_, err = c.store.GetRecord(c.ctx, "s", "other")
	c.is(err, "a record of a batch that was refused", redrive.ErrNotFound)

	errs, err := c.store.Apply(c.ctx, batch(0))
	c.noError(err, "apply")
	c.noError(driver.FirstError(errs), "apply, an item")
	c.inState("published", redrive.StateWaiting)
	c.inState("put", redrive.StateDead)
	c.inState("r1", 0)
	if r, err := c.store.GetRecord(c.ctx, "s", "k"); err != nil || string(r.Value) != "v" {
		c.Errorf("record %+v, %v", r, err)
	}
	_, err = c.store.Apply(c.ctx, batch(0))
	c.is(err, "apply again", redrive.ErrVersion)
	if n := c.counts(); n.Ledger.Published != 2 || n.Ledger.Parked != 1 || n.Ledger.Done != 1 {
		c.Errorf("ledger %+v", n.Ledger)
	}
	_, err = c.store.Apply(c.ctx, driver.Batch{})
	c.noError(err, "apply of nothing")
}

func applyItems(c *C) {
	c.publish(redrive.Message{ID: "there", Body: []byte("b")})
	put := func(id, body string) redrive.Entry {
		return redrive.Entry{Message: redrive.Message{Queue: c.q, ID: id, Body: []byte(body)}, State: redrive.StateWaiting}
	}
	errs, err := c.store.Apply(c.ctx, driver.Batch{
		Publish: []redrive.Message{{Queue: c.q, ID: "new"}, {Queue: c.q, ID: "there", Body: []byte("b")}, {Queue: "NO", ID: "x"}},
		Put:     []redrive.Entry{put("there", "b"), put("there", "other"), put("put", "")},
		Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte{}, Version: 0}},
	})
	c.noError(err, "apply")
	if len(errs) != 6 {
		c.Fatalf("%d results for 6 items", len(errs))
	}
	for i, want := range []error{nil, redrive.ErrDuplicate, redrive.ErrInvalid, redrive.ErrDuplicate, redrive.ErrConflict, nil} {
		c.is(errs[i], fmt.Sprintf("item %d", i), want)
	}
	if _, err := c.store.GetRecord(c.ctx, "s", "k"); err != nil {
		c.Errorf("the record beside them: %v", err)
	}
	c.sameSet("what was stored", c.drain(), []string{"there", "new", "put"})
}

func putKeeps(c *C) {
	published := c.now().Add(-48 * time.Hour).Truncate(time.Millisecond)
	history := redrive.History{Count: 4, First: failure(1, "first"), Last: failure(4, "last")}
	lineage := redrive.Lineage{Generation: 2, Redrives: 1, Plan: "p", Origin: "kafka/0/17", EditedFrom: "a/b"}
	m := redrive.Message{Queue: c.q, ID: "dead", Kind: "k", Key: "key", Body: []byte("b"), PublishedAt: published, Lineage: lineage}
	died := published.Add(time.Hour)
	entries := []redrive.Entry{
		{Message: m, State: redrive.StateDead, Reason: redrive.ReasonExhausted, Attempts: 4, DiedAt: died, History: history},
		{Message: m, State: redrive.StateWaiting, Lane: redrive.LaneRetry, Attempts: 4, History: history},
		{Message: m, State: redrive.StateWaiting, Attempts: 1},
		{Message: m, State: redrive.StateWaiting, Lane: redrive.LaneRetry, Attempts: 2, Crashes: 1, Suspect: true},
	}
	entries[1].ID, entries[2].ID, entries[3].ID = "retry", "delayed", "suspect"
	entries[2].Delay = 2 * c.tick
	errs, err := c.store.Apply(c.ctx, driver.Batch{Put: entries, Entered: driver.EnteredImported})
	c.noError(err, "apply")
	c.noError(driver.FirstError(errs), "put")

	e := c.entry("dead")
	if !e.PublishedAt.Equal(published) || !e.DiedAt.Equal(died) || e.Lineage != lineage || e.Attempts != 4 || e.Reason != redrive.ReasonExhausted || e.History.Count != 4 {
		c.Errorf("the dead one changed: %+v", *e)
	}
	sameFailure(c, "first", e.History.First, history.First)
	sameFailure(c, "last", e.History.Last, history.Last)
	d := c.one(c.lane(5, redrive.LaneRetry))
	if d.ID != "retry" || d.Attempt != 5 || d.Failures != 4 || d.Lineage != lineage || !d.PublishedAt.Equal(published) {
		c.Errorf("claimed %s, attempt %d, failures %d, %+v, published %s", d.ID, d.Attempt, d.Failures, d.Lineage, d.PublishedAt)
	}
	c.done(d)
	c.none(c.ask(5)) // a zero Due means now plus the delay
	d = c.one(isolated(c.ask(5)))
	if d.ID != "suspect" || d.Crashes != 1 || !d.Suspect || d.Attempt != 3 {
		c.Errorf("claimed in isolation: %s with %d crashes at attempt %d", d.ID, d.Crashes, d.Attempt)
	}
	c.done(d)
	c.pass(3 * c.tick)
	c.done(c.one(c.ask(5)))
	if n := c.counts(); n.Ledger.Imported != 4 || n.Ledger.Done != 3 || n.AllDead() != 1 {
		c.Errorf("ledger %+v", n)
	}
}

// putRemoved puts back what was archived or dropped while its id is remembered, if that is asked
// for. Nothing else that is remembered comes back.
func putRemoved(c *C) {
	ids := []string{"archived", "dead", "dropped", "done", "waiting"}
	msgs := make([]redrive.Message, len(ids))
	entries := make([]redrive.Entry, len(ids))
	for i, id := range ids {
		msgs[i] = redrive.Message{Queue: c.q, ID: id, Body: []byte("b")}
		entries[i] = redrive.Entry{Message: msgs[i], State: redrive.StateDead, Reason: redrive.ReasonPermanent}
	}
	c.publish(msgs[:4]...)
	for _, d := range c.get(4, c.ask(4)) {
		s := settled(d, redrive.OutcomeDone)
		if d.ID != "done" {
			s.Outcome, s.Reason = redrive.OutcomeDead, redrive.ReasonPermanent
		}
		c.noError(c.settle(s), "settle")
	}
	c.publish(msgs[4])
	c.noError(c.update(driver.Change{Action: driver.ActArchive}, "archived")[0].Err, "archive")
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "dropped")[0].Err, "drop")
	c.is(at(c.sink.Publish(c.ctx, msgs[:1]), 0), "its id published again", redrive.ErrDuplicate)
	put := func(restore bool, removed error) {
		errs, err := c.store.Apply(c.ctx, driver.Batch{Put: slices.Clone(entries), Entered: driver.EnteredImported, Restore: restore})
		c.noError(err, "apply")
		for i, id := range ids {
			want := redrive.ErrDuplicate
			if id == "archived" || id == "dropped" {
				want = removed
			}
			c.is(at(errs, i), "put of "+id, want)
		}
	}
	put(false, redrive.ErrDuplicate)
	put(true, nil)
	put(true, redrive.ErrDuplicate)
	c.inState("archived", redrive.StateDead)
	c.inState("dropped", redrive.StateDead)
	c.holds(1, 3)
	if n := c.counts().Ledger; n.Imported != 2 || n.Dropped != 1 || n.Archived != 1 || n.Published != 5 {
		c.Errorf("ledger %+v", n)
	}
}

// putForeign puts what came from elsewhere and could not be published here.
func putForeign(c *C) {
	m := redrive.Message{Queue: c.q, ID: "huge", Body: make([]byte, redrive.MaxBodySize+1)}
	errs, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{
		{Message: m, State: redrive.StateDead, Reason: redrive.ReasonOversize},
		{Message: redrive.Message{Queue: c.q, ID: "huge-waiting", Body: m.Body}, State: redrive.StateWaiting},
	}})
	c.noError(err, "apply")
	c.is(at(errs, 0), "an oversize dead letter", nil)
	c.is(at(errs, 1), "an oversize message that shall be delivered", redrive.ErrInvalid)
	if e := c.entry("huge"); len(e.Body) != redrive.MaxBodySize+1 {
		c.Errorf("%d bytes are left", len(e.Body))
	}
}

// putNumbers puts entries beside others whose numbers no store can hold, and one whose history
// lacks its first failure.
func putNumbers(c *C) {
	const most = math.MaxInt32
	dead := func(id string, change func(*redrive.Entry)) redrive.Entry {
		e := redrive.Entry{Message: redrive.Message{Queue: c.q, ID: id}, State: redrive.StateDead, Reason: redrive.ReasonManual, History: redrive.History{Count: 1, Last: failure(3, "last")}}
		change(&e)
		return e
	}
	put := []redrive.Entry{
		dead("fine", func(*redrive.Entry) {}),
		dead("attempts", func(e *redrive.Entry) { e.Attempts = most + 1 }),
		dead("crashes", func(e *redrive.Entry) { e.Crashes = -1 }),
		dead("failures", func(e *redrive.Entry) { e.History.Count = most + 1 }),
		dead("generation", func(e *redrive.Entry) { e.Generation = most + 1 }),
		dead("redrives", func(e *redrive.Entry) { e.Redrives = most + 1 }),
		dead("lane", func(e *redrive.Entry) { e.Lane = 7 }),
		dead("no reason", func(e *redrive.Entry) { e.Reason = 0 }),
		dead("most", func(e *redrive.Entry) { e.Attempts, e.Generation, e.Redrives = most, most, most }),
	}
	errs, err := c.store.Apply(c.ctx, driver.Batch{Put: put, Entered: driver.EnteredImported})
	c.noError(err, "apply")
	for i := range put {
		var want error
		if i > 0 && i < len(put)-1 {
			want = redrive.ErrInvalid
		}
		c.is(at(errs, i), "put of "+put[i].ID, want)
	}
	sameFailure(c, "the only one", c.entry("fine").History.Latest(), failure(3, "last"))
	if e := c.entry("most"); e.Attempts != most || e.Generation != most {
		c.Errorf("attempts %d, generation %d", e.Attempts, e.Generation)
	}
}

// eachWayIn brings messages that cannot be accepted in by a publish, an emit and a put, beside good ones: each
// refuses them by themselves and for the same reason. A dead letter may have headers and sizes that a message
// may not: it may be dead for them.
func eachWayIn(c *C) {
	long := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	bad := []struct {
		what   string
		change func(*redrive.Message)
		kept   bool // by a dead letter
	}{
		{"kind with a line break", func(m *redrive.Message) { m.Kind = "a\nb" }, false},
		{"kind with NUL", func(m *redrive.Message) { m.Kind = "a\x00b" }, false},
		{"kind that is no UTF-8", func(m *redrive.Message) { m.Kind = "a\xff" }, false},
		{"key with NUL", func(m *redrive.Message) { m.Key = "\x00" }, false},
		{"key that is too long", func(m *redrive.Message) { m.Key = strings.Repeat("k", redrive.MaxKeyLength+1) }, false},
		{"reply-to with NUL", func(m *redrive.Message) { m.ReplyTo = "a\x00" }, false},
		{"plan with NUL", func(m *redrive.Message) { m.Plan = "a\x00" }, false},
		{"origin that is no UTF-8", func(m *redrive.Message) { m.Origin = "a\xff" }, false},
		{"generation below 0", func(m *redrive.Message) { m.Generation = -1 }, false},
		{"expiry in the year 10000", func(m *redrive.Message) { m.ExpiresAt = long }, false},
		{"header without a name", func(m *redrive.Message) { m.Headers.Add("", "v") }, true},
		{"header whose name has a line break", func(m *redrive.Message) { m.Headers.Add("a\r\nb", "v") }, true},
		{"headers that are too long", func(m *redrive.Message) { m.Headers.Add("a", strings.Repeat("v", redrive.MaxHeaderSize)) }, true},
	}
	fine := func(id string) redrive.Message { return redrive.Message{Queue: c.q, ID: id} }
	c.publish(fine("emits-" + fmt.Sprint(len(bad))))
	for i, b := range bad {
		m := fine("bad")
		b.change(&m)
		beside := func(way string) redrive.Message { return fine(fmt.Sprintf("beside-%s-%d", way, i)) }
		published := c.store.Publish(c.ctx, []redrive.Message{m, beside("publish")})
		c.is(at(published, 0), b.what+", published", redrive.ErrInvalid)
		c.is(at(published, 1), "beside "+b.what+", published", nil)

		emitter, other := c.one(c.ask(1)), c.one(c.ask(1))
		list := []driver.Settlement{settled(emitter, redrive.OutcomeDone), settled(other, redrive.OutcomeDone)}
		list[0].Emit, list[1].Emit = []redrive.Message{m}, []redrive.Message{beside("emit")}
		settledErrs := c.src.Settle(c.ctx, list)
		c.is(at(settledErrs, 0), b.what+", emitted", redrive.ErrInvalid)
		c.is(at(settledErrs, 1), "beside "+b.what+", emitted", nil)
		c.noError(c.settle(settled(emitter, redrive.OutcomeRelease)), "release")

		of := func(m redrive.Message, s redrive.State) redrive.Entry {
			e := redrive.Entry{Message: m, State: s}
			if s == redrive.StateDead {
				e.Reason = redrive.ReasonManual
			}
			return e
		}
		dead, edited := of(m, redrive.StateDead), of(fine(fmt.Sprintf("edited-%d", i)), redrive.StateDead)
		dead.ID = fmt.Sprintf("dead-%d", i)
		edited.Original = &m
		want := redrive.ErrInvalid
		if b.kept {
			want = nil
		}
		put, err := c.store.Apply(c.ctx, driver.Batch{Entered: driver.EnteredImported,
			Put: []redrive.Entry{of(beside("first"), redrive.StateDead), of(m, redrive.StateWaiting), dead, edited, of(beside("last"), redrive.StateDead)}})
		c.noError(err, "apply")
		for k, want := range []error{nil, redrive.ErrInvalid, want, want, nil} {
			c.is(at(put, k), fmt.Sprintf("%s, put %d", b.what, k), want)
		}
		if a, p := at(published, 0), at(put, 1); a != nil && p != nil && reasonOf(a) != reasonOf(p) {
			c.Errorf("%s: published %v, put %v", b.what, a, p)
		}
		if a, p := at(published, 0), at(settledErrs, 0); a != nil && p != nil && reasonOf(a) != reasonOf(p) {
			c.Errorf("%s: published %v, emitted %v", b.what, a, p)
		}
	}
	if n := c.counts(); n.Ledger.Imported != int64(2*len(bad)+2*3) {
		c.Errorf("ledger %+v", n.Ledger)
	}
}

// reasonOf is what an error says was wrong, without where.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*redrive.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

func deleteRange(c *C) {
	c.q = driver.ResultQueue
	for i := range 6 {
		c.publish(redrive.Message{ID: fmt.Sprintf("a%d", i), Key: "a"}, redrive.Message{ID: fmt.Sprintf("b%d", i), Key: "b"})
	}
	remove := func(key, upTo string) {
		c.Helper()
		_, err := c.store.Apply(c.ctx, driver.Batch{Delete: []driver.Range{{Queue: c.q, Key: key, UpTo: upTo}}})
		c.noError(err, "delete")
	}
	left := func() []string {
		c.Helper()
		return entryIDs(c.find(redrive.Query{Queue: c.q, Key: "a"}))
	}
	remove("a", "a2")
	c.sameSet("up to a2", left(), []string{"a3", "a4", "a5"})
	_, err := c.store.Apply(c.ctx, driver.Batch{Delete: []driver.Range{
		{Queue: c.q, Key: "a", UpTo: "a4", Single: true}, {Queue: c.q, Key: "a", UpTo: "b3", Single: true}, {Queue: c.q, Key: "a", UpTo: "never-was", Single: true},
	}})
	c.noError(err, "delete one")
	c.sameSet("without a4", left(), []string{"a3", "a5"})
	remove("a", "a2") // again
	remove("a", "never-was")
	c.sameSet("nothing more", left(), []string{"a3", "a5"})
	remove("a", "a5")
	c.sameSet("all of a", left(), nil)
	if n := c.counts(); n.AllWaiting() != 6 || n.Ledger.Done != 6 {
		c.Errorf("waiting %d, done %d; want 6, 6", n.AllWaiting(), n.Ledger.Done)
	}
}

func emitSameStep(c *C) {
	c.publish(redrive.Message{ID: "done"}, redrive.Message{ID: "dead"}, redrive.Message{ID: "stale"}, redrive.Message{ID: "self"})
	got := c.get(4, c.ask(4))
	for i := range got {
		s := settled(got[i], redrive.OutcomeDone)
		s.Emit = []redrive.Message{{Queue: "target", ID: "from-" + got[i].ID, Body: []byte("e")}, {Queue: "target"}}
		switch got[i].ID {
		case "dead":
			s = deadly(got[i], redrive.ReasonPermanent)
			s.Emit = []redrive.Message{{Queue: "target", ID: "from-dead"}}
		case "stale":
			s.Receipt.Token += 9
			c.is(c.settle(s), "a stale settlement", redrive.ErrLeaseLost)
			if c.lookUp("target", "from-stale") != nil {
				c.Errorf("a stale settlement emitted")
			}
			c.done(got[i])
			continue
		case "self":
			s.Emit = []redrive.Message{{Queue: c.q, ID: "next", Delay: time.Hour}}
		}
		c.noError(c.settle(s), "settle with an emit")
		c.is(c.settle(s), "the same again", redrive.ErrLeaseLost, redrive.ErrNotFound)
	}
	c.inState("next", redrive.StateWaiting)
	if n := c.countsOf("target"); n.AllWaiting() != 3 || n.Ledger.Published != 3 {
		c.Errorf("%d emitted, want 3", n.AllWaiting())
	}
}

func emitRefused(c *C) {
	c.publish(redrive.Message{Queue: "target", ID: "taken", Body: []byte("b")})
	c.publishN(5)
	got := c.get(5, c.ask(5))
	list := make([]driver.Settlement, 5)
	for i := range got {
		list[i] = settled(got[i], redrive.OutcomeDone)
	}
	list[0].Emit = []redrive.Message{{Queue: "target", ID: "fine-0"}}
	list[1].Emit = []redrive.Message{{Queue: "target", ID: "fine-1"}, {Queue: "target", ID: "taken", Body: []byte("other")}}
	list[2].Emit = []redrive.Message{{Queue: "target", ID: "taken", Body: []byte("b")}}
	list[3].Emit = []redrive.Message{{Queue: "NO QUEUE"}}
	errs := c.src.Settle(c.ctx, list)
	for i, want := range []error{nil, redrive.ErrConflict, nil, redrive.ErrInvalid, nil} {
		c.is(at(errs, i), fmt.Sprintf("item %d", i), want)
	}
	if c.lookUp("target", "fine-1") != nil {
		c.Errorf("an item that was refused emitted a part")
	}
	c.inState(got[1].ID, redrive.StateLeased)
	c.done(got[1], got[3])
	if n := c.countsOf("target"); n.AllWaiting() != 2 {
		c.Errorf("%d in the target, want 2", n.AllWaiting())
	}
}

func repeatGenerations(c *C) {
	c.publish(redrive.Message{ID: "cron", Body: []byte("b")})
	c.noError(c.settle(retry(c.one(c.ask(1)), 0)), "retry")
	r := c.lane(1, redrive.LaneRetry)
	for generation := range 3 {
		d := c.one(r)
		if d.Generation != generation || string(d.Body) != "b" || d.Redrives != 0 {
			c.Errorf("generation %d, redrives %d, body %q; want %d, 0", d.Generation, d.Redrives, d.Body, generation)
		}
		if generation > 0 && (d.Attempt != 1 || d.Failures != 0 || d.Lane != redrive.LaneFresh) {
			c.Errorf("a new generation at attempt %d with %d failures in lane %s", d.Attempt, d.Failures, d.Lane)
		}
		s := settled(d, redrive.OutcomeRepeat)
		s.After = c.tick
		c.noError(c.settle(s), "repeat")
		c.is(c.settle(s), "repeat again", redrive.ErrLeaseLost)
		if e := c.entry("cron"); e.History.Count != 0 || e.History.First != nil || e.Attempts != 0 {
			c.Errorf("a new generation with %d attempts and the failure history %+v", e.Attempts, e.History)
		}
		r = c.ask(1)
		c.none(r)
		c.pass(c.tick + c.tick/4)
	}
	c.is(at(c.sink.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: "cron", Body: []byte("b")}}), 0), "its id published again", redrive.ErrDuplicate)
	c.done(c.one(r))
	if n := c.counts().Ledger; n.Done != 4 || n.Repeated != 3 || n.Published != 1 {
		c.Errorf("ledger %+v", n)
	}
}

func dropCounted(c *C) {
	c.publish(redrive.Message{ID: "m"})
	s := settled(c.one(c.ask(1)), redrive.OutcomeDrop)
	s.Reason = redrive.ReasonExpired
	c.noError(c.settle(s), "drop")
	c.holds(0, 0)
	if n := c.counts().Ledger; n.Dropped != 1 || n.Done != 0 {
		c.Errorf("ledger %+v", n)
	}
}

func recall(c *C) {
	named := c.publish(redrive.Message{ID: "live", Body: []byte("b")}, redrive.Message{ID: "done", Body: []byte("c")}, redrive.Message{ID: "dropped"}, redrive.Message{})
	for _, d := range c.get(4, c.ask(4)) {
		s := settled(d, redrive.OutcomeDone)
		switch d.ID {
		case "live":
			s = release(d, 0)
		case "dropped":
			s.Outcome, s.Reason = redrive.OutcomeDrop, redrive.ReasonExpired
		}
		c.noError(c.settle(s), "settle")
	}
	refs := []redrive.Ref{named[0].Ref(), named[1].Ref(), named[2].Ref(), named[3].Ref(), {Queue: c.q, ID: "never-was"}, {Queue: "nowhere", ID: "done"}}
	got, err := c.store.Recall(c.ctx, refs)
	c.noError(err, "recall")
	for i, want := range []*driver.Remembered{
		{Hash: driver.BodyHash(&named[0])},
		{Hash: driver.BodyHash(&named[1]), Outcome: redrive.OutcomeDone},
		{Hash: driver.BodyHash(&named[2]), Outcome: redrive.OutcomeDrop, Reason: redrive.ReasonExpired},
		nil, nil, nil,
	} {
		r := got[i]
		switch {
		case (r == nil) != (want == nil):
			c.Errorf("%s is remembered: %t", refs[i], r != nil)
		case r == nil:
		case r.Ref != refs[i] || r.Hash != want.Hash || r.Outcome != want.Outcome || r.Reason != want.Reason:
			c.Errorf("%s is remembered as %+v, want %+v", refs[i], *r, *want)
		case c.now().Sub(r.At) > time.Hour:
			c.Errorf("%s changed last at %s", refs[i], r.At)
		}
	}
}

func configureAll(c *C) {
	if err := c.store.Configure(c.ctx, "NO QUEUE", driver.QueueSettings{}); err == nil {
		c.Errorf("a queue with an impossible name was configured")
	}
	known, ok := driver.As[driver.SettingsStore](c.store)
	for _, want := range []driver.QueueSettings{{OrderByKey: true, DeadRelease: true, Remember: 2 * time.Hour}, {Remember: time.Hour}} {
		c.configure(want)
		if got, err := known.Settings(c.ctx, c.q); !ok || err != nil || got != want {
			c.Errorf("settings %+v, %v; want %+v", got, err, want)
		}
	}
	if got, err := known.Settings(c.ctx, "never-was"); err != nil || got != (driver.QueueSettings{Remember: driver.DefaultRemember}) {
		c.Errorf("settings of no queue: %+v, %v", got, err)
	}
	all, err := c.store.Counts(c.ctx)
	c.noError(err, "counts")
	if len(all) > 0 && !slices.ContainsFunc(all, func(n driver.Counts) bool { return n.Queue == c.q }) {
		c.Errorf("counts of all queues lack %s", c.q)
	}
	if n := c.countsOf("never-was"); n.AllWaiting() != 0 || n.AllDead() != 0 {
		c.Errorf("a queue that never was holds %+v", n)
	}
}
