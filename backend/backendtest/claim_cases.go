package backendtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var claimCases = []testCase{
	{name: "13_ClaimEmptyReturnsAtOnce", run: claimEmpty, basic: true},
	{name: "14_ClaimExactlyLimit", run: claimExactlyLimit, basic: true},
	{name: "15_TwoClaimersDisjoint", run: claimersDisjoint, basic: true},
	{name: "16_LeaseFromClaimNotPublish", run: leaseFromClaim, basic: true},
	{name: "17_ExpiredIsReclaimed", run: expiredIsReclaimed, needs: []need{leases, claimRecords}, basic: true},
	{name: "18_ReclaimRaisesToken", run: reclaimRaisesToken, needs: []need{fenced}},
	{name: "19_AttemptCountsCrash", run: attemptCountsCrash, needs: []need{claimRecords}, basic: true},
	{name: "20_ReleaseGivesAttemptBack", run: releaseGivesAttemptBack, basic: true},
	{name: "21_ExtendKeepsOwnership", run: extendKeepsOwnership, basic: true},
	{name: "22_ExtendAfterExpiryIsLost", run: extendAfterExpiry, needs: []need{leases, claimRecords}, basic: true},
	{name: "23_ExtendDoesNotCountAttempt", run: extendDoesNotCount},
	{name: "LeaseEndsInTime", run: leaseEndsInTime, needs: []need{leases, deadLetters}},
	{name: "24_WakeUpLostStillPolled", run: wakeUpLost, basic: true},
	{name: "25_ClaimOrderByLaneDueSeq", run: claimOrder},
	{name: "26_LanesNoStarvation", run: lanesNoStarvation},
	{name: "27_KilledDuringWaitLosesNothing", run: killedDuringWait, basic: true},
	{name: "28_ClientClock+1hAnd-1h", run: clientClock, needs: []need{skewed}},
}

func claimEmpty(c *C) {
	c.none(c.ask(10))
	if c.store != nil {
		c.none(isolated(c.ask(1)))
		c.none(dead(c.ask(1)))
		for what, r := range map[string]driver.ClaimRequest{
			"max 0":    {Queue: c.q, Lease: long, Instance: instance},
			"no lease": {Queue: c.q, Max: 1, Instance: instance},
		} {
			_, err := c.src.Claim(c.ctx, r)
			c.is(err, what, redrive.ErrInvalid)
		}
	}
	events, err := c.src.Wait(c.ctx, []driver.Watch{{Queue: c.q}})
	if err != nil || len(events) != 1 || events[0].Queue != c.q {
		c.Fatalf("a first Wait returned %+v, %v; want the queue's state at once", events, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
	defer cancel()
	for { // a spurious event is allowed; an end without one is not
		events, err = c.src.Wait(ctx, []driver.Watch{{Queue: c.q, Since: events[0].Version}})
		if err != nil {
			break
		}
		if len(events) == 0 {
			c.Fatalf("Wait returned neither an event nor an error")
		}
	}
	c.is(err, "Wait after its deadline", context.DeadlineExceeded)
	if ctx.Err() == nil {
		c.Errorf("Wait returned %v before its deadline", err)
	}
}

func claimExactlyLimit(c *C) {
	c.publishN(10)
	seen := map[string]bool{}
	for _, n := range []int{3, 3, 3} {
		for _, id := range ids(c.get(n, c.ask(n))) {
			if seen[id] {
				c.Errorf("%s was claimed twice", id)
			}
			seen[id] = true
		}
	}
	c.get(1, c.ask(1))
	c.none(c.ask(3))
}

func claimersDisjoint(c *C) {
	const claimers, n = 16, 10_000
	c.publishN(n)
	var mu sync.Mutex
	seen := make(map[string]int, n)
	var wg sync.WaitGroup
	for i := range claimers {
		wg.Go(func() {
			r := c.ask(50)
			r.Instance = fmt.Sprintf("claimer-%d", i)
			for {
				got, err := c.src.Claim(c.ctx, r)
				if err != nil {
					c.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for j := range got {
					seen[got[j].ID]++
				}
				all := len(seen) == n
				mu.Unlock()
				if all || len(got) == 0 && c.store != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != n {
		c.Errorf("%d of %d messages were claimed", len(seen), n)
	}
	for id, times := range seen {
		if times != 1 {
			c.Fatalf("%s was claimed %d times", id, times)
		}
	}
	if c.store != nil {
		if got := c.counts(); got.Leased != n {
			c.Errorf("%d leased, want %d", got.Leased, n)
		}
	}
}

func leaseFromClaim(c *C) {
	c.publish(redrive.Message{ID: "m"})
	c.runOut()
	c.runOut()
	r := c.short(1)
	r.Lease = 2 * c.lease
	d := c.one(r)
	if d.Attempt != 1 || d.Suspect && c.caps.RecordsClaims {
		c.Errorf("attempt %d, suspect %t of a message that only waited", d.Attempt, d.Suspect)
	}
	c.pass(c.lease)
	c.none(c.ask(1))
	if c.store != nil {
		c.none(isolated(c.ask(1)))
		c.inState("m", redrive.StateLeased)
	}
	c.done(d)
	c.none(c.ask(1))
}

func expiredIsReclaimed(c *C) {
	c.publishN(3)
	c.get(3, c.short(3))
	c.none(c.ask(3))
	c.none(isolated(c.ask(3)))
	c.runOut()
	c.none(c.ask(3)) // suspects are claimed in isolation
	var seen []string
	for range 3 {
		d := c.one(isolated(c.ask(1)))
		if !d.Suspect || d.Attempt != 2 || d.Crashes != 0 {
			c.Errorf("%s: suspect %t, attempt %d, crashes %d; want true, 2, 0", d.ID, d.Suspect, d.Attempt, d.Crashes)
		}
		seen = append(seen, d.ID)
		c.done(d)
	}
	c.sameSet("reclaimed", seen, []string{"m0001", "m0002", "m0003"})
	c.none(isolated(c.ask(1)))
}

func reclaimRaisesToken(c *C) {
	c.publish(redrive.Message{ID: "m"})
	last := uint64(0)
	check := func(d redrive.Delivery, after string) {
		c.Helper()
		if d.Receipt.Token <= last {
			c.Errorf("after %s the token is %d, it was %d", after, d.Receipt.Token, last)
		}
		last = d.Receipt.Token
	}
	d := c.one(c.ask(1))
	check(d, "the publish")
	c.noError(c.settle(release(d, 0)), "release")
	d = c.one(c.ask(1))
	check(d, "a release")
	c.noError(c.settle(retry(d, 0)), "retry")
	check(c.one(func() driver.ClaimRequest { r := c.short(1); r.Lane = redrive.LaneRetry; return r }()), "a retry")
	c.runOut()
	d = c.one(isolated(c.ask(1)))
	check(d, "a lease that ran out")
	c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	d = c.one(dead(c.ask(1)))
	check(d, "death")
	c.noError(c.settle(release(d, 0)), "release of a dead letter")
	c.redrive("m")
	d = c.one(c.lane(1, redrive.LaneRedrive))
	check(d, "a redrive")
	c.done(d)
}

func attemptCountsCrash(c *C) {
	c.publish(redrive.Message{ID: "m"})
	for i, want := range []struct{ attempt, crashes int }{{1, 0}, {2, 0}, {3, 1}, {4, 2}} {
		r := c.short(1)
		r.Isolated = i > 0
		d := c.one(r)
		if d.Attempt != want.attempt || d.Crashes != want.crashes || d.Failures != 0 {
			c.Errorf("claim %d: attempt %d, crashes %d, failures %d; want %d, %d, 0", i+1, d.Attempt, d.Crashes, d.Failures, want.attempt, want.crashes)
		}
		c.runOut()
	}
	d := c.one(isolated(c.ask(1)))
	if d.Crashes != 3 || d.Attempt != 5 {
		c.Errorf("attempt %d, crashes %d; want 5, 3", d.Attempt, d.Crashes)
	}
	c.done(d)
}

func releaseGivesAttemptBack(c *C) {
	c.publish(redrive.Message{ID: "m"})
	for range 5 {
		d := c.one(c.ask(1))
		if d.Attempt != 1 || d.Lane != redrive.LaneFresh {
			c.Fatalf("attempt %d in lane %s; want 1 in fresh", d.Attempt, d.Lane)
		}
		c.noError(c.settle(release(d, 0)), "release")
	}
	d := c.one(c.ask(1))
	if c.store != nil {
		s := release(d, 0)
		s.Failure = failure(1, "not now")
		c.noError(c.settle(s), "release with a failure")
		d = c.one(c.ask(1))
		if e := c.entry("m"); d.Attempt != 1 || d.Failures != 0 || e.History.Latest() == nil || e.History.Latest().Message != "not now" {
			c.Errorf("attempt %d, failures %d, history %+v; want 1, 0, recorded but not counted", d.Attempt, d.Failures, e.History)
		}
	}
	c.done(d)
}

func extendKeepsOwnership(c *C) {
	c.publish(redrive.Message{ID: "m"})
	d := c.one(c.short(1))
	for range 4 {
		c.pass(c.lease / 2)
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, c.lease)), "extend")
		c.none(c.ask(1))
		if c.store != nil {
			c.none(isolated(c.ask(1)))
		}
	}
	c.done(d)
	c.is(at(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, c.lease), 0), "extend after the settlement", redrive.ErrLeaseLost, redrive.ErrNotFound)
}

func extendAfterExpiry(c *C) {
	c.publish(redrive.Message{ID: "lost"}, redrive.Message{ID: "kept"})
	got := c.get(2, c.short(2))
	lost, kept := got[0], got[1]
	c.pass(c.lease / 2)
	c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{kept.Receipt}, long)), "extend")
	c.pass(c.lease)
	errs := c.src.Extend(c.ctx, []redrive.Receipt{lost.Receipt, kept.Receipt}, c.lease)
	c.is(at(errs, 0), "extend of a lease that ran out", redrive.ErrLeaseLost)
	c.is(at(errs, 1), "extend beside it", nil)
	again := c.one(isolated(c.ask(1)))
	if again.ID != lost.ID {
		c.Fatalf("claimed %s, want %s", again.ID, lost.ID)
	}
	c.is(at(c.src.Extend(c.ctx, []redrive.Receipt{lost.Receipt}, long), 0), "extend after it was claimed again", redrive.ErrLeaseLost)
	c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{again.Receipt}, long)), "extend by the new holder")
	c.done(again, kept)
}

func extendDoesNotCount(c *C) {
	c.publish(redrive.Message{ID: "m"})
	d := c.one(c.ask(1))
	for range 10 {
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, long)), "extend")
	}
	if e := c.entry("m"); e.Attempts != 1 || e.Token != d.Receipt.Token {
		c.Errorf("attempts %d, token %d; want 1, %d", e.Attempts, e.Token, d.Receipt.Token)
	}
	c.noError(c.settle(retry(d, 0)), "retry")
	if d = c.one(c.lane(1, redrive.LaneRetry)); d.Attempt != 2 {
		c.Errorf("attempt %d, want 2", d.Attempt)
	}
	c.done(d)
}

// leaseEndsInTime: a lease ends after the time that was asked for, whether it was claimed or
// extended, and then another gets the message.
func leaseEndsInTime(c *C) {
	c.publish(redrive.Message{ID: "dead"}, redrive.Message{ID: "m"})
	c.kill(1, redrive.ReasonPermanent)
	lasts := func(what string, lease time.Duration, take func()) {
		c.Helper()
		const exact = 10 * time.Millisecond // what stores round
		from := c.now()
		take()
		if e, to := c.entry("m"), c.now(); e.Until.Before(from.Add(lease-exact)) || e.Until.After(to.Add(lease+exact)) {
			c.Errorf("%s between %s and %s for %s ends at %s", what, from, to, lease, e.Until)
		}
	}
	var d redrive.Delivery
	extend := func(d redrive.Delivery, lease time.Duration) {
		c.Helper()
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, lease)), "extend")
	}
	lasts("a claim", long, func() { d = c.one(c.ask(1)) })
	lasts("an extension", 2*long, func() { extend(d, 2*long) })
	lasts("a shorter extension", long, func() { extend(d, long) })
	letter := c.one(dead(c.ask(1)))
	extend(d, c.lease)
	extend(letter, c.lease)
	c.runOut()
	c.equal("claimed when the lease had ended", ids(c.get(1, isolated(c.ask(1)))), []string{"m"})
	c.equal("so is the dead letter", ids(c.get(1, dead(c.ask(1)))), []string{"dead"})
}

func claimOrder(c *C) {
	c.publish(redrive.Message{ID: "later", Delay: 3 * c.tick}, redrive.Message{ID: "soon", Delay: 2 * c.tick})
	c.publish(redrive.Message{ID: "first"})
	c.publish(redrive.Message{ID: "second"}, redrive.Message{ID: "third"})
	c.publish(redrive.Message{ID: "retried"}, redrive.Message{ID: "retried-too"})
	var list []redrive.Delivery
	for _, d := range c.get(5, c.ask(5)) {
		if d.ID == "retried" || d.ID == "retried-too" {
			c.noError(c.settle(retry(d, 0)), "retry")
			continue
		}
		list = append(list, d)
	}
	c.inOrder("order of publication", ids(list), []string{"first", "second", "third"})
	c.done(list...)
	c.pass(4 * c.tick)
	c.publish(redrive.Message{ID: "last"})
	fresh := c.get(3, c.ask(3))
	c.inOrder("fresh lane by due time", ids(fresh), []string{"soon", "later", "last"})
	retried := c.get(2, c.lane(2, redrive.LaneRetry))
	c.inOrder("retry lane", ids(retried), []string{"retried", "retried-too"})
	for _, d := range retried {
		if d.Lane != redrive.LaneRetry {
			c.Errorf("%s came from lane %s", d.ID, d.Lane)
		}
	}
	c.done(fresh...)
	c.done(retried...)
}

func lanesNoStarvation(c *C) {
	c.publishN(500)
	for _, d := range c.get(500, c.ask(500)) {
		c.noError(c.settle(retry(d, 0)), "retry")
	}
	c.publish(redrive.Message{ID: "dead"})
	c.kill(1, redrive.ReasonPermanent)
	c.redrive("dead")
	c.publish(redrive.Message{ID: "fresh"})
	if n := c.counts(); n.Waiting != [driver.Lanes]int64{1, 500, 1} {
		c.Errorf("waiting by lane %v, want [1 500 1]", n.Waiting)
	}
	c.equal("fresh lane behind 500 retries", ids(c.get(1, c.ask(10))), []string{"fresh"})
	c.equal("redrive lane behind 500 retries", ids(c.get(1, c.lane(10, redrive.LaneRedrive))), []string{"dead"})
	c.get(100, c.lane(100, redrive.LaneRetry))
}

func clientClock(c *C) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		wrong := c.f.Skewed(c, c.store, skew)
		name := "m" + skew.String()
		err := driver.FirstError(wrong.Publish(c.ctx, []redrive.Message{
			{Queue: c.q, ID: name}, {Queue: c.q, ID: name + "-delayed", Delay: c.tick},
		}))
		c.noError(err, "publish by a client whose clock is off by %s", skew)
		d := c.one(c.ask(2))
		c.done(d)
		c.pass(c.tick + c.tick/4)
		got, err := wrong.Claim(c.ctx, c.short(1))
		c.noError(err, "claim")
		c.equal("what is due for the wrong clock", ids(got), []string{name + "-delayed"})
		c.none(isolated(c.ask(1)))
		c.runOut()
		d = c.one(isolated(c.ask(1)))
		c.done(d)
	}
}
