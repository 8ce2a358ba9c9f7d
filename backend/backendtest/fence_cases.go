package backendtest

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Fences: who held a message, and holds it no longer, changes nothing, however often its
// lease ended since and whatever it asks for.
var fenceCases = []testCase{
	{name: "FenceWaitingAfterOneLease", run: fenceWaiting(1), needs: []need{fenced, leases}},
	{name: "FenceWaitingAfterTwoLeases", run: fenceWaiting(2), needs: []need{fenced, leases}},
	{name: "FenceDeadAfterOneLease", run: fenceDead(1), needs: []need{fenced, deadLetters}},
	{name: "FenceDeadAfterTwoLeases", run: fenceDead(2), needs: []need{fenced, deadLetters}},
	{name: "FenceBetweenWaitingAndDead", run: fenceBetween, needs: []need{fenced, deadLetters}},
	{name: "FenceExtendOfAnEndedLease", run: fenceEnded, needs: []need{fenced, leases, deadLetters}},
	{name: "FenceAfterTwoCrashes", run: fenceCrashes, needs: []need{fenced, crash}},
	{name: "FenceOfASuspectThatWasReleased", run: fenceReleased, needs: []need{fenced, leases, deadLetters}},
	{name: "FenceEditEndsTheClaimOfBefore", run: fenceEdit, needs: []need{fenced, leases}},
}

// stale are the settlements that a holder of before may try. An edit counts for a dead
// letter only.
func (c *C) stale(d redrive.Delivery) []driver.Settlement {
	list := []driver.Settlement{settled(d, redrive.OutcomeDone), retry(d, 0), release(d, 0), deadly(d, redrive.ReasonManual)}
	drop := settled(d, redrive.OutcomeDrop)
	drop.Reason = redrive.ReasonManual
	list = append(list, drop)
	if c.caps.Repeats {
		list = append(list, settled(d, redrive.OutcomeRepeat))
	}
	if d.Dead == 0 {
		return list
	}
	edit := &redrive.Edit{Body: []byte("of a stale holder")}
	keep := deadly(d, redrive.ReasonManual)
	keep.Edit = edit
	list = append(list, keep)
	if c.caps.Repeats {
		again := settled(d, redrive.OutcomeRepeat)
		again.Edit = edit
		list = append(list, again)
	}
	return list
}

// fencedOff has a holder of before try everything, one by one and in one batch, and checks
// that the message stays as it is.
func (c *C) fencedOff(d redrive.Delivery, who string) {
	c.Helper()
	before, ledger := c.entry(d.ID), c.counts().Ledger
	unchanged := func(what string) {
		c.Helper()
		e := c.entry(d.ID)
		if e == nil || e.State != before.State || e.Token != before.Token || e.Attempts != before.Attempts || e.Crashes != before.Crashes ||
			e.Generation != before.Generation || e.History.Count != before.History.Count || string(e.Body) != string(before.Body) ||
			e.Original != nil || e.Instance != before.Instance || !e.Until.Equal(before.Until) {
			c.Fatalf("%s by %s changed the message from %+v to %+v", what, who, *before, e)
		}
	}
	list := c.stale(d)
	for i := range list {
		what := list[i].Outcome.String()
		c.is(c.settle(list[i]), what+" by "+who, redrive.ErrLeaseLost)
		unchanged(what)
	}
	for i, err := range c.src.Settle(c.ctx, list) {
		c.is(err, list[i].Outcome.String()+" in a batch by "+who, redrive.ErrLeaseLost)
	}
	unchanged("a batch")
	c.is(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, long)), "extend by "+who, redrive.ErrLeaseLost)
	unchanged("extend")
	if now := c.counts().Ledger; now != ledger {
		c.Errorf("what %s tried is in the ledger: %+v, before %+v", who, now, ledger)
	}
}

func fenceWaiting(leases int) func(*C) {
	return func(c *C) {
		c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
		holders := []redrive.Delivery{c.one(c.short(1))}
		for i := range leases {
			c.runOut()
			r := isolated(c.short(1))
			if i == leases-1 {
				r.Lease = long
			}
			r.Instance = "instance-2"
			holders = append(holders, c.one(r))
		}
		last := holders[leases]
		for _, d := range holders[:leases] {
			c.fencedOff(d, "a holder whose lease ended")
		}
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{last.Receipt}, long)), "extend by the holder")
		c.done(last)
		for _, d := range holders {
			c.is(c.settle(settled(d, redrive.OutcomeDone)), "done when it is gone", redrive.ErrNotFound, redrive.ErrLeaseLost)
		}
		c.holds(0, 0)
	}
}

// fenceReleased: a receipt that gave a suspect back is used up.
func fenceReleased(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
	c.one(c.short(1))
	c.runOut()
	d := c.one(isolated(c.ask(1)))
	c.noError(c.settle(release(d, 0)), "release")
	c.fencedOff(d, "a holder that gave it back")
	c.done(c.one(isolated(c.ask(1))))
}

func fenceDead(leases int) func(*C) {
	return func(c *C) {
		c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
		c.kill(1, redrive.ReasonPermanent)
		holders := []redrive.Delivery{c.one(dead(c.short(1)))}
		for i := range leases {
			c.runOut()
			r := dead(c.short(1))
			if i == leases-1 {
				r.Lease = long
			}
			holders = append(holders, c.one(r))
		}
		last := holders[leases]
		for _, d := range holders[:leases] {
			c.fencedOff(d, "a claimant whose lease ended")
		}
		c.noError(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{last.Receipt}, long)), "extend by the claimant")
		s := deadly(last, redrive.ReasonManual)
		s.Edit = &redrive.Edit{Body: []byte("of the claimant")}
		c.noError(c.settle(s), "its edit")
		for _, d := range holders {
			c.is(c.settle(settled(d, redrive.OutcomeDone)), "done when it was given back", redrive.ErrLeaseLost)
		}
		if e := c.entry("m"); e == nil || string(e.Body) != "of the claimant" || e.Original == nil || string(e.Original.Body) != "as published" {
			c.Errorf("the dead letter is %+v", e)
		}
	}
}

// fenceBetween uses receipts of a message's life for its death, and the other way round.
func fenceBetween(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
	alive := c.one(c.ask(1))
	c.noError(c.settle(deadly(alive, redrive.ReasonPermanent)), "settle dead")
	c.fencedOff(alive, "who had it before it died")
	claimant := c.one(dead(c.short(1)))
	c.fencedOff(alive, "who had it before it died, while another has it")
	c.noError(c.settle(release(claimant, 0)), "release")
	c.redrive("m")
	c.fencedOff(claimant, "who had it while it was dead")
	again := c.one(c.lane(1, redrive.LaneRedrive))
	c.fencedOff(alive, "who had it in the generation before")
	c.fencedOff(claimant, "who had it while it was dead, while another has it")
	c.done(again)
	c.holds(0, 0)
}

// fenceEnded: a lease that has ended is not extended, also if nobody else claimed the
// message since.
func fenceEnded(c *C) {
	c.publish(redrive.Message{ID: "m"}, redrive.Message{ID: "n"})
	c.kill(1, redrive.ReasonPermanent)
	got := []redrive.Delivery{c.one(c.short(1)), c.one(dead(c.short(1)))}
	c.runOut()
	for _, d := range got {
		c.is(driver.FirstError(c.src.Extend(c.ctx, []redrive.Receipt{d.Receipt}, time.Hour)), "extend of an ended lease", redrive.ErrLeaseLost)
	}
	c.done(c.one(isolated(c.ask(1))), c.one(dead(c.ask(1))))
	c.holds(0, 0)
}

// fenceEdit: what an operator edited after a lease had ended is another message than the
// holder of before had.
func fenceEdit(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
	holder := c.one(c.short(1))
	c.runOut()
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("edited")}}, "m")[0].Err, "edit")
	for _, s := range c.stale(holder) {
		c.is(c.settle(s), s.Outcome.String()+" by who had it before the edit", redrive.ErrLeaseLost)
	}
	if e := c.entry("m"); e == nil || e.State == redrive.StateDead || string(e.Body) != "edited" || e.History.Count != 0 {
		c.Errorf("the edited message is %+v", e)
	}
	c.equal("what is left", c.drain(), []string{"m"})
}

// fenceCrashes: of holders that died one after the other, the newest may still settle, and
// those of before may not.
func fenceCrashes(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("as published")})
	first := c.one(c.short(1))
	c.use(c.f.Crash(c, c.store))
	c.runOut() // where leases outlive their process
	second := c.one(isolated(c.short(1)))
	c.use(c.f.Crash(c, c.store))
	c.runOut()
	for _, s := range c.stale(first) {
		c.is(c.settle(s), s.Outcome.String()+" by who held it before another", redrive.ErrLeaseLost)
	}
	if e := c.entry("m"); e == nil || e.State == redrive.StateDead || e.History.Count != 0 {
		c.Fatalf("the message is %+v", e)
	}
	c.done(second)
	c.holds(0, 0)
}
