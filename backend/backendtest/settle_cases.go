package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var settleCases = []testCase{
	{name: "29_AckRemoves", run: ackRemoves, basic: true},
	{name: "30_AckTwiceSecondStale", run: ackTwice, needs: []need{fenced, delays, deadLetters}, basic: true},
	{name: "31_SettleAfterExpiryUnclaimedSucceeds", run: settleAfterExpiry, needs: []need{leases}},
	{name: "32_AckAfterReclaimIsStale", run: staleAfterReclaim(func(d redrive.Delivery) driver.Settlement { return settled(d, redrive.OutcomeDone) }), needs: []need{fenced, leases}},
	{name: "33_RetryAfterReclaimIsStale", run: staleAfterReclaim(func(d redrive.Delivery) driver.Settlement { return retry(d, 0) }), needs: []need{fenced, leases}},
	{name: "34_DeadAfterReclaimIsStale", run: staleAfterReclaim(func(d redrive.Delivery) driver.Settlement { return deadly(d, redrive.ReasonPermanent) }), needs: []need{fenced, leases}},
	{name: "35_SettleUnknownThenRetryIdempotent", run: settleUnknown},
	{name: "36_BatchSettleMixedStale", run: batchSettleMixed, needs: []need{fenced, delays}, basic: true},
	{name: "37_SettleUsesOwnDeadline", run: settleOwnDeadline},
	{name: "38_SettleAfterReconnect", run: settleAfterReconnect, needs: []need{reopen}, basic: true},
}

func ackRemoves(c *C) {
	c.publishN(3)
	got := c.get(3, c.ask(3))
	c.done(got[1])
	c.done(got[0], got[2])
	c.none(c.ask(3))
	if c.store != nil {
		c.holds(0, 0)
		c.inState("m0001", 0)
		if n := c.counts(); n.Ledger.Done != 3 || n.Leased != 0 || n.Bytes != 0 {
			c.Errorf("counts after the settlement: %+v", n)
		}
	}
}

func ackTwice(c *C) {
	c.publish(redrive.Message{ID: "done"}, redrive.Message{ID: "retried"}, redrive.Message{ID: "dead"})
	for _, d := range c.get(3, c.ask(3)) {
		first := settled(d, redrive.OutcomeDone)
		switch d.ID {
		case "retried":
			first = retry(d, 0)
		case "dead":
			first = deadly(d, redrive.ReasonPermanent)
		}
		c.noError(c.settle(first), "settle %s", d.ID)
		for _, second := range []driver.Settlement{settled(d, redrive.OutcomeDone), retry(d, 0), release(d, 0), deadly(d, redrive.ReasonManual)} {
			c.is(c.settle(second), second.Outcome.String()+" after "+first.Outcome.String(), redrive.ErrLeaseLost, redrive.ErrNotFound)
		}
	}
	c.holds(1, 1)
	c.done(c.one(c.lane(3, redrive.LaneRetry)))
}

func settleAfterExpiry(c *C) {
	c.publishN(5)
	got := c.get(5, c.short(5))
	c.runOut()
	late := []driver.Settlement{
		settled(got[0], redrive.OutcomeDone), retry(got[1], 0), deadly(got[2], redrive.ReasonPermanent), release(got[3], 0),
	}
	for i, err := range c.src.Settle(c.ctx, late) {
		c.noError(err, "late %s", late[i].Outcome)
	}
	c.inState(got[0].ID, 0)
	c.inState(got[2].ID, redrive.StateDead)
	d := c.one(c.lane(1, redrive.LaneRetry))
	if d.ID != got[1].ID || d.Suspect || d.Crashes != 0 {
		c.Errorf("after a late retry: %s, suspect %t, crashes %d", d.ID, d.Suspect, d.Crashes)
	}
	c.done(d)
	c.sameSet("what is left", c.drain(), []string{got[3].ID, got[4].ID})
}

// staleAfterReclaim lets another claim the message, then the first holder settle.
func staleAfterReclaim(settlement func(redrive.Delivery) driver.Settlement) func(*C) {
	return func(c *C) {
		c.publish(redrive.Message{ID: "m", Body: []byte("b")})
		first := c.one(c.short(1))
		c.runOut()
		r := isolated(c.ask(1))
		r.Instance = "instance-2"
		second := c.one(r)
		c.is(c.settle(settlement(first)), "settlement by the first holder", redrive.ErrLeaseLost)
		e := c.entry("m")
		if e.State != redrive.StateLeased || e.Token != second.Receipt.Token || e.Instance != "instance-2" || e.History.Count != 0 {
			c.Errorf("the second holder's claim was changed: %+v", *e)
		}
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{second.Receipt}, long)), "extend by the second holder")
		c.done(second)
		c.is(c.settle(settlement(first)), "settlement by the first holder, later", redrive.ErrNotFound, redrive.ErrLeaseLost)
		c.holds(0, 0)
	}
}

func settleUnknown(c *C) {
	makers := map[string]func(redrive.Delivery) driver.Settlement{
		"done":    func(d redrive.Delivery) driver.Settlement { return settled(d, redrive.OutcomeDone) },
		"retry":   func(d redrive.Delivery) driver.Settlement { return retry(d, 0) },
		"dead":    func(d redrive.Delivery) driver.Settlement { return deadly(d, redrive.ReasonExhausted) },
		"release": func(d redrive.Delivery) driver.Settlement { return release(d, 0) },
	}
	for name, m := range makers {
		for i := range 20 {
			id := fmt.Sprintf("%s-%d", name, i)
			c.publish(redrive.Message{ID: id})
			d := c.one(c.ask(1))
			ctx, cancel := context.WithCancel(c.ctx)
			var wg sync.WaitGroup
			wg.Go(cancel)
			first := driver.FirstError(c.src.Settle(ctx, []driver.Settlement{m(d)}))
			wg.Wait()
			second := driver.FirstError(c.src.Settle(c.ctx, []driver.Settlement{m(d)}))
			c.is(second, "repetition of "+id, nil, redrive.ErrLeaseLost, redrive.ErrNotFound)
			if first == nil && second == nil {
				c.Errorf("%s was settled twice", id)
			}
			if first != nil && !errors.Is(first, redrive.ErrUnknown) && second != nil {
				c.Errorf("%s: %v was said, yet it was carried out", id, first)
			}
			e := c.lookUp(c.q, id)
			switch {
			case (e == nil) != (name == "done"):
				c.Errorf("%s is there: %t", id, e != nil)
			case e == nil:
			case e.State == redrive.StateDead && name != "dead", e.History.Count > 1:
				c.Errorf("%s is %s with %d failures", id, e.State, e.History.Count)
			}
			c.drain()
		}
	}
	if n := c.counts(); n.AllDead() != 20 || n.AllWaiting() != 0 {
		c.Errorf("%d dead and %d waiting, want 20 and 0", n.AllDead(), n.AllWaiting())
	}
}

func batchSettleMixed(c *C) {
	c.publishN(6)
	got := c.get(6, c.ask(6))
	c.done(got[1])
	c.noError(c.settle(retry(got[2], 0)), "retry")
	again := c.one(c.lane(1, redrive.LaneRetry))
	wrong := got[5]
	wrong.Receipt.Token += 1000
	unknown := got[5]
	unknown.Receipt.ID = "never-was"
	bad := settled(got[4], redrive.OutcomeDead) // without a reason
	errs := c.src.Settle(c.ctx, []driver.Settlement{
		settled(got[0], redrive.OutcomeDone), settled(got[1], redrive.OutcomeDone), settled(got[2], redrive.OutcomeDone),
		settled(got[3], redrive.OutcomeDone), bad, settled(wrong, redrive.OutcomeDone), settled(unknown, redrive.OutcomeDone),
		settled(got[0], redrive.OutcomeDone),
	})
	if len(errs) != 8 {
		c.Fatalf("%d results for 8 settlements", len(errs))
	}
	gone := []error{redrive.ErrLeaseLost, redrive.ErrNotFound}
	c.is(errs[0], "a good one", nil)
	c.is(errs[1], "one settled before", gone...)
	c.is(errs[2], "one claimed again", redrive.ErrLeaseLost)
	c.is(errs[3], "another good one", nil)
	c.is(errs[4], "a dead letter without a reason", redrive.ErrInvalid)
	c.is(errs[5], "a token that was never issued", redrive.ErrLeaseLost)
	c.is(errs[6], "an unknown message", redrive.ErrNotFound)
	c.is(errs[7], "the same again", gone...)
	c.holds(3, 0)
	c.done(again, got[4], got[5])
}

func settleAfterReconnect(c *C) {
	c.publish(redrive.Message{ID: "m"}, redrive.Message{ID: "released"})
	got := c.get(2, c.ask(2))
	c.noError(c.settle(release(got[1], 0)), "release")
	c.again()
	// Whether a receipt still counts when its process has ended is the backend's choice,
	// but then it must count or not count.
	err := c.settle(settled(got[0], redrive.OutcomeDone))
	if c.caps.KeepsLeases {
		c.noError(err, "settlement by a lease that outlives its process")
	}
	c.is(err, "settlement after the reconnect", nil, redrive.ErrLeaseLost)
	want := redrive.StateWaiting
	if err == nil {
		want = 0
	}
	c.inState("m", want)
	if c.store == nil {
		left := []string{"released", "m"}
		if err == nil {
			left = left[:1]
		}
		c.sameSet("what is left", c.rest(len(left)), left)
		return
	}
	d := c.one(c.ask(2))
	if d.ID != "released" || d.Suspect || d.Attempt != 1 {
		c.Errorf("%s: suspect %t, attempt %d; want what was released before, unsuspected", d.ID, d.Suspect, d.Attempt)
	}
	c.done(d)
	if err != nil {
		c.equal("what was claimed", c.drain(), []string{"m"})
	}
}
