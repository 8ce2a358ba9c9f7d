package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// planHolds says what holds plans, from one look at each queue that they go to.
type planHolds struct {
	app    *app
	ctx    context.Context //nolint:containedctx // it lives for one request
	held   *holding        // nil: not looked at yet
	status working
	queues map[string]*wire.Queue // that were looked at; nil: there is none
	all    bool                   // all were
	err    error
}

// planShown returns a plan as it shows, with what holds it, or that nobody knows: the plan is
// there, and was made or changed, all the same.
func (h *planHolds) planShown(p *plan.Plan, who *caller) wire.Plan {
	out := h.app.planOf(p, who)
	if p.State != plan.Running {
		return out
	}
	known := h.err == nil
	out.Holds = h.of(p, who)
	if known && h.err != nil {
		h.app.log.LogAttrs(h.ctx, slog.LevelWarn, "what holds a plan cannot be read", slog.String("plan", p.ID), slog.Any("error", h.err))
	}
	out.HoldsUnknown = h.err != nil && p.Lives()
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
	for _, q := range h.look(p.Targets()) {
		if !who.sees(q.Queue) || q.Waiting.All == 0 {
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

// look describes queues, each once; nil: all.
func (h *planHolds) look(names []string) (described []*wire.Queue) {
	if h.err != nil {
		return nil
	}
	if h.held == nil {
		held, err := h.app.holding(h.ctx)
		if h.err = err; err != nil {
			return nil
		}
		h.held, h.status, h.queues = &held, h.app.status(), make(map[string]*wire.Queue)
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, seen := h.queues[name]; return seen })
	if !h.all && (names == nil || len(missing) > 0) {
		counts, err := h.app.store.Counts(h.ctx, missing...)
		if h.err = err; err != nil {
			return nil
		}
		for _, name := range missing {
			h.queues[name] = nil
		}
		for i := range counts {
			q := h.app.describe(&counts[i], &h.status, h.held)
			h.queues[q.Queue] = &q
		}
		h.all = names == nil
	}
	if names == nil {
		names = slices.Sorted(maps.Keys(h.queues))
	}
	for _, name := range names {
		if q := h.queues[name]; q != nil {
			described = append(described, q)
		}
	}
	return described
}

// shownPlan answers with a plan.
func (a *app) shownPlan(w http.ResponseWriter, r *http.Request, status int, p *plan.Plan, who *caller, progress *plan.Progress) error {
	h := planHolds{app: a, ctx: r.Context()}
	out := h.planShown(p, who)
	if progress != nil {
		out.Progress = wire.ProgressOf(progress)
	}
	return writeJSON(w, status, out)
}
