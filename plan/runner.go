package plan

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/lease"
	"github.com/redrive/redrive/internal/text"
)

// Run carries out the plans of the store until ctx ends, and then returns nil. One
// process at a time does so: it holds a record as its lease. A plan that was
// interrupted goes on where it stopped. It may be called once.
func (p *Plans) Run(ctx context.Context) error {
	r := planRunner{p: p, lease: lease.Lease{Store: p.store, Key: planSpace, Holder: p.o.Instance, Single: p.store.Caps().Exclusive}, plans: make(map[string]*runningPlan)}
	defer r.lease.Release(ctx)
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
	lease  lease.Lease
	listAt time.Time // when to look for plans again
	plans  map[string]*runningPlan
}

type runningPlan struct {
	next   time.Time     // of its next step
	faults int           // in a row
	rate   float64       // for which next was drawn
	looked time.Time     // when what it redrove was looked at
	skew   time.Duration // of the store's clock, to ours
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
		r.lease.Release(ctx)
		return time.Until(r.listAt)
	}
	mine, err := r.lease.Hold(ctx)
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
	next := min(time.Until(r.listAt), lease.TTL/3)
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
		if all[i].State != Running {
			continue
		}
		s := r.plans[all[i].ID]
		if s == nil {
			s = new(runningPlan)
		}
		if rate := all[i].Request.Rate; s.rate != rate { // a slow plan's next step may be hours away
			s.rate, s.next = rate, time.Time{}
		}
		running[all[i].ID] = s
	}
	r.plans = running
	return nil
}

// step takes one step of a plan: looks at its canary, or changes one batch.
func (r *planRunner) step(ctx context.Context, id string, s *runningPlan) {
	began := time.Now()
	plan, err := r.p.Get(ctx, id)
	if err == nil && plan.State != Running || errors.Is(err, redrive.ErrNotFound) {
		delete(r.plans, id)
		return
	}
	n, pause := 0, time.Duration(0)
	if err == nil {
		pause, err = r.watch(ctx, &plan, s)
	}
	if err == nil && pause == 0 && plan.State == Running {
		plan, n, err = r.p.work(ctx, plan)
	}
	if err != nil {
		r.fault(ctx, id, s, err)
		return
	}
	s.faults, s.next = 0, began.Add(max(pause, plan.pace(n, time.Now().Add(s.skew))))
	if plan.State == Running {
		return
	}
	delete(r.plans, id)
	level := slog.LevelInfo
	if plan.State == Stopped {
		level = slog.LevelWarn
	}
	r.p.o.Logger.LogAttrs(ctx, level, "plan "+plan.State.String(), slog.String("plan", id), slog.String("action", plan.Request.Action.String()),
		slog.Int64("done", plan.Done), slog.Int64("failed", plan.Failed), slog.String("problem", plan.Problem))
}

// watch looks at what became of what a plan with a canary redrove, when it is time, and
// returns how long the plan has to wait before it goes on.
func (r *planRunner) watch(ctx context.Context, plan *Plan, s *runningPlan) (time.Duration, error) {
	t := plan.Canary
	if t == nil || plan.Pending > 0 || plan.tries() && !plan.canaryTaken() {
		return 0, nil
	}
	if wait := time.Until(s.looked.Add(canaryEvery)); wait > 0 {
		if t.Stage == StageCanary {
			return wait, nil
		}
		return 0, nil
	}
	began := time.Now()
	err := r.p.look(ctx, plan, s)
	// Looking must not be most of what it does.
	s.looked = time.Now().Add(10 * time.Since(began))
	if err == nil && plan.State == Running && plan.tries() && plan.canaryTaken() {
		return canaryEvery, nil
	}
	return 0, err
}

// fault repeats a step later, or ends a plan that cannot be carried out.
func (r *planRunner) fault(ctx context.Context, id string, s *runningPlan, err error) {
	if ctx.Err() != nil {
		return
	}
	r.trouble(ctx, "a step of a plan failed", id, err)
	lasting := errors.Is(err, redrive.ErrInvalid) || errors.Is(err, redrive.ErrUnsupported) || errors.Is(err, redrive.ErrCorrupt)
	s.faults++
	s.next = time.Now().Add(min(planBusy<<min(s.faults-1, 10), planFaultMax))
	_, _ = r.p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) { // if this fails too, the log has it
		plan.Problem = text.Clean(err.Error(), 1024)
		if !lasting {
			return true, nil
		}
		return plan.set(Failed, now)
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

// admits reports why a named message is not the plan's to change, or nil.
func (p *Plan) admits(e *redrive.Entry) error {
	switch dead := p.Request.Query.State == redrive.StateDead; {
	case e == nil:
		return redrive.ErrNotFound
	case dead != (e.State == redrive.StateDead), dead && e.DiedAt.After(p.Cutoff),
		p.Request.Action == driver.ActDueNow && (e.State != redrive.StateWaiting || e.Lane != redrive.LaneRetry):
		return redrive.ErrState
	}
	return nil
}
