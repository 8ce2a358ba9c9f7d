package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var opsCases = []testCase{
	{name: "61_PerKeyOrderThroughRetry", run: keyOrderThroughRetry, needs: []need{ordered}},
	{name: "62_PauseResumeDrain", run: pauseResumeDrain, needs: []need{eng}},
	{name: "63_CountsEqualScan", run: countsEqualScan},
	{name: "OldestByLaneAndState", run: oldestByLane},
	{name: "64_OrphanAuditorRepairs", run: noOrphans, needs: []need{crash}},
	{name: "65_DurabilityFindings", run: durabilityFindings, basic: true},
	{name: "66_SchemaUpgradeFromEveryRelease", run: upgrade, needs: []need{releases}},
	{name: "67_CloseLeavesNoGoroutine", run: closeLeavesNothing},
	{name: "BackupIsComplete", run: backup},
	{name: "TrimCountsWhatItRemoves", run: trim},
}

func keyOrderThroughRetry(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	for i := range 12 {
		c.publish(redrive.Message{ID: fmt.Sprintf("%c%d", 'a'+i%3, i/3), Key: string(rune('a' + i%3))})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	ended := map[string][]string{}
	for range 400 {
		got := append(c.claim(c.ask(3)), c.claim(c.lane(3, redrive.LaneRetry))...)
		keys := map[string]bool{}
		for _, d := range got {
			if keys[d.Key] {
				c.Errorf("two messages of key %s are out at once", d.Key)
			}
			keys[d.Key] = true
		}
		for _, d := range got {
			switch rng.IntN(4) {
			case 0:
				c.noError(c.settle(retry(d, 0)), "retry")
			case 1:
				c.noError(c.settle(release(d, 0)), "release")
			default:
				c.done(d)
				ended[d.Key] = append(ended[d.Key], d.ID)
			}
		}
		if c.counts().AllWaiting() == 0 {
			break
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		c.equal("order of key "+key, ended[key], []string{key + "0", key + "1", key + "2", key + "3"})
	}
}

// countsEqualScan does many things at random and compares what is counted with what
// is found.
func countsEqualScan(c *C) {
	seed := rand.Uint64()
	c.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c.configure(driver.QueueSettings{OrderByKey: true})
	published := 0
	for step := range 150 {
		switch rng.IntN(6) {
		case 0, 1:
			msgs := make([]redrive.Message, 1+rng.IntN(5))
			for i := range msgs {
				published++
				msgs[i] = redrive.Message{ID: fmt.Sprintf("m%05d", published), Body: noise(rng.IntN(100))}
				if rng.IntN(3) == 0 {
					msgs[i].Key = fmt.Sprintf("key-%d", rng.IntN(3))
				}
				if rng.IntN(5) == 0 {
					msgs[i].Delay = time.Hour
				}
			}
			c.publish(msgs...)
		case 2, 3, 4:
			r := c.lane(1+rng.IntN(4), redrive.Lane(rng.IntN(driver.Lanes)))
			switch rng.IntN(8) {
			case 0:
				r.Dead = true
			case 1:
				r.Expired, r.MaxAge = true, time.Nanosecond
			}
			for _, d := range c.claim(r) {
				c.settleSomehow(rng, d)
			}
		default:
			changes := []driver.Action{driver.ActRedrive, driver.ActDrop, driver.ActArchive, driver.ActKill, driver.ActDueNow}
			ch := driver.Change{Action: changes[rng.IntN(len(changes))]}
			if published > 0 {
				id := fmt.Sprintf("m%05d", 1+rng.IntN(published))
				c.is(c.update(ch, id)[0].Err, ch.Action.String(), nil, redrive.ErrState, redrive.ErrNotFound)
			}
		}
		if step%3 == 0 {
			c.counts() // what a look keeps must not outlive the next change
		}
		if step%30 == 29 {
			c.balanced()
			c.compareCounts()
		}
	}
}

func (c *C) settleSomehow(rng *rand.Rand, d redrive.Delivery) {
	c.Helper()
	var s driver.Settlement
	switch rng.IntN(8) {
	case 0, 1, 2:
		s = settled(d, redrive.OutcomeDone)
	case 3:
		s = retry(d, 0)
	case 4:
		s = release(d, 0)
	case 5:
		s = deadly(d, redrive.ReasonPermanent)
	case 6:
		s = settled(d, redrive.OutcomeDrop)
		s.Reason = redrive.ReasonExpired
	default:
		return // it stays leased
	}
	c.noError(c.settle(s), "%s", s.Outcome)
}

// compareCounts compares the counts of the case's queue with what can be found.
func (c *C) compareCounts() {
	c.Helper()
	n := c.counts()
	var waiting [driver.Lanes]int64
	states := map[redrive.State]int64{}
	deadBy := map[redrive.Reason]int64{}
	size := int64(0)
	due, now := int64(0), c.now()
	died := time.Time{}
	for _, e := range c.find(redrive.Query{Queue: c.q, Bodies: true, Limit: 1000}) {
		states[e.State]++
		if e.State == redrive.StateDead {
			deadBy[e.Reason]++
			if died.IsZero() || e.DiedAt.Before(died) {
				died = e.DiedAt
			}
			continue
		}
		waiting[e.Lane]++
		if e.State == redrive.StateWaiting && !e.Due.After(now) {
			due++
		}
		size += int64(e.Size())
	}
	maps.DeleteFunc(n.Dead, func(_ redrive.Reason, k int64) bool { return k == 0 })
	if n.Waiting != waiting || n.Leased != states[redrive.StateLeased] || n.Blocked != states[redrive.StateBlocked] || !maps.Equal(n.Dead, deadBy) || n.Bytes != size || n.Due != due || !n.OldestDead.Equal(died) {
		c.Errorf("counted %+v; found waiting %v, by state %v, %d due, dead %v since %s, %d bytes", n, waiting, states, due, deadBy, died, size)
	}
}

// oldestByLane looks at the ages of what is due by lane, of suspects, and of the dead.
func oldestByLane(c *C) {
	now := c.now().Truncate(time.Millisecond)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	check := func(what string, due [driver.Lanes]time.Time, suspect, died time.Time) {
		c.Helper()
		n := c.counts()
		for lane := range due {
			if !n.OldestDue[lane].Equal(due[lane]) {
				c.Errorf("%s: the oldest of lane %s is due since %s, want %s", what, redrive.Lane(lane), n.OldestDue[lane], due[lane])
			}
		}
		if !n.OldestSuspect.Equal(suspect) || !n.OldestDead.Equal(died) {
			c.Errorf("%s: the oldest suspect is due since %s, want %s; the oldest dead since %s, want %s", what, n.OldestSuspect, suspect, n.OldestDead, died)
		}
	}
	none := time.Time{}
	check("nothing there", [driver.Lanes]time.Time{}, none, none)

	waits := func(id string, lane redrive.Lane, due time.Time, suspect bool) redrive.Entry {
		return redrive.Entry{Message: redrive.Message{Queue: c.q, ID: id}, State: redrive.StateWaiting, Lane: lane, Due: due, Suspect: suspect}
	}
	died := func(id string, at time.Time) redrive.Entry {
		return redrive.Entry{Message: redrive.Message{Queue: c.q, ID: id}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: at}
	}
	_, err := c.store.Apply(c.ctx, driver.Batch{Entered: driver.EnteredImported, Put: []redrive.Entry{
		waits("fresh-1", redrive.LaneFresh, ago(5), false), waits("fresh-2", redrive.LaneFresh, ago(6), false),
		waits("retry-1", redrive.LaneRetry, ago(20), false), waits("retry-2", redrive.LaneRetry, now.Add(time.Hour), false),
		waits("redrive", redrive.LaneRedrive, ago(3), false), waits("suspect", redrive.LaneFresh, ago(40), true),
		died("dead-1", ago(50)), died("dead-2", ago(70)), died("dead-3", ago(60)),
	}})
	c.noError(err, "put")
	check("put", [...]time.Time{ago(6), ago(20), ago(3)}, ago(40), ago(70))
	if n := c.counts(); !n.Oldest().Equal(ago(40)) {
		c.Errorf("the oldest of all is due since %s", n.Oldest())
	}

	held := c.one(c.lane(1, redrive.LaneRetry)) // what is claimed is not due
	c.done(c.one(isolated(c.ask(1))))
	c.redrive("dead-2")
	check("claimed and redriven", [...]time.Time{ago(6), none, ago(3)}, none, ago(60))
	c.noError(c.settle(deadly(held, redrive.ReasonPermanent)), "settle dead")
	for _, id := range []string{"dead-1", "dead-3"} {
		c.noError(c.update(driver.Change{Action: driver.ActDrop}, id)[0].Err, "drop %s", id)
	}
	check("a new dead one", [...]time.Time{ago(6), none, ago(3)}, none, c.entry("retry-1").DiedAt)
	c.balanced()
}

// noOrphans crashes between claims and settlements, and then everything must still be
// reachable.
func noOrphans(c *C) {
	const n = 30
	c.configure(driver.QueueSettings{OrderByKey: true})
	for i := range n {
		m := redrive.Message{ID: fmt.Sprintf("m%04d", i)}
		if i%3 == 0 {
			m.Key = "key"
		}
		c.publish(m)
	}
	ended := 0
	for range 4 {
		got := append(c.claim(c.short(6)), c.claim(isolated(c.short(1)))...)
		if len(got) > 2 {
			c.done(got[0])
			c.noError(c.settle(retry(got[1], 0)), "retry")
			ended++
		}
		c.use(c.f.Crash(c, c.store))
		c.balanced()
		c.runOut()
	}
	if left := c.drain(); len(left) != n-ended {
		c.Errorf("%d of %d messages could be claimed after the crashes", len(left), n-ended)
	}
	c.holds(0, 0)
}

func durabilityFindings(c *C) {
	findings := c.src.Probe(c.ctx)
	if len(findings) == 0 {
		c.Errorf("the probe says nothing")
	}
	for _, v := range findings {
		if v.Level < driver.LevelOK || v.Level > driver.LevelRefused || v.Setting == "" || v.Promise == "" {
			c.Errorf("a finding without level, setting or promise: %+v", v)
		}
		if v.Level != driver.LevelOK && v.Hint == "" {
			c.Errorf("a finding that does not say what to change: %+v", v)
		}
	}
	if c.caps.Name == "" || c.caps.Identity == 0 {
		c.Errorf("caps %+v", c.caps)
	}
}

func upgrade(c *C) {
	for _, version := range slices.Sorted(maps.Keys(c.f.Releases)) {
		c.use(c.f.Releases[version](c))
		c.q = "upgrade"
		c.inState("waiting", redrive.StateWaiting)
		c.inState("dead", redrive.StateDead)
		c.redrive("dead")
		c.sameSet("messages of version "+version, c.drain(), []string{"waiting", "dead"})
		c.balanced()
	}
}

func closeLeavesNothing(c *C) {
	before := goleak.IgnoreCurrent()
	s := c.f.Open(c)
	c.noError(driver.FirstError(s.Publish(c.ctx, []redrive.Message{{Queue: c.q}})), "publish")
	_, err := s.Claim(c.ctx, c.ask(1))
	c.noError(err, "claim")
	waiting := make(chan error, 1)
	ctx, cancel := context.WithTimeout(c.ctx, c.f.Patience)
	defer cancel()
	go func() {
		for {
			if _, err := s.Wait(ctx, []driver.Watch{{Queue: c.q, Since: 1 << 40}, {Queue: "other", Since: 1 << 40}}); err != nil {
				waiting <- err
				return
			}
		}
	}()
	c.noError(s.Close(), "close")
	c.is(<-waiting, "Wait after Close", redrive.ErrClosed)
	c.is(at(s.Publish(c.ctx, []redrive.Message{{Queue: c.q}}), 0), "Publish after Close", redrive.ErrClosed)
	_, err = s.Claim(c.ctx, c.ask(1))
	c.is(err, "Claim after Close", redrive.ErrClosed)
	c.is(at(s.Settle(c.ctx, []driver.Settlement{{Outcome: redrive.OutcomeDone}}), 0), "Settle after Close", redrive.ErrClosed)
	c.noError(s.Close(), "second Close")
	if err := goleak.Find(before); err != nil {
		c.Errorf("after Close: %v", err)
	}
}

func backup(c *C) {
	c.publish(redrive.Message{ID: "in-the-backup", Body: []byte("b")})
	var b bytes.Buffer
	err := c.store.Backup(c.ctx, &b)
	c.is(err, "backup", nil, redrive.ErrUnsupported)
	if err == nil && b.Len() == 0 {
		c.Errorf("an empty backup")
	}
}

func trim(c *C) {
	all := func(r driver.Retention, limit int) (t driver.Trimmed) {
		c.Helper()
		for range 1000 {
			got, err := c.store.Trim(c.ctx, r, limit)
			c.noError(err, "trim")
			if got == (driver.Trimmed{}) {
				return t
			}
			if got.Dead > int64(limit) {
				c.Errorf("trimmed %d dead letters in one call, want at most %d", got.Dead, limit)
			}
			t.Dead += got.Dead
		}
		c.Fatalf("trim does not come to an end")
		return t
	}
	for i := range 30 { // one after the other, so that the oldest are known
		c.publish(redrive.Message{ID: fmt.Sprintf("m%04d", i+1)})
		c.kill(1, redrive.ReasonPermanent)
	}
	if t := all(driver.Retention{Queue: c.q, DeadKeep: 20}, 3); t.Dead != 10 {
		c.Errorf("%d trimmed, want 10", t.Dead)
	}
	c.inState("m0010", 0)
	c.inState("m0011", redrive.StateDead)
	if t := all(driver.Retention{Queue: c.q, DeadKeep: 15, Archived: true}, 100); t.Dead != 5 {
		c.Errorf("%d trimmed, want 5", t.Dead)
	}
	if n := c.counts(); n.Ledger.Dropped != 10 || n.Ledger.Archived != 5 || n.AllDead() != 15 {
		c.Errorf("dropped %d, archived %d, dead %d; want 10, 5, 15", n.Ledger.Dropped, n.Ledger.Archived, n.AllDead())
	}
	c.pass(4 * c.tick)
	c.publish(redrive.Message{ID: "young"})
	c.kill(1, redrive.ReasonPermanent)
	if t := all(driver.Retention{DeadAge: 2 * c.tick}, 100); t.Dead != 15 {
		c.Errorf("%d trimmed by age, want 15", t.Dead)
	}
	c.inState("young", redrive.StateDead)
}

var _ testing.TB = (*C)(nil)
