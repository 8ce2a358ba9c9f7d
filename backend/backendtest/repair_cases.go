package backendtest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

var repairCases = []testCase{
	{name: "RepairRedriveRestore", run: repairInBulk, needs: []need{eng}},
	{name: "DueNowByCause", run: dueNowByCause},
	{name: "RetryByCause", run: retryByCause, needs: []need{eng}},
}

// repairInBulk repairs dead letters by a plan, redrives a few of exactly these, and restores the others.
func repairInBulk(c *C) {
	const n, some = 120, 5
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{ID: fmt.Sprintf("m%04d", i+1), Body: fmt.Appendf(nil, `{"n":%d.00}`, i)}
	}
	c.publish(msgs...)
	c.kill(n, redrive.ReasonPermanent)
	plans := plan.New(c.store, plan.Options{Instance: "planner"})
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- plans.Run(ctx) }()
	ends := func(what string, r plan.Request, want, refused int64) plan.Plan {
		c.Helper()
		p, err := plans.Create(c.ctx, r)
		c.noError(err, "%s", what)
		c.eventually(what, func() bool {
			p, err = plans.Get(c.ctx, p.ID)
			c.noError(err, "get")
			return p.State.Final()
		})
		if p.State != plan.Done || p.Done != want || p.Failed != refused {
			c.Errorf("%s: %s, %d done, %d refused (%v), want %d and %d", what, p.State, p.Done, p.Failed, p.Errors, want, refused)
		}
		return p
	}
	repair := ends("repair", plan.Request{
		Action: driver.ActEdit, Query: redrive.Query{Queue: c.q}, Repair: []plan.Operation{{Op: "set", Path: "$.v", Value: json.RawMessage("2")}},
	}, n, 0)
	if e := c.entry("m0007"); string(e.Body) != `{"n":6.00,"v":2}` || e.Original == nil || string(e.Original.Body) != `{"n":6.00}` || e.State != redrive.StateDead {
		c.Errorf("repaired: %q of %+v", e.Body, e.Original)
	}
	page, err := c.store.Find(c.ctx, redrive.Query{Queue: c.q, State: redrive.StateDead, Plan: repair.ID, Limit: some})
	c.noError(err, "find")
	var refs []redrive.Ref
	for i := range page.Entries {
		refs = append(refs, page.Entries[i].Ref())
	}
	ends("redrive", plan.Request{Action: driver.ActRedrive, Refs: refs, Rate: 1000}, some, 0)
	for _, d := range c.get(some, c.lane(some, redrive.LaneRedrive)) {
		c.done(d)
	}
	ends("restore", plan.Request{Action: driver.ActEdit, Restore: repair.ID}, n-some, some)
	last := c.entry("m0120")
	if string(last.Body) != `{"n":119.00}` || last.Original != nil {
		c.Errorf("restored: %q of %+v", last.Body, last.Original)
	}
	c.holds(0, n-some)
	cancel()
	c.noError(<-done, "Run")
}
