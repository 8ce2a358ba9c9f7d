package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

func (a *app) cancelPlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	p, err := a.plan(r, who)
	if err != nil {
		return err
	}
	if own := p.State == plan.Proposed && p.Request.Actor == who.name; !own && !who.may(config.ScopeRedrive) {
		return lacks("to cancel a plan that is not one's own proposal", config.ScopeRedrive)
	}
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan cancelled"}, a.plans.Cancel)
}

// releasePlan lets a plan run that another proposed.
func (a *app) releasePlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	p, err := a.plan(r, who)
	if err != nil {
		return err
	}
	scope := config.ScopeRedrive
	if p.Request.Action == driver.ActDrop {
		scope = config.ScopePurge
	}
	switch {
	case !who.may(scope):
		return lacks("to release a plan to "+wire.ActionOf(&p.Request), scope)
	case p.State == plan.Proposed && p.Request.Actor == who.name:
		return problem.New(http.StatusForbidden, "proposer", "Another must release it", "the plan was proposed by "+who.name, "use another token")
	}
	if err := confinePlan(who, &p.Request); err != nil {
		return err
	}
	as := p.Request
	as.Propose = false
	if err := a.mayPlan(r, who, &as); err != nil {
		return err
	}
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan released", Note: "proposed by " + p.Request.Actor}, func(ctx context.Context, id string) error { return a.plans.Release(ctx, id, who.name) })
}

func (a *app) pausePlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan paused"}, a.plans.Pause)
}

func (a *app) resumePlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	pace, said, err := paceOf(w, r)
	if err != nil {
		return err
	}
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan resumed", Note: said}, func(ctx context.Context, id string) error { return a.plans.Resume(ctx, id, pace) })
}

// changePlan changes the pace of a plan.
func (a *app) changePlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	pace, said, err := paceOf(w, r)
	if err != nil {
		return err
	}
	if said == "" {
		return bad("nothing is to be changed", `give {"rate": "50/s"}, {"canary": 10} or both`)
	}
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan changed", Note: said}, func(ctx context.Context, id string) error { return a.plans.Change(ctx, id, pace) })
}

// paceOf reads the pace that a request asks for, also as text.
func paceOf(w http.ResponseWriter, r *http.Request) (pace plan.Pace, said string, err error) {
	var c wire.PlanChange
	if err := readJSON(w, r, 64<<10, &c); err != nil {
		return pace, "", err
	}
	var parts []string
	if pace.Rate, err = parseRate(c.Rate); c.Rate != "" {
		parts = append(parts, "rate "+c.Rate)
	}
	if pace.Canary = c.Canary; c.Canary != nil {
		parts = append(parts, fmt.Sprintf("canary %d", *c.Canary))
	}
	return pace, strings.Join(parts, ", "), err
}

// setPlan changes the plan that the path names, under an entry in the audit log.
func (a *app) setPlan(w http.ResponseWriter, r *http.Request, who *caller, entry wire.AuditEntry, set func(context.Context, string) error) error {
	p, err := a.plan(r, who)
	if err != nil {
		return err
	}
	entry.Queue, entry.Plan = p.Request.Query.Queue, p.ID
	err = a.audited(r, who, entry, func(*wire.AuditEntry) error { return set(r.Context(), p.ID) })
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, entry.Action, slog.String("plan", p.ID), slog.String("note", entry.Note), slog.String("actor", who.name))
	return a.showPlan(w, r, who)
}
