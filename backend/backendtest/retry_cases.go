package backendtest

import (
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var retryCases = []testCase{
	{name: "39_NotEarly", run: notEarly, needs: []need{delays}},
	{name: "40_DueAcrossRestart", run: dueAcrossRestart, needs: []need{delays, reopen}},
	{name: "41_MixedDelaysNoHeadOfLine", run: mixedDelays, needs: []need{delays}, basic: true},
	{name: "42_FarFuture", run: farFuture, needs: []need{delays}},
	{name: "43_MaxAttemptsExact", run: maxAttemptsExact, needs: []need{eng}},
	{name: "44_PermanentGoesDeadAtOnce", run: permanentGoesDead, needs: []need{eng}},
	{name: "45_RescheduleWithoutBurningAttempt", run: reschedule, needs: []need{delays}, basic: true},
	{name: "46_DelayedDoNotCountAsInFlight", run: delayedNotInFlight, needs: []need{delays}},
}

func notEarly(c *C) {
	c.publish(redrive.Message{ID: "delayed", Delay: 2 * c.tick}, redrive.Message{ID: "retried"}, redrive.Message{ID: "released"})
	published := c.now()
	c.publish(redrive.Message{ID: "at", DeliverAt: published.Add(2 * c.tick)}, redrive.Message{ID: "past", DeliverAt: published.Add(-time.Hour)})
	for _, d := range c.get(3, c.ask(5)) {
		switch d.ID {
		case "retried":
			c.noError(c.settle(retry(d, 2*c.tick)), "retry")
		case "released":
			c.noError(c.settle(release(d, 2*c.tick)), "release")
		default:
			c.done(d)
		}
	}
	c.none(c.ask(5))
	c.none(c.lane(5, redrive.LaneRetry))
	if n := c.counts(); n.Due != 0 || n.AllWaiting() != 4 {
		c.Errorf("due %d of %d waiting, want 0 of 4", n.Due, n.AllWaiting())
	}
	due := map[string]time.Time{}
	for _, id := range []string{"delayed", "at", "retried", "released"} {
		due[id] = c.entry(id).Due
	}
	var got []redrive.Delivery
	c.eventually("the delayed messages", func() bool {
		if len(got) < 4 {
			c.pass(c.tick / 4)
		}
		got = append(got, c.claim(c.ask(5))...)
		got = append(got, c.claim(c.lane(5, redrive.LaneRetry))...)
		return len(got) == 4
	})
	for _, d := range got {
		if early := due[d.ID].Sub(d.LeasedAt); early > time.Millisecond {
			c.Errorf("%s was claimed %s early", d.ID, early)
		}
		if d.LeasedAt.Before(published.Add(2*c.tick - time.Millisecond)) {
			c.Errorf("%s was claimed %s after it was delayed by %s", d.ID, d.LeasedAt.Sub(published), 2*c.tick)
		}
	}
	c.done(got...)
}

func dueAcrossRestart(c *C) {
	c.publish(redrive.Message{ID: "m", Delay: 4 * c.tick}, redrive.Message{ID: "n"})
	c.noError(c.settle(retry(c.one(c.ask(1)), 4*c.tick)), "retry")
	due, retried := c.entry("m").Due, c.entry("n").Due
	c.again()
	if e := c.entry("m"); !e.Due.Equal(due) || !c.entry("n").Due.Equal(retried) {
		c.Errorf("due times changed from %s and %s to %s and %s", due, retried, e.Due, c.entry("n").Due)
	}
	c.none(c.ask(1))
	c.pass(5 * c.tick)
	d := c.one(c.lane(1, redrive.LaneRetry))
	if d.Attempt != 2 || d.Failures != 1 {
		c.Errorf("attempt %d, failures %d; want 2, 1", d.Attempt, d.Failures)
	}
	c.done(d, c.one(c.ask(1)))
}

func mixedDelays(c *C) {
	c.publish(redrive.Message{ID: "slow", Delay: 25 * c.tick}, redrive.Message{ID: "fast", Delay: c.tick})
	c.publish(redrive.Message{ID: "r-slow"}, redrive.Message{ID: "r-fast"})
	got := c.get(2, c.ask(2))
	c.noError(c.settle(retry(got[0], 25*c.tick), retry(got[1], c.tick)), "retry")
	c.pass(c.tick + c.tick/2)
	var fast, retried []redrive.Delivery
	c.eventually("what is due behind longer delays", func() bool { // some count in seconds
		fast, retried = append(fast, c.claim(c.ask(5))...), append(retried, c.claim(c.lane(5, redrive.LaneRetry))...)
		return len(fast)+len(retried) >= 2
	})
	c.equal("due behind longer delays", ids(append(fast, retried...)), []string{"fast", "r-fast"})
	c.done(append(fast, retried...)...)
}

func farFuture(c *C) {
	const days = 400 * 24 * time.Hour
	before := c.now()
	c.publish(redrive.Message{ID: "m", Delay: days}, redrive.Message{ID: "n", DeliverAt: before.Add(days)}, redrive.Message{ID: "r"})
	c.noError(c.settle(retry(c.one(c.ask(3)), days)), "retry")
	for _, id := range []string{"m", "n", "r"} {
		if off := c.entry(id).Due.Sub(before.Add(days)); off < -time.Second || off > time.Minute {
			c.Errorf("%s is due %s off", id, off)
		}
	}
	c.none(c.ask(3))
	events, err := c.src.Wait(c.ctx, []driver.Watch{{Queue: c.q}})
	if err != nil || len(events) != 1 || events[0].NextDueIn < days-time.Hour && events[0].NextDueIn != 0 {
		c.Errorf("event %+v, %v", events, err)
	}
	if c.f.Advance != nil {
		c.f.Advance(days - time.Hour)
		c.none(c.ask(3))
		c.f.Advance(2 * time.Hour)
		c.sameSet("due after 400 days", c.drain(), []string{"m", "n", "r"})
	}
}

func reschedule(c *C) {
	c.publish(redrive.Message{ID: "m"})
	c.noError(c.settle(retry(c.one(c.ask(1)), 0)), "retry")
	for range 3 {
		d := c.one(c.lane(1, redrive.LaneRetry))
		if d.Attempt != 2 || d.Failures != 1 {
			c.Fatalf("attempt %d, failures %d; want 2, 1", d.Attempt, d.Failures)
		}
		c.noError(c.settle(release(d, c.tick)), "release")
		c.none(c.lane(1, redrive.LaneRetry))
		c.pass(c.tick + c.tick/4)
	}
	c.done(c.one(c.lane(1, redrive.LaneRetry)))
}

func delayedNotInFlight(c *C) {
	const n = 10_000
	for base := 0; base < n; base += 500 {
		msgs := make([]redrive.Message, 500)
		for i := range msgs {
			msgs[i] = redrive.Message{ID: fmt.Sprintf("d%05d", base+i), Delay: time.Hour}
		}
		c.publish(msgs...)
	}
	c.publishN(100)
	c.done(c.get(100, c.ask(100))...)
	if got := c.counts(); got.Leased != 0 || got.Due != 0 || got.AllWaiting() != n {
		c.Errorf("leased %d, due %d, waiting %d; want 0, 0, %d", got.Leased, got.Due, got.AllWaiting(), n)
	}
}
