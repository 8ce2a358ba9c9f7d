package backendtest

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// outage leaves messages that wait for a retry, of two causes, which it returns, one that is dead, one that is delayed
// and one in flight.
func (c *C) outage(n int) (of [2][]string, held redrive.Delivery) {
	c.Helper()
	c.publishN(2*n + 2)
	ds := c.get(2*n+2, c.ask(2*n+2))
	for i, d := range ds[:2*n] {
		s := retry(d, time.Hour)
		s.Failure = &redrive.Failure{Message: "down", Signature: []string{"the-cause", "another"}[i%2]}
		c.noError(c.settle(s), "retry")
		of[i%2] = append(of[i%2], d.ID)
	}
	c.noError(c.settle(deadly(ds[2*n], redrive.ReasonPermanent)), "dead")
	c.publish(redrive.Message{ID: "delayed", Delay: time.Hour})
	return of, ds[2*n+1]
}

// dueNowByCause finds what waits for a retry, also by the cause of its last failure, and makes it due for a plan.
func dueNowByCause(c *C) {
	const n = 10 // of each cause
	of, _ := c.outage(n)
	waiting := redrive.Query{Queue: c.q, State: redrive.StateWaiting, Retrying: true}
	c.sameSet("what waits for a retry", entryIDs(c.find(waiting)), append(of[0], of[1]...))
	bySignature := waiting
	bySignature.Signature = "the-cause"
	c.sameSet("what failed last of a cause", entryIDs(c.find(bySignature)), of[0])
	for _, e := range c.find(bySignature) {
		if e.History.Count != 1 || e.Lane != redrive.LaneRetry {
			c.Errorf("%s is in lane %s after %d failures", e.ID, e.Lane, e.History.Count)
		}
	}
	if got, err := c.store.Count(c.ctx, bySignature); err != nil || got.N != n || !got.Complete {
		c.Errorf("it counts %+v, %v", got, err)
	}
	if dead := c.find(redrive.Query{Queue: c.q, Signature: "the-cause"}); len(dead) != 0 {
		c.Errorf("without the state waiting a signature is of dead letters: %v", entryIDs(dead))
	}
	for _, u := range c.update(driver.Change{Action: driver.ActDueNow, Plan: "p"}, of[0]...) {
		c.noError(u.Err, "due now")
	}
	c.sameSet("what bears the plan", entryIDs(c.find(redrive.Query{Queue: c.q, State: redrive.StateWaiting, Plan: "p"})), of[0])
	for _, u := range c.update(driver.Change{Action: driver.ActDueNow, Plan: "another"}, of[0]...) {
		c.noError(u.Err, "due now, once more")
	}
	another := c.find(redrive.Query{Queue: c.q, State: redrive.StateWaiting, Plan: "another"})
	c.sameSet("what was due already, and bears the plan", entryIDs(another), of[0])
	for i := range another {
		if another[i].Plan != "another" {
			c.Errorf("%s was found by its plan and shows %q", another[i].ID, another[i].Plan)
		}
	}
	var due []string
	for _, d := range c.get(n, c.lane(2*n, redrive.LaneRetry)) {
		due = append(due, d.ID)
	}
	c.sameSet("what is due", due, of[0])
}

// retryByCause has a plan try what failed last of one cause. What is delayed, failed of another cause, is in flight or
// dead is left alone.
func retryByCause(c *C) {
	const n = 40 // of each cause
	of, held := c.outage(n)
	plans := plan.New(c.store, plan.Options{Instance: "planner"})
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- plans.Run(ctx) }()
	p, err := plans.Create(c.ctx, plan.Request{Action: driver.ActDueNow, Query: redrive.Query{Queue: c.q, Signature: "the-cause"}, Rate: 1000})
	c.noError(err, "create")
	c.eventually("the plan to end", func() bool {
		p, err = plans.Get(c.ctx, p.ID)
		c.noError(err, "get")
		return p.State.Final()
	})
	if p.State != plan.Done || p.Total != n || p.Done != n || p.Failed != 0 {
		c.Errorf("%s: %d of %d done, %d refused (%v)", p.State, p.Done, p.Total, p.Failed, p.Errors)
	}
	c.sameSet("what bears the plan", entryIDs(c.find(redrive.Query{Queue: c.q, State: redrive.StateWaiting, Plan: p.ID})), of[0])
	var tried []string
	for _, d := range c.get(n, c.lane(2*n, redrive.LaneRetry)) {
		tried = append(tried, d.ID)
		c.done(d)
	}
	c.sameSet("what is due", tried, of[0])
	progress, err := plans.Progress(c.ctx, &p)
	if c.noError(err, "progress"); progress != (plan.Progress{Delivered: n, Complete: true}) {
		c.Errorf("progress %+v", progress)
	}
	c.done(held)
	c.holds(n+1, 1)
	cancel()
	c.noError(<-done, "Run")
}
