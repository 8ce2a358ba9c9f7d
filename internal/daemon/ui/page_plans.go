package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/redrive/redrive/internal/wire"
)

func showPlans(v *visit) error {
	v.title = "Plans"
	state := v.query.Get("state")
	known := []string{"", wire.PlanRunning, wire.PlanPaused, wire.PlanStopped, wire.PlanProposed, wire.PlanDone, wire.PlanCancelled, wire.PlanFailed}
	if !slices.Contains(known, state) {
		return bad("state "+strconv.Quote(state), "use running, paused, stopped, proposed, done, cancelled or failed")
	}
	list, err := get[wire.List[wire.Plan]](v, at("plans"), nil)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "plans", viewPlans(list.Items, state, v.now))
	return nil
}

func showPlan(v *visit) error {
	id := v.r.PathValue("id")
	plan, err := get[wire.Plan](v, at("plans", id), url.Values{"progress": {"true"}})
	if err != nil {
		return err
	}
	v.title = "Plan " + plan.ID
	p := viewPlan(&plan, v.now)
	here := planPath(plan.ID)
	switch plan.State {
	case wire.PlanRunning:
		p.Actions = append(p.Actions, v.press("Pause", here+"/pause", "redrive"))
	case wire.PlanProposed:
		p.Actions = append(p.Actions, v.press("Release", here+"/release", releases(&plan)).as("main"))
	case wire.PlanPaused, wire.PlanStopped:
		p.Actions = append(p.Actions, v.press("Resume", here+"/resume", "redrive").as("main"))
	}
	if !plan.Ended() {
		p.Change = v.press("Change", here+"/change", "redrive")
		p.Actions = append(p.Actions, v.press("Cancel the rest", here+"/cancel", "redrive").as("danger"))
	}
	if plan.Request.Action == "redrive" && plan.Progress != nil && plan.Progress.DeadAgain > 0 {
		p.Again = withQuery("/dead", url.Values{"plan": {plan.ID}})
	}
	if plan.Request.Action == "repair" && plan.Done > 0 {
		these := wire.Filter{Plan: plan.ID, Edited: "true"}
		if plan.Request.Filter != nil {
			these.Queue = plan.Request.Filter.Queue
		}
		p.Actions = append(p.Actions, v.link("Redrive exactly these…", withQuery("/redrive", these.Parameters()), "redrive"), v.press("Restore the originals", here+"/restore", "redrive"))
	}
	v.show(http.StatusOK, "plan", p)
	return nil
}

// releases is the scope that lets a proposed plan run.
func releases(p *wire.Plan) string {
	if p.Request.Action == "drop" {
		return "purge"
	}
	return "redrive"
}

// resultsPage lists what became of the messages of a plan.
type resultsPage struct {
	ID, Path string
	Outcomes []option
	Rows     []resultRow
	Next     string
	Filtered bool
	Command  string
}

type resultRow struct {
	Queue, ID, Path string
	Outcome         chip
	Error           string
}

var outcomeTones = map[string]chip{
	"delivered": {"delivered", "✓", toneOK}, "waiting": {"waiting", "•", toneInfo}, "dead": {"dead again", "✕", toneBad}, "taken": {"changed by others", "–", toneInfo}, "refused": {"refused", "✕", toneWarn},
}

// showResults lists results. An outcome narrows the page, as the API has no such filter.
func showResults(v *visit) error {
	id, outcome := v.r.PathValue("id"), v.query.Get("outcome")
	v.title = "Results of " + id
	ask := url.Values{"limit": {strconv.Itoa(deadPageSize)}}
	if after := v.query.Get("after"); after != "" {
		ask.Set("after", after)
	}
	list, err := get[wire.List[wire.PlanResult]](v, at("plans", id, "results"), ask)
	if err != nil {
		return err
	}
	p := resultsPage{
		ID: id, Path: planPath(id), Filtered: outcome != "", Command: command("redrive", "plans", "results", id),
		Outcomes: options(outcome, "", "any", "delivered", "delivered", "waiting", "waiting", "dead", "dead again", "taken", "changed by others", "refused", "refused", "pending", "pending", "repaired", "repaired", "dropped", "dropped"),
	}
	for i := range list.Items {
		r := &list.Items[i]
		if outcome != "" && r.Outcome != outcome {
			continue
		}
		row := resultRow{Queue: r.Queue, ID: r.ID, Path: messagePath(r.Queue, r.ID), Outcome: outcomeTones[r.Outcome], Error: r.Error}
		if row.Outcome.Word == "" {
			row.Outcome = chip{Word: r.Outcome, Shape: "–"}
		}
		if r.Message != nil && r.Message.Error != "" && row.Error == "" {
			row.Error = r.Message.Error
		}
		p.Rows = append(p.Rows, row)
	}
	if list.Next != "" {
		next := url.Values{"after": {list.Next}}
		if outcome != "" {
			next.Set("outcome", outcome)
		}
		p.Next = withQuery(p.Path+"/results", next)
	}
	v.show(http.StatusOK, "results", p)
	return nil
}

// controlPlan pauses, resumes, releases or cancels a plan, or restores what it repaired.
func controlPlan(v *visit) error {
	id, act := v.r.PathValue("id"), v.r.PathValue("act")
	switch act {
	case "pause", "resume", "cancel", "release":
	case "change":
		return v.changePlan(id)
	case "restore":
		return v.create(wire.PlanRequest{Action: "restore", Restore: id})
	default:
		return bad("a plan cannot "+strconv.Quote(act), "use pause, resume, release, cancel, change or restore")
	}
	if _, err := send[wire.Plan](v, http.MethodPost, at("plans", id, act), struct{}{}); err != nil {
		return err
	}
	return v.redirect(planPath(id))
}

// changePlan changes the rate of a plan, and with what canary it goes on.
func (v *visit) changePlan(id string) error {
	c := wire.PlanChange{Rate: v.value("rate")}
	if s := v.value("canary"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return bad("the canary is no number of messages", "use 1 or more, 0 for none, or leave it empty")
		}
		c.Canary = &n
	}
	if _, err := send[wire.Plan](v, http.MethodPatch, at("plans", id), c); err != nil {
		return err
	}
	return v.redirect(planPath(id))
}
