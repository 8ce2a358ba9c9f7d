package backendtest

import (
	"time"

	"github.com/redrive/redrive"
)

// Dead letters that are claimed.
var claimDeadCases = []testCase{
	{name: "ClaimDeadAndSettle", run: claimDead},
	{name: "ClaimDeadRepeatIsARedrive", run: claimDeadRepeat, needs: []need{repeats}},
	{name: "ClaimDeadUnderLease", run: claimDeadLease},
}

func claimDead(c *C) {
	for _, id := range []string{"done", "drop", "retry", "release", "dead"} {
		c.publish(redrive.Message{ID: id, Body: []byte(id)})
	}
	c.kill(5, redrive.ReasonPermanent)
	for _, d := range c.get(5, dead(c.ask(5))) {
		if d.Dead != redrive.ReasonPermanent {
			c.Errorf("%s was claimed as %q", d.ID, d.Dead)
		}
		s := settled(d, redrive.OutcomeDone)
		switch d.ID {
		case "drop":
			s.Outcome, s.Reason = redrive.OutcomeDrop, redrive.ReasonManual
		case "retry":
			s.Outcome, s.After = redrive.OutcomeRetry, 2*c.tick
		case "release":
			s.Outcome = redrive.OutcomeRelease
		case "dead":
			s.Outcome, s.Reason, s.Edit = redrive.OutcomeDead, redrive.ReasonManual, &redrive.Edit{Body: []byte("edited")}
		}
		c.noError(c.settle(s), "%s of a dead letter", s.Outcome)
	}
	c.inState("done", 0)
	c.inState("drop", 0)
	c.holds(0, 3)
	if n := c.counts(); n.Books.Dropped != 1 || n.Books.Left() != 2 {
		c.Errorf("books %+v", n.Books)
	}
	if e := c.entry("dead"); string(e.Body) != "edited" || e.Original == nil || string(e.Original.Body) != "dead" {
		c.Errorf("the edited dead letter: %q, original %+v", e.Body, e.Original)
	}
	got := c.claim(dead(c.ask(5)))
	c.sameSet("claimable again at once", ids(got), []string{"release", "dead"})
	c.pass(2*c.tick + c.tick/2)
	c.equal("claimable again after a while", ids(c.get(1, dead(c.ask(5)))), []string{"retry"})
	c.none(c.ask(5))
	c.none(alone(c.ask(5)))
}

func claimDeadRepeat(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("first")})
	c.kill(1, redrive.ReasonUncertain)
	s := settled(c.one(dead(c.ask(1))), redrive.OutcomeRepeat)
	s.Edit = &redrive.Edit{Body: []byte("second")}
	c.noError(c.settle(s), "repeat of a dead letter")
	c.is(c.settle(s), "again", redrive.ErrLeaseLost)
	c.none(dead(c.ask(1)))
	d := c.one(c.lane(1, redrive.LaneRedrive))
	if d.Generation != 1 || d.Redrives != 1 || d.Attempt != 1 || d.Failures != 0 || string(d.Body) != "second" || d.Dead != 0 {
		c.Errorf("redriven as %+v, attempt %d, failures %d, dead %q", d.Message, d.Attempt, d.Failures, d.Dead)
	}
	if e := c.entry("m"); e.Original == nil || string(e.Original.Body) != "first" || e.History.First == nil {
		c.Errorf("its original %+v and story %+v", e.Original, e.History)
	}
	c.done(d)
	if n := c.counts().Books; n.Repeated != 0 || n.Done != 1 {
		c.Errorf("a redrive is not a repeat: %+v", n)
	}
}

func claimDeadLease(c *C) {
	c.publish(redrive.Message{ID: "m"}, redrive.Message{ID: "n"})
	c.kill(2, redrive.ReasonPermanent)
	first := c.one(dead(c.short(1)))
	second := c.one(dead(c.ask(5)))
	if first.ID == second.ID {
		c.Errorf("%s was claimed twice", first.ID)
	}
	c.none(dead(c.ask(5)))
	if n := c.counts(); n.AllDead() != 2 || n.AllWaiting() != 0 || n.Leased != 0 {
		c.Errorf("a claimed dead letter is dead, and leased is a part of waiting: %+v", n)
	}
	c.is(c.update(redrive.Change{Action: redrive.ActRedrive}, second.ID)[0].Err, "redrive of a claimed dead letter", redrive.ErrState)
	c.runOut()
	again := c.one(dead(c.ask(5)))
	if again.ID != first.ID || again.Receipt.Token <= first.Receipt.Token {
		c.Errorf("%s with token %d after %s with %d", again.ID, again.Receipt.Token, first.ID, first.Receipt.Token)
	}
	c.is(c.settle(settled(first, redrive.OutcomeDone)), "the first holder's settlement", redrive.ErrLeaseLost)
	c.noError(c.settle(release(again, time.Hour), release(second, 0)), "release")
	c.holds(0, 2)
	c.redrive(first.ID)
	c.redrive(second.ID)
	c.done(c.get(2, c.lane(2, redrive.LaneRedrive))...)
}
