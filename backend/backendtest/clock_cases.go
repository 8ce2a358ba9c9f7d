package backendtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// A store's clock that went back: what was published before lies ahead of it.
var clockCases = []testCase{
	{name: "ClockWentBack", run: clockWentBack, needs: []need{shift, delays}},
	{name: "ClockWentBackWakesTheEngine", run: clockWentBackWakes, needs: []need{shift, eng}},
	{name: "ClockWentBackOfDeadLetters", run: clockWentBackDead, needs: []need{shift, deadLetters}},
}

// clockWentBack: what nobody delayed is due in its order, what somebody did keeps its time.
func clockWentBack(c *C) {
	c.publish(redrive.Message{ID: "retried"})
	c.noError(c.settle(retry(c.one(c.ask(1)), time.Hour)), "retry")
	c.publish(redrive.Message{ID: "put-off"})
	c.noError(c.settle(release(c.one(c.ask(1)), time.Hour)), "release")
	old := []string{"a", "b", "c", "d", "e"}
	for _, id := range old {
		c.publish(redrive.Message{ID: id})
	}
	c.publish(redrive.Message{ID: "delayed", Delay: time.Hour}, redrive.Message{ID: "scheduled", DeliverAt: c.now().Add(time.Hour)})
	delayed := []string{"retried", "put-off", "delayed", "scheduled"}
	due := make(map[string]time.Time)
	for _, id := range delayed {
		due[id] = c.entry(id).Due
	}
	parked := redrive.Entry{State: redrive.StateWaiting, Lane: redrive.LaneRetry, Message: redrive.Message{
		ID: "parked", Queue: c.q, Delay: time.Hour, PublishedAt: c.now().Add(2 * time.Hour), // by a clock that is ahead
	}}
	_, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{parked}})
	c.noError(err, "put")
	delayed = append(delayed, "parked")
	due["parked"] = c.entry("parked").Due
	const off = 24 * time.Hour
	c.f.Shift(c, c.store, c.q, off)
	c.publish(redrive.Message{ID: "new"})
	var got []string
	c.eventually("what nobody delayed to be due", func() bool {
		for _, d := range c.claim(c.ask(10)) {
			got = append(got, d.ID)
			c.done(d)
		}
		return len(got) > len(old)
	})
	if !slices.Contains(got, "new") {
		c.Errorf("claimed %v, without what was published since", got)
	}
	got = slices.DeleteFunc(got, func(id string) bool { return id == "new" })
	c.inOrder("in the order in which they were published", got, old)
	for l := range redrive.LaneRedrive + 1 {
		c.none(c.lane(10, l))
	}
	for _, id := range delayed {
		if e := c.entry(id); e.Due.Sub(due[id]).Round(time.Minute) != off {
			c.Errorf("%s was due at %s, is after a shift by %s at %s", id, due[id], off, e.Due)
		}
	}
}

// clockWentBackWakes: nothing is published since, and nobody else claims.
func clockWentBackWakes(c *C) {
	c.publishN(5)
	c.f.Shift(c, c.store, c.q, 24*time.Hour)
	var tried attempts
	_, stop := c.engine(c.store, engine.QueueOptions{}, func(_ context.Context, d *redrive.Delivery) error {
		tried.add(d.ID)
		return nil
	})
	c.ended()
	stop()
	if tried.size() != 5 {
		c.Errorf("%d were handled, want 5", tried.size())
	}
}

// clockWentBackDead: dead letters that nobody put off are claimed in their order, what somebody
// did keeps its time, also what is put off while its death lies ahead of the clock.
func clockWentBackDead(c *C) {
	c.publish(redrive.Message{ID: "put-off"})
	c.kill(1, redrive.ReasonPermanent)
	c.noError(c.settle(release(c.one(dead(c.ask(1))), time.Hour)), "release")
	var old []string
	const together = 100
	for range 6 { // more than a store makes due at once
		msgs := make([]redrive.Message, together)
		for i := range msgs {
			msgs[i].ID = fmt.Sprintf("m%03d", len(old))
			old = append(old, msgs[i].ID)
		}
		c.publish(msgs...)
		c.kill(together, redrive.ReasonPermanent)
	}
	c.f.Shift(c, c.store, c.q, 24*time.Hour)
	var got []redrive.Delivery
	c.eventually("what nobody put off to be due", func() bool {
		got = append(got, c.claim(dead(c.ask(together)))...)
		return len(got) >= len(old)
	})
	c.inOrder("in the order in which they died", ids(got), old)
	c.noError(c.settle(release(got[0], time.Hour)), "release")
	c.none(dead(c.ask(10)))
}
