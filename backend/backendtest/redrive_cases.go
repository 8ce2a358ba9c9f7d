package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

var redriveCases = []testCase{
	{name: "56_RedriveOneNewGeneration", run: redriveOne},
	{name: "57_RedriveTwiceConcurrently", run: redriveConcurrently},
	{name: "58_RedriveCrashMidBatch", run: redriveCrash, needs: []need{crash}},
	{name: "59_RedriveLimitLoops", run: redriveLimit},
	{name: "RedriveByNoPlanBelongsToNone", run: redriveByNone},
	{name: "RedriveOfTheExpired", run: redriveExpired},
	{name: "HostileErrorText", run: hostileErrorText, needs: []need{eng}},
	{name: "60_RedriveRateLimited", run: redriveRate, needs: []need{eng}},
	{name: "RedriveStopsWithItsCanary", run: redriveCanary, needs: []need{eng}},
}

func redriveOne(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("b")})
	c.noError(c.settle(retry(c.one(c.ask(1)), 0)), "retry")
	c.noError(c.settle(deadly(c.one(c.lane(1, redrive.LaneRetry)), redrive.ReasonExhausted)), "dead")
	got := c.update(driver.Change{Action: driver.ActRedrive, Plan: "plan-1"}, "m")
	c.noError(got[0].Err, "redrive")
	if got[0].New != (redrive.Ref{}) {
		c.Errorf("it moved to %s", got[0].New)
	}
	c.is(c.update(driver.Change{Action: driver.ActRedrive}, "m")[0].Err, "redrive of what waits", redrive.ErrState)
	c.is(c.update(driver.Change{Action: driver.ActRedrive}, "never-was")[0].Err, "redrive of what is not there", redrive.ErrNotFound)
	c.none(c.ask(1))
	c.none(c.lane(1, redrive.LaneRetry))
	d := c.one(c.lane(1, redrive.LaneRedrive))
	if d.Generation != 1 || d.Redrives != 1 || d.Plan != "plan-1" || d.Attempt != 1 || d.Failures != 0 || d.Crashes != 0 || d.Lane != redrive.LaneRedrive || d.Dead != 0 {
		c.Errorf("redriven as %+v, attempt %d, failures %d in lane %s", d.Lineage, d.Attempt, d.Failures, d.Lane)
	}
	if e := c.entry("m"); e.History.First == nil || e.History.First.Message != "retry me" || e.History.Latest().Message != "cannot be done" {
		c.Errorf("the failure history of the generation before is gone: %+v", e.History)
	}
	c.is(c.update(driver.Change{Action: driver.ActRedrive}, "m")[0].Err, "redrive of what is leased", redrive.ErrState)
	c.noError(c.settle(retry(d, 0)), "retry")
	d = c.one(c.lane(1, redrive.LaneRetry))
	if d.Attempt != 2 || d.Failures != 1 || d.Generation != 1 {
		c.Errorf("retried at attempt %d with %d failures in generation %d; want 2, 1, 1", d.Attempt, d.Failures, d.Generation)
	}
	c.done(d)
	if n := c.counts(); n.Ledger.Published != 1 || n.Ledger.Done != 1 || n.Ledger.Entered() != 1 {
		c.Errorf("a redrive within the queue is neither in nor out: %+v", n.Ledger)
	}
}

// redriveByNone: what a plan redrove, and a person since, was not redriven last by the plan.
func redriveByNone(c *C) {
	c.publish(redrive.Message{ID: "m"})
	c.kill(1, redrive.ReasonPermanent)
	for _, plan := range []string{"plan-1", ""} {
		c.noError(c.update(driver.Change{Action: driver.ActRedrive, Plan: plan}, "m")[0].Err, "redrive")
		d := c.one(c.lane(1, redrive.LaneRedrive))
		if d.Plan != plan {
			c.Errorf("redriven by plan %q, it belongs to %q", plan, d.Plan)
		}
		c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	}
}

func redriveConcurrently(c *C) {
	const n, redrivers = 40, 8
	c.publishN(n)
	c.kill(n, redrive.ReasonPermanent)
	refs := make([]redrive.Ref, n)
	for i := range refs {
		refs[i] = redrive.Ref{Queue: c.q, ID: fmt.Sprintf("m%04d", i+1)}
	}
	var mu sync.Mutex
	redriven := map[string]int{}
	var wg sync.WaitGroup
	for range redrivers {
		wg.Go(func() {
			for part := range slices.Chunk(refs, 7) {
				got, err := c.store.Update(c.ctx, driver.Selection{Refs: part}, driver.Change{Action: driver.ActRedrive}, len(part))
				if err != nil {
					c.Errorf("redrive: %v", err)
					return
				}
				mu.Lock()
				for _, u := range got {
					if u.Err == nil {
						redriven[u.ID]++
					} else {
						c.is(u.Err, "the second redrive", redrive.ErrState)
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, ref := range refs {
		if redriven[ref.ID] != 1 {
			c.Errorf("%s was redriven %d times", ref.ID, redriven[ref.ID])
		}
	}
	got := c.get(n, c.lane(n+1, redrive.LaneRedrive))
	for _, d := range got {
		if d.Generation != 1 || d.Redrives != 1 {
			c.Errorf("%s is in generation %d after one redrive", d.ID, d.Generation)
		}
	}
	c.done(got...)
	c.holds(0, 0)
}

func redriveCrash(c *C) {
	const n = 60
	c.publishN(n)
	c.kill(n, redrive.ReasonPermanent)
	cutoff := c.now()
	half := make(chan struct{})
	var wg sync.WaitGroup
	store := c.store
	wg.Go(func() {
		sel := driver.Selection{Query: &redrive.Query{Queue: c.q, State: redrive.StateDead, Until: cutoff}}
		for i := range 100 {
			if i == 3 {
				close(half)
			}
			got, err := store.Update(c.ctx, sel, driver.Change{Action: driver.ActRedrive, Plan: "p"}, 10)
			if err != nil || len(got) == 0 {
				return
			}
		}
	})
	<-half
	c.use(c.f.Crash(c, c.store))
	wg.Wait()
	sel := driver.Selection{Query: &redrive.Query{Queue: c.q, State: redrive.StateDead, Until: cutoff, NotPlan: "p"}}
	for range 100 {
		got, err := c.store.Update(c.ctx, sel, driver.Change{Action: driver.ActRedrive, Plan: "p"}, 10)
		c.noError(err, "redrive")
		if len(got) == 0 {
			break
		}
	}
	c.holds(n, 0)
	got := c.get(n, c.lane(n, redrive.LaneRedrive))
	for _, d := range got {
		if d.Generation != 1 || d.Plan != "p" {
			c.Errorf("%s is in generation %d of plan %q", d.ID, d.Generation, d.Plan)
		}
	}
	c.done(got...)
}

func redriveLimit(c *C) {
	c.publish(redrive.Message{ID: "m"})
	c.kill(1, redrive.ReasonPermanent)
	for i := range 3 {
		got := c.update(driver.Change{Action: driver.ActRedrive, MaxRedrives: 3}, "m")
		c.noError(got[0].Err, "redrive %d", i+1)
		c.noError(c.settle(deadly(c.one(c.lane(1, redrive.LaneRedrive)), redrive.ReasonPermanent)), "dead")
	}
	c.is(c.update(driver.Change{Action: driver.ActRedrive, MaxRedrives: 3}, "m")[0].Err, "the fourth redrive", redrive.ErrLoop)
	if e := c.entry("m"); e.State != redrive.StateDead || e.Redrives != 3 || e.Generation != 3 {
		c.Errorf("%s after %d redrives in generation %d", e.State, e.Redrives, e.Generation)
	}
	c.redrive("m") // without a limit it goes on
	c.done(c.one(c.lane(1, redrive.LaneRedrive)))
}

// redriveRate lets a plan redrive at a rate: it must be finished, and not at once.
func redriveRate(c *C) {
	const n, rate = 60, 30
	c.publishN(n)
	c.kill(n, redrive.ReasonPermanent)
	plans := plan.New(c.store, plan.Options{Instance: "planner"})
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- plans.Run(ctx) }()
	began := c.now()
	p, err := plans.Create(c.ctx, plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: c.q}, Rate: rate})
	c.noError(err, "create")
	c.eventually("the plan to end", func() bool {
		p, err = plans.Get(c.ctx, p.ID)
		c.noError(err, "get")
		return p.State.Final()
	})
	if p.State != plan.Done || p.Done != n || p.Failed != 0 {
		c.Errorf("plan %s: %d done, %d failed, errors %v; want %d done", p.State, p.Done, p.Failed, p.Errors, n)
	}
	if p.Total != n || p.TotalMore {
		c.Errorf("it counted %d, more %t", p.Total, p.TotalMore)
	}
	if took := c.now().Sub(began); took < time.Second*(n/rate)/4 {
		c.Errorf("%d redriven in %s at %d/s", n, took, rate)
	}
	c.get(n, c.lane(n, redrive.LaneRedrive))
	cancel()
	if err := <-done; err != nil {
		c.is(err, "Run", context.Canceled)
	}
}

// What died because it expired would expire again at once if a redrive kept the time.
func redriveExpired(c *C) {
	later := c.now().Add(1000 * time.Hour)
	for id, at := range map[string]time.Time{"past": c.now().Add(-time.Second), "future": later} {
		c.publish(redrive.Message{ID: id, Body: []byte("b"), ExpiresAt: at})
	}
	for range 2 {
		d := c.one(c.ask(1))
		c.noError(c.settle(deadly(d, redrive.ReasonExpired)), "dead")
	}
	for _, id := range []string{"past", "future"} {
		c.noError(c.update(driver.Change{Action: driver.ActRedrive}, id)[0].Err, "redrive")
	}
	if e := c.entry("past"); !e.ExpiresAt.IsZero() {
		c.Errorf("the redriven message expires at %s, which has passed", e.ExpiresAt)
	}
	if e := c.entry("future"); !e.ExpiresAt.Equal(later) {
		c.Errorf("the redriven message expires at %s, want %s", e.ExpiresAt, later)
	}
	expired := c.ask(1)
	expired.Expired = true
	c.none(expired)
}

// redriveCanary lets a plan try three messages, which die again of the same cause. It
// relies on look-ups by plan and by time of death.
func redriveCanary(c *C) {
	const n, canary = 20, 3
	c.publishN(n)
	kill := func(ds []redrive.Delivery) {
		for _, d := range ds {
			s := deadly(d, redrive.ReasonPermanent)
			s.Failure.Signature = "the-cause"
			c.noError(c.settle(s), "dead")
		}
	}
	kill(c.get(n, c.ask(n)))
	plans := plan.New(c.store, plan.Options{Instance: "planner"})
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() { done <- plans.Run(ctx) }()
	p, err := plans.Create(c.ctx, plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: c.q}, Rate: 1000, Canary: canary})
	c.noError(err, "create")
	var taken []redrive.Delivery
	c.eventually("the canary", func() bool {
		taken = append(taken, c.claim(c.lane(n, redrive.LaneRedrive))...)
		return len(taken) == canary
	})
	kill(taken)
	c.eventually("the plan to stop", func() bool {
		p, err = plans.Get(c.ctx, p.ID)
		c.noError(err, "get")
		return p.State == plan.Stopped
	})
	if p.Done != canary || !strings.Contains(p.Problem, "of the same cause") {
		c.Errorf("stopped after %d: %q", p.Done, p.Problem)
	}
	again, complete, err := c.store.Causes(c.ctx, redrive.Query{Queue: c.q, Plan: p.ID, Since: p.CreatedAt})
	c.noError(err, "causes")
	if len(again) != 1 || !complete || again[0].Count != canary || again[0].Signature != "the-cause" {
		c.Errorf("what died again: %+v, complete %t", again, complete)
	}
	progress, err := plans.Progress(c.ctx, &p)
	c.noError(err, "progress")
	if progress != (plan.Progress{DiedAgain: canary, Complete: true}) {
		c.Errorf("progress %+v", progress)
	}
	results, next, err := plans.Results(c.ctx, p.ID, "", 0)
	c.noError(err, "results")
	if len(results) != canary || next != "" || results[0].Outcome != plan.DiedAgain || results[0].Entry.Plan != p.ID {
		c.Errorf("results %+v", results)
	}
	c.holds(0, n)
	cancel()
	c.noError(<-done, "Run")
}
