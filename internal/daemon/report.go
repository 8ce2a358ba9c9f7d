package daemon

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/report"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// Bounds of a report.
const (
	reportSince   = 24 * time.Hour // where nothing is said: before now, or before the plan was made
	reportPlans   = 50             // whose progress is looked at
	reportActions = 1000
)

// showReport tells what happened since a time.
func (a *app) showReport(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "since", "plan", "format")
	if err != nil {
		return err
	}
	now := a.utcNow(r)
	since, err := wire.ParseMoment("since", v.Get("since"), now)
	if err != nil {
		return err
	}
	one, err := a.reportPlan(r.Context(), who, v.Get("plan"))
	if err != nil {
		return err
	}
	switch {
	case since.IsZero() && one != nil:
		since = one.CreatedAt.Add(-reportSince)
	case since.IsZero():
		since = now.Add(-reportSince)
	}
	out := wire.Report{Since: since.UTC(), Until: now, By: who.name, Queues: who.queues}
	if a.instances != nil {
		out.Version = a.instances.self.Version
	}
	if one != nil {
		out.Plan = one.ID
	}
	for _, part := range []func(context.Context, *caller, *plan.Plan, *wire.Report) error{a.reportCauses, a.reportPlans, a.reportActions, a.reportLedger} {
		if err := part(r.Context(), who, one, &out); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	switch v.Get("format") {
	case "", "json":
		return writeJSON(w, http.StatusOK, out)
	case "markdown":
		w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
		err = report.Markdown(&b, &out)
	case "html":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = report.HTML(&b, &out)
	default:
		return bad(fmt.Sprintf("format %q", v.Get("format")), "use json, markdown or html")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes()) // the caller is gone if this fails
	return nil
}

// reportPlan returns the plan that a report is about, nil for none.
func (a *app) reportPlan(ctx context.Context, who *caller, id string) (*plan.Plan, error) {
	if id == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	if err := driver.CheckID(id); err != nil {
		return nil, err
	}
	p, err := a.plans.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &p, seesPlan(who, &p.Request)
}

// reportCauses adds the causes of what died and of what is dead.
func (a *app) reportCauses(ctx context.Context, who *caller, one *plan.Plan, out *wire.Report) error {
	q := redrive.Query{Limit: redrive.MaxPage}
	if one != nil {
		of := &one.Request.Query
		q.Queue, q.Reason, q.Signature = of.Queue, of.Reason, of.Signature
	}
	// A bucket that began before may reach into the time.
	all, err := a.findCauses(ctx, a.store, q, out.Until, out.Since.Add(-24*time.Hour))
	if err != nil {
		return err
	}
	out.Causes, out.CausesMore = []wire.ReportCause{}, !all.complete
	add := func(c wire.ReportCause, of *driver.Deaths) {
		c.Died, c.DiedMore = diedSince(of, out.Since)
		if c.Count > 0 || c.Died > 0 || c.DiedMore {
			out.Causes = append(out.Causes, c)
			out.Died += c.Died
			out.DiedMore = out.DiedMore || c.DiedMore
		}
	}
	for i := range all.causes {
		if c := &all.causes[i]; who.sees(c.Queue) {
			name := causeName{c.Queue, c.Signature, c.Reason}
			add(wire.ReportCause{Cause: a.showCause(all, c, who)}, all.deaths[name])
			delete(all.deaths, name)
		}
	}
	for name, of := range all.deaths { // of which nothing is dead any more
		if !who.sees(name.queue) || len(of.Buckets) == 0 {
			continue
		}
		c := wire.ReportCause{Cause: wire.Cause{Queue: name.queue, Signature: name.signature, Reason: name.reason}}
		c.First, c.Last = of.Buckets[0].Start.UTC(), of.Buckets[len(of.Buckets)-1].Start.UTC()
		if l := all.lives[lifeKey(name.queue, name.signature)]; l != nil {
			c.Live(l, deathsSince(of, l.At), "", all.now)
		}
		add(c, of)
	}
	slices.SortFunc(out.Causes, func(x, y wire.ReportCause) int {
		return cmp.Or(cmp.Compare(y.Died, x.Died), cmp.Compare(y.Count, x.Count), cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.Signature, y.Signature))
	})
	return nil
}

// diedSince counts deaths since a time; more says that it may be more, as a bucket began before.
func diedSince(d *driver.Deaths, since time.Time) (n int64, more bool) {
	if d == nil {
		return 0, false
	}
	for _, b := range d.Buckets {
		switch {
		case !b.Start.Before(since):
			n += b.Count
		case b.Start.Add(b.Width).After(since):
			more = more || b.Count > 0
		}
	}
	return n, more
}

// reportPlans adds the plans that the caller may see, with what became of what they redrove.
func (a *app) reportPlans(ctx context.Context, who *caller, one *plan.Plan, out *wire.Report) error {
	plans, err := a.plans.List(ctx)
	if err != nil {
		return err
	}
	out.Plans = []wire.Plan{}
	for i := range plans {
		p := &plans[i]
		if one != nil && p.ID != one.ID && p.Request.Restore != one.ID && p.Request.Query.Plan != one.ID {
			continue
		}
		if seesPlan(who, &p.Request) != nil || p.State.Final() && p.EndedAt.Before(out.Since) {
			continue
		}
		shown := a.planOf(p, who)
		if len(out.Plans) < reportPlans {
			progress, err := a.plans.Progress(ctx, p)
			if err != nil {
				return err
			}
			shown.Progress = wire.ProgressOf(&progress)
		}
		out.Plans = append(out.Plans, shown)
	}
	return nil
}

// reportActions adds who did what, for who may see the audit log.
func (a *app) reportActions(ctx context.Context, who *caller, one *plan.Plan, out *wire.Report) error {
	if allQueues := who.confine("") == nil; !allQueues || !who.may(config.ScopeAdmin) {
		out.ActionsHidden = true
		return nil
	}
	f := auditFilter{since: out.Since}
	if one != nil {
		f.plan = one.ID
	}
	list, err := a.findAudit(ctx, &f, "", reportActions)
	out.Actions, out.ActionsMore = list.Items, list.Next != ""
	return err
}

// reportLedger adds the ledger, and what is dead now.
func (a *app) reportLedger(ctx context.Context, who *caller, one *plan.Plan, out *wire.Report) error {
	out.Ledger = wire.Verified{Balanced: true, Queues: []wire.Audit{}}
	counts, err := a.store.Counts(ctx)
	if err != nil {
		return err
	}
	var queues []string
	for i := range counts {
		if name := counts[i].Queue; who.sees(name) && (one == nil || one.Request.Query.Queue == "" || one.Request.Query.Queue == name) {
			queues = append(queues, name)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	audits, err := a.balance(ctx, queues...)
	if err != nil {
		return err
	}
	out.Ledger = wire.VerifiedOf(audits)
	for i := range audits {
		out.Dead += audits[i].Dead
	}
	return nil
}
