package backendtest

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
)

// Dead letters that are claimed.
var claimDeadCases = []testCase{
	{name: "ClaimDeadAndSettle", run: claimDead},
	{name: "ClaimDeadRepeatIsARedrive", run: claimDeadRepeat, needs: []need{repeats}},
	{name: "ClaimDeadUnderLease", run: claimDeadLease},
	{name: "OnDeadDecides", run: onDead, needs: []need{eng, repeats}},
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
	if n := c.counts(); n.Ledger.Dropped != 1 || n.Ledger.Left() != 2 {
		c.Errorf("ledger %+v", n.Ledger)
	}
	if e := c.entry("dead"); string(e.Body) != "edited" || e.Original == nil || string(e.Original.Body) != "dead" {
		c.Errorf("the edited dead letter: %q, original %+v", e.Body, e.Original)
	}
	got := c.claim(dead(c.ask(5)))
	c.sameSet("claimable again at once", ids(got), []string{"release", "dead"})
	c.pass(2*c.tick + c.tick/2)
	c.equal("claimable again after a while", ids(c.get(1, dead(c.ask(5)))), []string{"retry"})
	c.none(c.ask(5))
	c.none(isolated(c.ask(5)))
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
		c.Errorf("its original %+v and history %+v", e.Original, e.History)
	}
	c.done(d)
	if n := c.counts().Ledger; n.Repeated != 0 || n.Done != 1 {
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
	c.is(c.update(driver.Change{Action: driver.ActRedrive}, second.ID)[0].Err, "redrive of a claimed dead letter", redrive.ErrState)
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

// onDead lets a processor redrive with an edit, drop, archive and keep.
func onDead(c *C) {
	for _, id := range []string{"redrive", "drop", "archive", "keep"} {
		c.publish(redrive.Message{ID: id, Body: []byte(id)})
	}
	c.kill(4, redrive.ReasonPermanent)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	done := make(chan error, 1)
	shelf := &shelf{}
	go func() {
		done <- deadletter.OnDead(ctx, c.store, c.q, func(_ context.Context, e *redrive.Entry) (deadletter.Decision, error) {
			edit := &redrive.Edit{Body: []byte("mended")}
			switch e.ID {
			case "redrive":
				return deadletter.Decision{Action: driver.ActRedrive, Edit: edit}, nil
			case "drop":
				return deadletter.Decision{Action: driver.ActDrop}, nil
			case "archive":
				return deadletter.Decision{Action: driver.ActArchive}, nil
			}
			return deadletter.Decision{Edit: edit}, nil
		}, deadletter.Options{Poll: c.tick, Archive: shelf, Instance: "processor"})
	}()
	c.eventually("everything to be decided", func() bool {
		n := c.counts()
		e := c.entry("keep")
		return n.AllDead() == 1 && n.AllWaiting() == 1 && e != nil && e.Original != nil
	})
	cancel()
	c.noError(<-done, "OnDead")
	if b := c.counts().Ledger; b.Dropped != 1 || b.Archived != 1 || len(shelf.bodies) != 1 || shelf.bodies[0] != "archive" {
		c.Errorf("ledger %+v, archived %q", b, shelf.bodies)
	}
	if e := c.entry("keep"); e.State != redrive.StateDead || string(e.Body) != "mended" || string(e.Original.Body) != "keep" {
		c.Errorf("kept as %s: %q, original %+v", e.State, e.Body, e.Original)
	}
	d := c.one(c.lane(1, redrive.LaneRedrive))
	if d.ID != "redrive" || string(d.Body) != "mended" || d.Redrives != 1 {
		c.Errorf("redriven: %s %q, %d times", d.ID, d.Body, d.Redrives)
	}
	c.done(d)
}

// shelf is an archive in memory.
type shelf struct{ bodies []string }

// Archive implements deadletter.Archiver.
func (s *shelf) Archive(_ context.Context, entries []redrive.Entry) error {
	for i := range entries {
		s.bodies = append(s.bodies, string(entries[i].Body))
	}
	return nil
}
