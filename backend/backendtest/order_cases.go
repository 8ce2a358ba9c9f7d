package backendtest

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Order by key, expiry, and what a claim asks for.
var orderCases = []testCase{
	{name: "OrderOnlyTheHeadIsClaimable", run: onlyHead, needs: []need{ordered}},
	{name: "OrderHeldByDeadHead", run: deadHeadHolds, needs: []need{ordered}},
	{name: "OrderDeadHeadLetsGo", run: deadHeadLetsGo, needs: []need{ordered}},
	{name: "OrderDelayedHeadHolds", run: delayedHead, needs: []need{ordered, delays}},
	{name: "OrderChangesFreeTheNext", run: changesFreeNext, needs: []need{ordered}},
	{name: "OrderLeaseOfAnExpiredFollowerGoesOn", run: expiredFollower, needs: []need{ordered, leases}},
	{name: "ClaimByKind", run: claimByKind, needs: []need{filters}},
	{name: "ClaimExpired", run: claimExpired, needs: []need{expires}},
	{name: "ClaimOlderThanMaxAge", run: claimMaxAge},
}

func (c *C) keyed(key string, names ...string) {
	c.Helper()
	for _, id := range names {
		c.publish(redrive.Message{ID: id, Key: key})
	}
}

func onlyHead(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.keyed("a", "a1", "a2", "a3")
	c.keyed("b", "b1", "b2")
	c.keyed("", "x1", "x2")
	got := c.get(4, c.ask(10))
	c.sameSet("heads and what has no key", ids(got), []string{"a1", "b1", "x1", "x2"})
	if n := c.counts(); n.Blocked != 3 || n.AllWaiting() != 7 {
		c.Errorf("blocked %d of %d, want 3 of 7", n.Blocked, n.AllWaiting())
	}
	c.inState("a2", redrive.StateBlocked)
	a1 := got[slices.IndexFunc(got, func(d redrive.Delivery) bool { return d.ID == "a1" })]
	c.noError(c.settle(retry(a1, 0)), "retry")
	c.none(c.ask(10))
	a1 = c.one(c.lane(10, redrive.LaneRetry))
	c.done(a1)
	c.equal("what the end of the head freed", ids(c.get(1, c.ask(10))), []string{"a2"})
	c.inState("a3", redrive.StateBlocked)
}

// expiredFollower: what was claimed as expired behind the head of its key is still leased when
// the head ends.
func expiredFollower(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.keyed("a", "a1", "a2")
	head := c.one(c.ask(1))
	c.pass(c.tick)
	req := c.ask(1)
	req.Expired, req.MaxAge, req.Lease = true, time.Millisecond, time.Minute
	follower := c.one(req)
	if follower.ID != "a2" {
		c.Fatalf("claimed %s, want a2", follower.ID)
	}
	c.done(head)
	req = c.ask(1)
	req.Isolated = true
	c.none(req)
	if errs := c.src.Extend(c.ctx, []redrive.Receipt{follower.Receipt}, time.Minute); errs != nil && errs[0] != nil {
		c.Errorf("extend after the head ended: %v", errs[0])
	}
	c.done(follower)
}

func deadHeadHolds(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.keyed("a", "a1", "a2", "a3")
	c.keyed("b", "b1")
	for _, d := range c.get(2, c.ask(9)) {
		if d.ID == "a1" {
			c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
			continue
		}
		c.done(d)
	}
	c.none(c.ask(9))
	c.redrive("a1")
	c.none(c.ask(9))
	d := c.one(c.lane(9, redrive.LaneRedrive))
	c.noError(c.settle(retry(d, 0)), "retry")
	c.none(c.ask(9))
	c.done(c.one(c.lane(9, redrive.LaneRetry)))
	d = c.one(c.ask(9))
	if d.ID != "a2" {
		c.Errorf("claimed %s, want a2", d.ID)
	}
	c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	c.none(c.ask(9))
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "a2")[0].Err, "drop")
	c.equal("after the dead head was dropped", ids(c.get(1, c.ask(9))), []string{"a3"})
}

func deadHeadLetsGo(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true, DeadRelease: true})
	c.keyed("a", "a1", "a2")
	c.noError(c.settle(deadly(c.one(c.ask(9)), redrive.ReasonPermanent)), "dead")
	d := c.one(c.ask(9))
	if d.ID != "a2" {
		c.Errorf("claimed %s, want a2", d.ID)
	}
	c.redrive("a1")
	both := append(c.claim(c.lane(9, redrive.LaneRedrive)), d)
	if len(both) != 1 {
		c.Errorf("%v are out at once", ids(both))
	}
	c.done(d)
	c.equal("the redriven one after it", c.drain(), []string{"a1"})
}

func delayedHead(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.publish(redrive.Message{ID: "a1", Key: "a", Delay: 2 * c.tick}, redrive.Message{ID: "a2", Key: "a"})
	c.none(c.ask(9))
	c.pass(2*c.tick + c.tick/2)
	d := c.one(c.ask(9))
	if d.ID != "a1" {
		c.Errorf("claimed %s, want a1", d.ID)
	}
	c.noError(c.settle(retry(d, 2*c.tick)), "retry")
	c.none(c.ask(9))
	c.pass(2*c.tick + c.tick/2)
	c.done(c.one(c.lane(9, redrive.LaneRetry)))
	c.done(c.one(c.ask(9)))
}

func changesFreeNext(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.keyed("a", "a1", "a2", "a3", "a4")
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "a1")[0].Err, "drop of the head")
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "a3")[0].Err, "drop of a blocked one")
	d := c.one(c.ask(9))
	if d.ID != "a2" {
		c.Errorf("claimed %s, want a2", d.ID)
	}
	c.done(d)
	c.equal("after it", c.drain(), []string{"a4"})

	c.keyed("b", "b1", "b2", "b3")
	r := c.ask(9)
	r.Expired, r.MaxAge = true, time.Nanosecond
	c.pass(c.tick)
	for _, d := range c.get(3, r) { // whatever the order of keys
		c.noError(c.settle(release(d, 0)), "release")
	}
	if n := c.counts(); n.Blocked != 2 {
		c.Errorf("%d are blocked after they were given back, want 2", n.Blocked)
	}
	c.equal("in their order", c.drain(), []string{"b1", "b2", "b3"})
}

func claimByKind(c *C) {
	for _, kind := range []string{"", "a", "b", "c"} {
		c.publish(redrive.Message{ID: "1" + kind, Kind: kind}, redrive.Message{ID: "2" + kind, Kind: kind})
	}
	try := func(what string, change func(*driver.ClaimRequest), want ...string) {
		c.Helper()
		r := c.ask(10)
		change(&r)
		got := c.claim(r)
		c.sameSet(what, ids(got), want)
		for _, d := range got {
			c.noError(c.settle(release(d, 0)), "release")
		}
	}
	try("kinds a and c", func(r *driver.ClaimRequest) { r.Kinds = []string{"a", "c", "unheard-of"} }, "1a", "2a", "1c", "2c")
	try("no kind", func(r *driver.ClaimRequest) { r.Kinds = []string{""} }, "1", "2")
	try("all but a and none", func(r *driver.ClaimRequest) { r.ExceptKinds = []string{"a", ""} }, "1b", "2b", "1c", "2c")
	try("all but some ids", func(r *driver.ClaimRequest) { r.ExceptIDs = []string{"1", "2", "1a", "2a", "1b"} }, "2b", "1c", "2c")
	try("all together", func(r *driver.ClaimRequest) {
		r.Kinds, r.ExceptKinds, r.ExceptIDs = []string{"a", "b"}, []string{"b"}, []string{"2a"}
	}, "1a")
	try("none of them", func(r *driver.ClaimRequest) { r.Kinds = []string{"unheard-of"} })
	r := c.ask(1)
	r.Kinds = []string{"c"}
	first := c.get(1, r)
	c.inOrder("those of the last kind", ids(append(first, c.get(1, r)...)), []string{"1c", "2c"})
}

func claimExpired(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: c.caps.Ordered})
	soon := c.now().Add(2 * c.tick)
	c.publish(
		redrive.Message{ID: "fresh", ExpiresAt: soon},
		redrive.Message{ID: "delayed", ExpiresAt: soon, Delay: time.Hour},
		redrive.Message{ID: "head", Key: "k"},
		redrive.Message{ID: "behind", Key: "k", ExpiresAt: soon},
		redrive.Message{ID: "later", ExpiresAt: c.now().Add(24 * time.Hour)},
		redrive.Message{ID: "never"},
		redrive.Message{ID: "kept", ExpiresAt: soon, Kind: "kept"},
		redrive.Message{ID: "leased", ExpiresAt: soon},
	)
	r := c.ask(10)
	r.ExceptIDs = []string{"fresh", "head", "never", "kept", "later"}
	leased := c.one(r)
	expired := c.ask(10)
	expired.Expired, expired.ExceptKinds = true, []string{"kept"}
	c.none(expired)
	c.pass(3 * c.tick)
	got := c.get(3, func() driver.ClaimRequest { r := expired; r.Max = 3; return r }())
	c.sameSet("expired", ids(got), []string{"fresh", "delayed", "behind"})
	c.none(expired)
	for _, d := range got {
		if !d.ExpiresAt.Equal(soon) && d.ExpiresAt.Sub(soon).Abs() > time.Millisecond {
			c.Errorf("%s expires at %s, want %s", d.ID, d.ExpiresAt, soon)
		}
		c.noError(c.settle(deadly(d, redrive.ReasonExpired)), "dead")
	}
	c.done(leased)
	c.holds(4, 3)
	c.sameSet("not expired, or not asked for", c.drain(), []string{"head", "later", "never", "kept"})
}

func claimMaxAge(c *C) {
	c.publish(redrive.Message{ID: "old"}, redrive.Message{ID: "old-delayed", Delay: time.Hour})
	c.pass(4 * c.tick)
	c.publish(redrive.Message{ID: "young"})
	r := c.ask(2)
	r.Expired = true
	c.none(r) // no age is asked for
	r.MaxAge = 2 * c.tick
	got := c.get(2, r)
	c.sameSet("older than MaxAge", ids(got), []string{"old", "old-delayed"})
	c.none(r)
	c.done(got...)
	c.equal("what is young", c.drain(), []string{"young"})
}
