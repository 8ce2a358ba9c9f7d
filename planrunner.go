package redrive

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Run carries out the plans of the store until ctx ends, and then returns nil. One
// process at a time does so: it holds a record as its lease. A plan that was
// interrupted goes on where it stopped. It may be called once.
func (p *Plans) Run(ctx context.Context) error {
	r := planRunner{p: p, lease: recordLease{store: p.store, key: planSpace, holder: p.o.Instance}, plans: make(map[string]*runningPlan)}
	defer r.lease.release(ctx)
	for {
		t := time.NewTimer(r.round(ctx))
		select {
		case <-t.C:
		case <-p.wake:
			r.listAt = time.Time{}
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// planRunner is the state of Run.
type planRunner struct {
	p      *Plans
	lease  recordLease
	listAt time.Time // when to look for plans again
	plans  map[string]*runningPlan
}

type runningPlan struct {
	next   time.Time // of its next step
	faults int       // in a row
}

// round takes a step of every plan whose time has come, and returns how long there is
// nothing to do.
func (r *planRunner) round(ctx context.Context) time.Duration {
	if !time.Now().Before(r.listAt) {
		if err := r.list(ctx); err != nil {
			r.trouble(ctx, "plans cannot be read", "", err)
			return planBusy
		}
	}
	if len(r.plans) == 0 {
		r.lease.release(ctx)
		return time.Until(r.listAt)
	}
	mine, err := r.lease.hold(ctx)
	if err != nil {
		r.trouble(ctx, "the lease of the plans cannot be taken", "", err)
	}
	if !mine {
		return planBusy
	}
	for id, s := range r.plans {
		if !time.Now().Before(s.next) && ctx.Err() == nil {
			r.step(ctx, id, s)
		}
	}
	next := min(time.Until(r.listAt), recordLeaseTTL/3)
	for _, s := range r.plans {
		next = min(next, time.Until(s.next))
	}
	return next
}

// list notes which plans run.
func (r *planRunner) list(ctx context.Context) error {
	all, err := r.p.List(ctx)
	if err != nil {
		return err
	}
	r.listAt = time.Now().Add(planPoll)
	running := make(map[string]*runningPlan)
	for i := range all {
		if all[i].State != PlanRunning {
			continue
		}
		s := r.plans[all[i].ID]
		if s == nil {
			s = new(runningPlan)
		}
		running[all[i].ID] = s
	}
	r.plans = running
	return nil
}

// step changes one batch of a plan.
func (r *planRunner) step(ctx context.Context, id string, s *runningPlan) {
	began := time.Now()
	plan, err := r.p.Get(ctx, id)
	if err == nil && plan.State != PlanRunning || errors.Is(err, ErrNotFound) {
		delete(r.plans, id)
		return
	}
	var g progress
	if err == nil {
		g, err = r.p.work(ctx, &plan)
	}
	if err == nil {
		plan, err = r.p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) {
			plan.advance(&g, now)
			return true, nil
		})
	}
	if err != nil {
		r.fault(ctx, id, s, err)
		return
	}
	s.faults, s.next = 0, began.Add(plan.pace(len(g.results)))
	if plan.State != PlanRunning {
		delete(r.plans, id)
		r.p.o.Logger.LogAttrs(ctx, slog.LevelInfo, "plan "+plan.State.String(), slog.String("plan", id), slog.String("action", plan.Request.Action.String()),
			slog.Int64("done", plan.Done), slog.Int64("failed", plan.Failed))
	}
}

// fault repeats a step later, or ends a plan that cannot be carried out.
func (r *planRunner) fault(ctx context.Context, id string, s *runningPlan, err error) {
	if ctx.Err() != nil {
		return
	}
	r.trouble(ctx, "a step of a plan failed", id, err)
	lasting := errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt)
	s.faults++
	s.next = time.Now().Add(min(planBusy<<min(s.faults-1, 10), planFaultMax))
	_, _ = r.p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) { // if this fails too, the log has it
		plan.Problem = cleanText(err.Error(), 1024)
		if !lasting {
			return true, nil
		}
		return plan.set(PlanFailed, now)
	})
	if lasting {
		delete(r.plans, id)
	}
}

func (r *planRunner) trouble(ctx context.Context, what, id string, err error) {
	if ctx.Err() == nil {
		r.p.o.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.String("plan", id), slog.Any("error", err))
	}
}

// work changes the next batch of a plan.
func (p *Plans) work(ctx context.Context, plan *Plan) (progress, error) {
	if len(plan.Request.Refs) > 0 {
		return p.workNamed(ctx, plan)
	}
	// Update alone cannot tell where it stopped, and what it refuses would come first
	// again; so a page is looked at, then as many are changed from the same place on.
	// Update checks the query once more, so that nothing is changed twice.
	q := plan.query(plan.batch())
	page, err := p.store.Find(ctx, q)
	if err != nil {
		return progress{}, err
	}
	g := progress{fromCursor: plan.Cursor, cursor: page.Next, end: page.Next == ""}
	if len(page.Entries) > 0 {
		g.results, err = p.store.Update(ctx, Selection{Query: &q}, plan.change(), len(page.Entries))
	}
	return g, err
}

func (p *Plans) workNamed(ctx context.Context, plan *Plan) (progress, error) {
	left := plan.Request.Refs[min(plan.Named, len(plan.Request.Refs)):]
	batch := left[:min(len(left), plan.batch())]
	g := progress{fromNamed: plan.Named, named: len(batch), end: len(batch) == len(left)}
	if len(batch) == 0 {
		return g, nil
	}
	q := plan.query(0)
	results, err := p.store.Update(ctx, Selection{Refs: batch, Query: &q}, plan.change(), len(batch))
	if err != nil {
		return g, err
	}
	g.results = results
	return g, p.forgive(ctx, plan, results)
}

// forgive counts as done what was refused only because this plan did it before, when
// its runner died between the change and the record of it.
func (p *Plans) forgive(ctx context.Context, plan *Plan, results []Updated) error {
	var refs []Ref
	for i := range results {
		if errors.Is(results[i].Err, ErrState) {
			refs = append(refs, results[i].Ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	entries, err := p.store.Get(ctx, refs)
	if err != nil {
		return err
	}
	ours := make(map[Ref]bool, len(entries))
	for _, e := range entries {
		if e != nil && e.Plan == plan.ID {
			ours[e.Ref()] = true
		}
	}
	for i := range results {
		if ours[results[i].Ref] {
			results[i].Err = nil
		}
	}
	return nil
}

// admits reports why a named message is not the plan's to change, or nil.
func (p *Plan) admits(e *Entry) error {
	switch dead := p.Request.Query.State == StateDead; {
	case e == nil:
		return ErrNotFound
	case dead != (e.State == StateDead), dead && e.DiedAt.After(p.Cutoff):
		return ErrState
	}
	return nil
}
