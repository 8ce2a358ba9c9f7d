package backendtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Faults that were seen in other systems.
var trapCases = []testCase{
	{name: "T1_CloseWhileInFlightKeepsAll", run: closeKeepsAll, needs: []need{reopen}, basic: true},
	{name: "T1b_SlowHandlerKeepsItsNeighbours", run: slowKeepsNeighbours, needs: []need{leases, claimRecords}, basic: true},
	{name: "T3_ManyOldDeadLettersDoNotBreakAMove", run: manyOldDead},
	{name: "T4_LateResultWhileAnotherAttemptRuns", run: lateResult, needs: []need{fenced, leases}},
	{name: "T5_StaleSettleThenExtend", run: staleThenExtend, needs: []need{fenced, leases, claimRecords}, basic: true},
	{name: "T6_ConcurrentReceiversSeeNoErrors", run: noErrorsUnderContention, basic: true},
	{name: "T7_AckOfAnothersClaimIsRefused", run: anothersClaim, needs: []need{fenced, leases}},
	{name: "T8_DeadInstanceLeavesNothingBehind", run: deadInstance, needs: []need{crash}},
	{name: "T13_OutOfOrderSettleKeepsTheRest", run: outOfOrder, needs: []need{reopen}, basic: true},
	{name: "T14_DelayedDoNotStallFresh", run: delayedDoNotStall, needs: []need{delays}, basic: true},
	{name: "T15_NothingIsInvisible", run: nothingInvisible, needs: []need{leases}},
	{name: "T16_LateAckDoesNotUndoARetry", run: lateAckKeepsRetry, needs: []need{fenced, leases, claimRecords}, basic: true},
}

func closeKeepsAll(c *C) {
	c.publishN(10)
	got := c.get(10, c.short(10))
	c.done(got[0])
	c.again()
	c.holds(9, 0)
	c.runOut()
	c.rest(9)
}

func slowKeepsNeighbours(c *C) {
	c.publishN(10)
	got := c.get(10, c.short(10))
	c.done(got[0])
	c.runOut() // the second handler takes longer than the lease of all
	c.noError(c.settle(settled(got[1], redrive.OutcomeDone)), "the slow one")
	c.holds(8, 0)
	c.rest(8)
}

func manyOldDead(c *C) {
	const n = muchDead
	for base := 0; base < n; base += 500 {
		msgs := make([]redrive.Message, 500)
		for i := range msgs {
			msgs[i] = redrive.Message{ID: fmt.Sprintf("old-%04d", base+i)}
		}
		c.publish(msgs...)
		c.kill(500, redrive.ReasonPermanent)
	}
	c.pass(c.tick)
	cutoff := c.now()
	c.pass(c.tick)
	c.publish(redrive.Message{ID: "new", Body: []byte("b")})
	d := c.one(c.ask(1))
	s := deadly(d, redrive.ReasonExhausted)
	c.noError(c.settle(s), "dead")
	if e := c.entry("new"); e.State != redrive.StateDead || e.History.Latest() == nil || e.History.Latest().Message != s.Failure.Message {
		c.Errorf("the new dead letter: %s, %+v", e.State, e.History)
	}
	trimmed := int64(0)
	for range 1000 {
		t, err := c.store.Trim(c.ctx, driver.Retention{Queue: c.q, DeadAge: c.now().Sub(cutoff)}, n+1)
		c.noError(err, "trim")
		if t.Dead == 0 {
			break
		}
		trimmed += t.Dead
	}
	if trimmed != n {
		c.Errorf("%d trimmed, want %d", trimmed, n)
	}
	c.inState("new", redrive.StateDead)
}

func lateResult(c *C) {
	c.publish(redrive.Message{ID: "m"})
	var runs []redrive.Delivery
	for i := range 4 {
		r := c.short(1)
		r.Isolated = i > 0
		r.Instance = fmt.Sprintf("run-%d", i)
		runs = append(runs, c.one(r))
		if i < 3 {
			c.runOut()
		}
	}
	for i, d := range runs[:3] {
		c.is(c.settle(settled(d, redrive.OutcomeDone)), fmt.Sprintf("late result of run %d", i+1), redrive.ErrLeaseLost)
		c.is(c.settle(retry(d, 0)), fmt.Sprintf("late error of run %d", i+1), redrive.ErrLeaseLost)
	}
	if e := c.entry("m"); e.State != redrive.StateLeased || e.Instance != "run-3" || e.Attempts != 4 {
		c.Errorf("%s by %s at attempt %d; want leased by run-3 at 4", e.State, e.Instance, e.Attempts)
	}
	c.noError(c.settle(retry(runs[3], 0)), "result of the run that holds it")
	if e := c.entry("m"); e.History.Count != 1 {
		c.Errorf("%d failures recorded, want 1", e.History.Count)
	}
}

func staleThenExtend(c *C) {
	c.publish(redrive.Message{ID: "m"})
	a := c.one(c.short(1))
	c.runOut()
	b := c.one(isolated(c.ask(1)))
	c.is(c.settle(settled(a, redrive.OutcomeDone)), "A's late ack", redrive.ErrLeaseLost)
	c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{b.Receipt}, long)), "B's extension")
	c.inState("m", redrive.StateLeased)
	c.done(b)
	c.is(at(c.src.Extend(c.ctx, []redrive.Receipt{b.Receipt}, long), 0), "extension of what is gone", redrive.ErrNotFound, redrive.ErrLeaseLost)
}

func noErrorsUnderContention(c *C) {
	const n, receivers = 2000, 16
	c.publishN(n)
	var seen attempts
	var wg sync.WaitGroup
	for i := range receivers {
		wg.Go(func() {
			r := c.ask(1 + i%8)
			r.Instance = fmt.Sprintf("receiver-%d", i)
			for {
				got, err := c.src.Claim(c.ctx, r)
				if err != nil {
					c.Errorf("claim: %v", err)
					return
				}
				if len(got) == 0 && (c.store != nil || seen.size() == n) {
					return
				}
				list := make([]driver.Settlement, len(got))
				for j := range got {
					seen.add(got[j].ID)
					list[j] = settled(got[j], redrive.OutcomeDone)
				}
				for _, err := range c.src.Settle(c.ctx, list) {
					if err != nil {
						c.Errorf("settle: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	for id, times := range seen.n {
		if times != 1 {
			c.Errorf("%s was delivered %d times", id, times)
		}
	}
	if len(seen.n) != n {
		c.Errorf("%d of %d were delivered", len(seen.n), n)
	}
	c.holds(0, 0)
}

func anothersClaim(c *C) {
	c.publish(redrive.Message{ID: "m"})
	a := c.one(c.short(1))
	c.runOut()
	r := isolated(c.ask(1))
	r.Instance = "B"
	b := c.one(r)
	for _, s := range []driver.Settlement{settled(a, redrive.OutcomeDone), deadly(a, redrive.ReasonManual), release(a, 0)} {
		c.is(c.settle(s), "A's "+s.Outcome.String(), redrive.ErrLeaseLost)
	}
	if e := c.entry("m"); e.State != redrive.StateLeased || e.Instance != "B" {
		c.Errorf("it is %s by %q", e.State, e.Instance)
	}
	c.done(b)
}

func deadInstance(c *C) {
	c.publishN(3)
	r := c.short(3)
	r.Instance = "dies"
	c.get(3, r)
	c.use(c.f.Crash(c, c.store))
	c.runOut()
	var seen []string
	for range 3 {
		d := c.one(isolated(c.ask(1)))
		if d.Attempt != 2 || !d.Suspect {
			c.Errorf("%s: attempt %d, suspect %t; want 2, true", d.ID, d.Attempt, d.Suspect)
		}
		c.done(d)
		seen = append(seen, d.ID)
	}
	c.sameSet("after the instance died", seen, []string{"m0001", "m0002", "m0003"})
	c.holds(0, 0)
}

func outOfOrder(c *C) {
	c.publishN(6)
	got := c.get(6, c.short(6))
	c.done(got[5])
	c.again()
	c.inState(got[5].ID, 0)
	c.holds(5, 0)
	c.runOut()
	c.rest(5)
}

func delayedDoNotStall(c *C) {
	c.publishN(2)
	for _, d := range c.get(2, c.ask(2)) {
		c.noError(c.settle(release(d, time.Hour)), "release")
	}
	c.publish(redrive.Message{ID: "f1"}, redrive.Message{ID: "f2"}, redrive.Message{ID: "f3"})
	c.inOrder("fresh ones behind delayed ones", ids(c.get(3, c.ask(10))), []string{"f1", "f2", "f3"})
}

// nothingInvisible takes messages through attempts that all fail or run out, and each
// must stay where it can be seen and claimed.
func nothingInvisible(c *C) {
	c.publishN(4)
	for i := range 6 {
		for _, d := range c.claim(c.short(1)) {
			_ = d // runs out
		}
		for _, d := range c.claim(isolated(c.short(1))) {
			if i%2 == 0 {
				c.noError(c.settle(retry(d, 0)), "retry")
			}
		}
		for _, d := range c.claim(c.lane(1, redrive.LaneRetry)) {
			c.noError(c.settle(deadly(d, redrive.ReasonExhausted)), "dead")
		}
		c.runOut()
		if n := c.counts(); n.AllWaiting()+n.AllDead() != 4 {
			c.Fatalf("round %d: %d waiting and %d dead of 4", i, n.AllWaiting(), n.AllDead())
		}
		if found := c.find(redrive.Query{Queue: c.q}); len(found) != 4 {
			c.Fatalf("round %d: %v is all that can be seen of 4", i, entryIDs(found))
		}
	}
	left := int(c.counts().AllWaiting())
	if got := c.drain(); len(got) != left {
		c.Errorf("%d of %d waiting messages could be claimed", len(got), left)
	}
}

func lateAckKeepsRetry(c *C) {
	c.publish(redrive.Message{ID: "m"})
	a := c.one(c.short(1))
	c.runOut()
	b := c.one(isolated(c.ask(1)))
	c.is(c.settle(settled(a, redrive.OutcomeDone)), "A's late ack", redrive.ErrLeaseLost)
	c.noError(c.settle(retry(b, 0)), "B's retry")
	c.is(c.settle(settled(a, redrive.OutcomeDone)), "A's later ack", redrive.ErrLeaseLost)
	d := c.one(c.lane(1, redrive.LaneRetry))
	if d.Attempt != 3 || d.Suspect {
		c.Errorf("attempt %d, suspect %t; want 3, false", d.Attempt, d.Suspect)
	}
	c.done(d)
}
