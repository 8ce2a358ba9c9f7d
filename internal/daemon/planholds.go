package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// planHolds says what holds plans, from one look at the queues.
type planHolds struct {
	app    *app
	ctx    context.Context //nolint:containedctx // it lives for one request
	queues []wire.Queue    // nil: not looked at yet
	err    error
}

// planShown returns a plan as it shows, with what holds it.
func (h *planHolds) planShown(p *plan.Plan, who *caller) wire.Plan {
	out := h.app.planOf(p, who)
	if p.State == plan.Running {
		out.Holds = h.of(p, who)
	}
	return out
}

// of returns what holds a plan that runs: its own trouble, its canary, and what keeps the messages that
// it let go from being delivered.
func (h *planHolds) of(p *plan.Plan, who *caller) []wire.PlanHold {
	all := []wire.PlanHold{}
	add := func(queue string, hold wire.Hold) { all = append(all, wire.PlanHold{Queue: queue, Hold: hold}) }
	if p.Problem != "" {
		text, _ := h.app.masksOver("").text(p.Problem)
		add("", wire.HoldOf(wire.HoldStore, "", p.UpdatedAt, time.Time{}, text))
	}
	if t := p.Canary; t != nil && t.Stage == plan.StageCanary {
		switch {
		case !t.Seen.IsZero() && p.Request.Watch > 0:
			add("", wire.HoldOf(wire.HoldCanary, "", t.Seen, t.Seen.Add(p.Request.Watch), "the canary was delivered; it is watched whether something comes back"))
		case t.Waiting > 0:
			add("", wire.HoldOf(wire.HoldCanary, "", t.Since, time.Time{}, fmt.Sprintf("of the canary's %d, %d are not at their end yet", t.Size, t.Waiting)))
		}
	}
	if !p.Lives() {
		return all
	}
	for i := range h.look() {
		q := &h.queues[i]
		if !who.sees(q.Queue) || !p.GoesTo(q.Queue) || q.Waiting.All == 0 {
			continue
		}
		for _, hold := range q.HeldBy {
			if hold.Stops == wire.StopsDelivery {
				add(q.Queue, hold)
			}
		}
		if e := q.Engine; e != nil && e.Slots > 0 && e.Busy >= e.Slots && q.Waiting.Redrive > 0 && q.Waiting.Fresh > 0 {
			add(q.Queue, wire.HoldOf(wire.HoldLane, "", time.Time{}, time.Time{}, fmt.Sprintf("%d other messages wait, too: what is redriven gets an eleventh of the slots", q.Waiting.Fresh+q.Waiting.Retry)))
		}
	}
	return all
}

// look describes the queues, once.
func (h *planHolds) look() []wire.Queue {
	if h.queues != nil || h.err != nil {
		return h.queues
	}
	h.queues = []wire.Queue{}
	counts, err := h.app.store.Counts(h.ctx)
	if err != nil {
		h.err = err
		return nil
	}
	held, err := h.app.holding(h.ctx)
	if err != nil {
		h.err = err
		return nil
	}
	status := h.app.status()
	for i := range counts {
		h.queues = append(h.queues, h.app.describe(&counts[i], &status, &held))
	}
	return h.queues
}

// shownPlan answers with a plan.
func (a *app) shownPlan(w http.ResponseWriter, r *http.Request, status int, p *plan.Plan, who *caller, progress *plan.Progress) error {
	h := planHolds{app: a, ctx: r.Context()}
	out := h.planShown(p, who)
	if h.err != nil {
		return h.err
	}
	if progress != nil {
		out.Progress = wire.ProgressOf(progress)
	}
	return writeJSON(w, status, out)
}
