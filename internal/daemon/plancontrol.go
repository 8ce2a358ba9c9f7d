package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

func (a *app) cancelPlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	return a.setPlan(w, r, who, wire.AuditEntry{Action: "plan cancelled"}, a.plans.Cancel)
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
