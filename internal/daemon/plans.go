package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// planRequest checks and converts a request. now is what durations count back from.
func planRequest(req *wire.PlanRequest, who *caller, now time.Time) (plan.Request, error) {
	out := plan.Request{
		ID: req.ID, Reason: req.Reason, Propose: !who.may(config.ScopeRedrive),
		Repair: req.Repair, Restore: req.Restore, To: req.To, NewID: req.NewID, ConfirmUncertain: req.ConfirmUncertain, ConfirmCorrupt: req.ConfirmCorrupt, MaxRedrives: req.MaxRedrives, Canary: req.Canary, Watch: req.Watch.Std(), All: req.All, Actor: who.name,
	}
	if req.ID != "" {
		asked, err := json.Marshal(req) // as it was asked: with times that count back from now
		if err != nil {
			return out, err
		}
		sum := sha256.Sum256(asked)
		out.Fingerprint = hex.EncodeToString(sum[:16])
	}
	var err error
	if out.Action, err = planAction(req); err != nil {
		return out, err
	}
	if out.Rate, err = parseRate(req.Rate); err != nil {
		return out, err
	}
	filter := req.Filter
	if req.All && filter == nil {
		filter = &wire.Filter{}
	}
	if req.Action == "restore" && filter == nil && len(req.Refs) == 0 {
		return out, nil
	}
	if (filter == nil) == (len(req.Refs) == 0) {
		return out, bad("a plan needs either a filter or refs", `give {"all":true} for all dead letters`)
	}
	if len(req.Repair) > 0 {
		out.View = string(who.view()) // of what it may tell
	}
	if filter != nil {
		out.Query, err = queryOf(filter, who, now)
		if len(req.Repair) == 0 {
			out.View = planView(who, &out.Query)
		}
		return out, err
	}
	for _, s := range req.Refs {
		ref, err := parseRef(s)
		if err != nil {
			return out, err
		}
		out.Refs = append(out.Refs, ref)
	}
	return out, nil
}

// planAction reads the action of a request.
func planAction(req *wire.PlanRequest) (driver.Action, error) {
	actions := map[string]driver.Action{"redrive": driver.ActRedrive, "drop": driver.ActDrop, "archive": driver.ActArchive, "repair": driver.ActEdit, "restore": driver.ActEdit, "retry": driver.ActDueNow}
	action, known := actions[req.Action]
	switch {
	case !known:
		return 0, bad(fmt.Sprintf("action %q", req.Action), "use redrive, drop, archive, repair, restore or retry")
	case (req.Action == "repair") != (len(req.Repair) > 0):
		return 0, bad("action "+req.Action+" and repair", `a repair has a rule: {"action":"repair","repair":[{"op":"set","path":"$.version","value":2}]}`)
	case (req.Action == "restore") != (req.Restore != ""):
		return 0, bad("action "+req.Action+" and restore", "a restore names the plan of a repair")
	}
	return action, nil
}

// confinePlan refuses a plan that touches queues the caller may not use.
func confinePlan(who *caller, p *plan.Request) error {
	var queues []string
	if p.To != "" {
		queues = append(queues, p.To)
	}
	if len(p.Refs) == 0 {
		queues = append(queues, p.Query.Queue)
	}
	for _, ref := range p.Refs {
		queues = append(queues, ref.Queue)
	}
	return who.confine(queues...)
}

// mayMove refuses a target where the caller may put nothing, or where less is hidden of
// the messages than where they come from. An admin sees all of them anyway.
func (a *app) mayMove(who *caller, p *plan.Request) error {
	if err := a.mayEnter(who, p.To); err != nil || who.may(config.ScopeAdmin) {
		return err
	}
	var from masks
	if len(p.Refs) == 0 {
		from = *a.masksOver(p.Query.Queue)
	}
	for _, ref := range p.Refs {
		from.named = append(from.named, a.masksOf(ref.Queue).named...)
	}
	missing := a.masksOf(p.To).missing(&from)
	if len(missing) == 0 {
		return nil
	}
	return problem.New(http.StatusForbidden, "masks", "The target hides less of the messages", "queue "+p.To+" does not mask what the queues that they come from do",
		"add to its mask: "+strings.Join(missing, ", ")+"; or name the queue that they come from in the filter; or use a token with the scope admin")
}

// brokerWatch is how long the canary of messages that go to a broker is watched.
const brokerWatch = time.Minute

// toBroker reports whether a queue that messages of a plan go to delivers to a broker, where they may
// fail later.
func (a *app) toBroker(p *plan.Request) bool {
	if a.conf() == nil {
		return false
	}
	for name, q := range a.conf().Queues {
		named := p.To == name || p.To == "" && (p.Query.Queue == name || p.Query.Queue == "" && len(p.Refs) == 0 ||
			slices.ContainsFunc(p.Refs, func(r redrive.Ref) bool { return r.Queue == name }))
		if named && q.Deliver != nil && q.Deliver.Publish != "" {
			return true
		}
	}
	return false
}

// seesPlan refuses a plan that is neither the caller's own nor about queues the caller
// may use. A plan of names forgets them when it ends.
func seesPlan(who *caller, p *plan.Request) error {
	if p.Actor == who.name {
		return nil
	}
	return confinePlan(who, p)
}

// lacks refuses what needs a scope.
func lacks(what string, scope config.Scope) error {
	return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", what+" needs the scope "+string(scope), "")
}

// mayPlan refuses what the caller may not do to messages.
func (a *app) mayPlan(r *http.Request, who *caller, p *plan.Request) error {
	switch {
	case p.Action == driver.ActDrop && !p.Propose && !who.may(config.ScopePurge):
		return lacks("dropping messages", config.ScopePurge)
	case len(p.Repair) > 0 && !who.may(config.ScopeReadPayload):
		return lacks("a repair, which reads bodies,", config.ScopeReadPayload)
	case p.Restore != "":
		if err := driver.CheckID(p.Restore); err != nil {
			return err
		}
		of, err := a.plans.Get(r.Context(), p.Restore)
		if err != nil {
			return err
		}
		return seesPlan(who, &of.Request)
	case p.To != "":
		return a.mayMove(who, p)
	}
	return nil
}

func (a *app) createPlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	var req wire.PlanRequest
	if err := readJSON(w, r, 1<<20, &req); err != nil {
		return err
	}
	request, err := planRequest(&req, who, a.utcNow(r))
	if err != nil {
		return err
	}
	if request.Canary > 0 && request.Watch == 0 && a.toBroker(&request) {
		request.Watch = brokerWatch
	}
	if request.Restore == "" {
		if err := confinePlan(who, &request); err != nil {
			return err
		}
	}
	if request.Query.Queue != "" {
		if _, err := a.existing(r, request.Query.Queue); err != nil {
			return err
		}
	}
	if err := a.mayPlan(r, who, &request); err != nil {
		return err
	}
	if req.DryRun {
		run, err := a.plans.DryRun(r.Context(), request)
		if err != nil {
			return err
		}
		out := wire.DryRunOf(&run)
		for i := range run.Causes {
			out.Causes = append(out.Causes, a.cause(&run.Causes[i], who))
		}
		if run.Repair != nil {
			out.Preview = a.previewOf(run.Repair)
		}
		return writeJSON(w, http.StatusOK, out)
	}
	var plan plan.Plan
	status := http.StatusCreated
	entry := wire.AuditEntry{Action: "plan " + req.Action, Queue: request.Query.Queue, Filter: req.Filter, Count: int64(len(request.Refs)), Note: text.Clean(req.Reason, maxNote)}
	if request.Propose {
		entry.Action += " proposed"
	}
	err = a.audited(r, who, entry, func(e *wire.AuditEntry) error {
		plan, err = a.plans.Create(r.Context(), request)
		e.Plan, e.Count, e.CountMore = plan.ID, max(plan.Total, e.Count), plan.TotalMore
		if errors.Is(err, redrive.ErrDuplicate) { // the same plan
			status, err, e.Note = http.StatusOK, nil, "a start that was repeated"
		}
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/plans/"+url.PathEscape(plan.ID))
	if status == http.StatusOK {
		return a.shownPlan(w, r, status, &plan, who, nil)
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "plan created", slog.String("plan", plan.ID), slog.String("action", req.Action),
		slog.Int64("total", plan.Total), slog.String("actor", who.name))
	return a.shownPlan(w, r, status, &plan, who, nil)
}

func (a *app) listPlans(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	plans, err := a.plans.List(r.Context())
	if err != nil {
		return err
	}
	list := wire.List[wire.Plan]{Items: []wire.Plan{}, Complete: true}
	h := planHolds{app: a, ctx: r.Context()}
	for i := range plans {
		if seesPlan(who, &plans[i].Request) == nil {
			list.Items = append(list.Items, h.planShown(&plans[i], who))
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

// plan returns the plan that the path names, if the caller may see it.
func (a *app) plan(r *http.Request, who *caller) (*plan.Plan, error) {
	id := r.PathValue("id")
	if err := driver.CheckID(id); err != nil {
		return nil, err
	}
	p, err := a.plans.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return &p, seesPlan(who, &p.Request)
}

func (a *app) showPlan(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "progress")
	if err != nil {
		return err
	}
	p, err := a.plan(r, who)
	if err != nil {
		return err
	}
	switch v.Get("progress") {
	case "", "false":
		return a.shownPlan(w, r, http.StatusOK, p, who, nil)
	case "true":
		progress, err := a.plans.Progress(r.Context(), p)
		if err != nil {
			return err
		}
		return a.shownPlan(w, r, http.StatusOK, p, who, &progress)
	}
	return bad(fmt.Sprintf("progress %q", v.Get("progress")), "use true or false")
}

// planResults lists what became of the messages of a plan.
func (a *app) planResults(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "after", "limit")
	if err != nil {
		return err
	}
	limit, err := parseLimit(v)
	if err != nil {
		return err
	}
	p, err := a.plan(r, who)
	if err != nil {
		return err
	}
	results, next, err := a.plans.Results(r.Context(), p.ID, v.Get("after"), limit)
	if err != nil {
		return err
	}
	list := wire.List[wire.PlanResult]{Items: []wire.PlanResult{}, Next: next, Complete: true}
	for i := range results {
		if e := results[i].Entry; e != nil && !who.sees(e.Queue) {
			results[i].Entry = nil
		}
		if who.sees(results[i].Queue) {
			out := wire.PlanResultOf(&results[i], who.may(config.ScopeReadPayload))
			if out.Message != nil {
				a.masksOf(out.Message.Queue).quoted(out.Message)
			}
			list.Items = append(list.Items, out)
		}
	}
	return writeJSON(w, http.StatusOK, list)
}
