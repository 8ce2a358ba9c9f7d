package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
	reportBefore  = 8              // plans over what another plan changed, in a row
	reportActions = 1000
)

// showReport tells what happened since a time.
func (a *app) showReport(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "since", "plan", "format")
	if err != nil {
		return err
	}
	if f := v.Get("format"); !slices.Contains([]string{"", "json", "markdown", "html"}, f) {
		return bad(fmt.Sprintf("format %q", f), "use json, markdown or html")
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
	case "markdown":
		w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
		err = report.Markdown(&b, &out)
	case "html":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", report.Policy)
		err = report.HTML(&b, &out)
	default:
		return writeJSON(w, http.StatusOK, out)
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

// reportScope is what a report on a plan is about.
type reportScope struct {
	query      redrive.Query          // by queue, reason and signature
	signatures map[causeName]struct{} // without reasons; nil: any
	unknown    bool                   // the plan had messages of which nothing is known any more
}

// covers reports whether a cause belongs to it.
func (s *reportScope) covers(c causeName) bool {
	if s.signatures == nil {
		return true
	}
	_, ok := s.signatures[causeName{queue: c.queue, signature: c.signature}]
	return ok
}

// reportScope returns what a plan, or nil, was about. One over what another plan changed is about the
// causes of that.
func (a *app) reportScope(ctx context.Context, one *plan.Plan) (s reportScope, err error) {
	for range reportBefore {
		if one == nil {
			return s, nil
		}
		of := &one.Request
		before := cmp.Or(of.Restore, of.Query.Plan)
		if before == "" || of.Query.Queue != "" || of.Query.Signature != "" {
			break
		}
		p, err := a.plans.Get(ctx, before)
		if errors.Is(err, redrive.ErrNotFound) {
			break
		}
		if err != nil {
			return s, err
		}
		one = &p
	}
	of := &one.Request.Query
	s.query = redrive.Query{Queue: of.Queue, Reason: of.Reason, Signature: of.Signature}
	if all := one.Request.All || *of != (redrive.Query{State: of.State}); all || one.Request.Restore != "" {
		return s, nil
	}
	return s, a.namedCauses(ctx, one, &s)
}

// namedCauses adds the causes of a plan over named messages: of those that are still there, and those
// that it noted when it was made.
func (a *app) namedCauses(ctx context.Context, one *plan.Plan, s *reportScope) error {
	s.signatures = make(map[causeName]struct{})
	queues := make(map[string]bool)
	gone := false
	see := func(ref redrive.Ref, e *redrive.Entry) {
		queues[ref.Queue] = true
		if e == nil {
			gone = true
		} else if f := e.History.Latest(); f != nil {
			s.signatures[causeName{queue: ref.Queue, signature: f.Signature}] = struct{}{}
		}
	}
	for refs := range slices.Chunk(one.Request.Refs, wholePage) {
		entries, err := a.store.Get(ctx, refs)
		if err != nil {
			return err
		}
		for i, e := range entries {
			see(refs[i], e)
		}
	}
	for after := ""; ; {
		results, next, err := a.plans.Results(ctx, one.ID, after, redrive.MaxPage)
		if err != nil {
			return err
		}
		for i := range results {
			see(results[i].Ref, results[i].Entry)
		}
		if after = next; next == "" {
			break
		}
	}
	for _, signature := range one.Causes {
		for queue := range queues {
			s.signatures[causeName{queue: queue, signature: signature}] = struct{}{}
		}
	}
	s.unknown = gone && len(one.Causes) == 0
	return nil
}

// reportCauses adds the causes of what died and of what is dead.
func (a *app) reportCauses(ctx context.Context, who *caller, one *plan.Plan, out *wire.Report) error {
	scope, err := a.reportScope(ctx, one)
	if err != nil {
		return err
	}
	// A bucket that began before may reach into the time.
	h, err := a.histories(ctx, &scope.query, out.Until, out.Since.Add(-24*time.Hour))
	if err != nil {
		return err
	}
	all := largest[wire.ReportCause]{most: redrive.MaxPage, order: func(x, y wire.ReportCause) int {
		return cmp.Or(cmp.Compare(y.Died, x.Died), cmp.Compare(y.Count, x.Count), cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.Signature, y.Signature), cmp.Compare(x.Reason, y.Reason))
	}}
	add := func(c wire.ReportCause, of *driver.Deaths) {
		c.Died, c.DiedMore = diedSince(of, out.Since)
		out.Died += c.Died
		out.DiedMore = out.DiedMore || c.DiedMore
		if of == nil && c.Last.After(out.Since) { // it is counted with others
			c.DiedMore = true
		}
		died := c.Died > 0 || c.DiedMore
		if died && c.Reason != 0 {
			out.CausesDied++
		}
		if c.Count > 0 {
			out.CausesDead++
		}
		if died || c.Count > 0 {
			all.add(c)
		}
	}
	for c, err := range a.eachCause(ctx, &scope.query, h) {
		if err != nil {
			return err
		}
		if name := nameOf(c); who.sees(c.Queue) && scope.covers(name) {
			add(wire.ReportCause{Cause: a.showCause(h, c, who)}, h.deaths[name])
			delete(h.deaths, name)
		}
	}
	for name, of := range h.deaths { // of which nothing is dead any more
		if !who.sees(name.queue) || len(of.Buckets) == 0 || !scope.covers(name) {
			continue
		}
		c := wire.ReportCause{Cause: wire.Cause{Queue: name.queue, Signature: name.signature, Reason: name.reason}}
		c.First, c.Last = of.Buckets[0].Start.UTC(), of.Buckets[len(of.Buckets)-1].Start.UTC()
		if l := h.life(name); l != nil {
			c.Live(l, deathsSince(of, l.At), "", h.now)
		}
		add(c, of)
	}
	items, fit := all.list()
	out.Causes, out.CausesMore, out.CausesUnknown = append([]wire.ReportCause{}, items...), !fit, scope.unknown
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
	looked := 0
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
		if p.Lives() && looked < reportPlans {
			looked++
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
