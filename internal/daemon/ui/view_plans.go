package ui

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// planRow is a plan in a list.
type planRow struct {
	RowID          string // in lists that are kept up to date
	ID, Path, What string
	State          chip
	Actor          string
	Done, Total    int64
	More           bool
	Failed         int64
	Problem        string
	Created        moment
	Ended          moment
}

func planRowOf(p *wire.Plan, now time.Time) planRow {
	return planRow{
		ID: p.ID, Path: planPath(p.ID), What: planWhat(&p.Request, p.Named), State: planChip(p.State), Actor: p.Actor, Done: p.Done, Total: p.Total,
		More: p.TotalMore, Failed: p.Failed, Problem: p.Problem, Created: momentAt(p.CreatedAt, now), Ended: momentOf(p.EndedAt, now),
	}
}

// planWhat says what a plan does, and to which messages.
func planWhat(r *wire.PlanRequest, names int) string {
	what := r.Action
	switch {
	case r.Restore != "":
		return what + " of " + r.Restore
	case len(r.Refs) == 1:
		return what + " " + r.Refs[0]
	case len(r.Refs) > 1 || names > 0:
		return fmt.Sprintf("%s %s named messages", what, number(max(len(r.Refs), names)))
	case r.Filter != nil:
		f := *r.Filter
		if f.State == "dead" { // it is those most often
			f.State = ""
		}
		if s := f.String(); s != "" {
			return what + " " + s
		}
	}
	return what + " all dead letters"
}

// plansPage lists the plans.
type plansPage struct {
	Headline string
	States   []option
	Rows     []planRow
	Filtered bool
	More     int
	Command  string
}

const maxPlanRows = 100

func viewPlans(plans []wire.Plan, state string, now time.Time) plansPage {
	p := plansPage{
		States:   options(state, "", "any", wire.PlanRunning, "running", wire.PlanStopped, "stopped", wire.PlanPaused, "paused", wire.PlanProposed, "proposed", wire.PlanDone, "done", wire.PlanCancelled, "cancelled", wire.PlanFailed, "failed"),
		Filtered: state != "", Command: "redrive plans list",
	}
	open := 0
	for i := range plans {
		open += boolInt(!plans[i].Ended())
		if state == "" || plans[i].State == state {
			row := planRowOf(&plans[i], now)
			row.RowID = "p/" + row.ID
			p.Rows = append(p.Rows, row)
		}
	}
	p.More = max(len(p.Rows)-maxPlanRows, 0)
	p.Rows = p.Rows[:min(len(p.Rows), maxPlanRows)]
	p.Headline = fmt.Sprintf("%d plans, %d not ended", len(plans), open)
	if len(plans) == 0 {
		p.Headline = "No plans yet"
	}
	return p
}

// stage is a step of a plan with a canary.
type stage struct{ Name, Class, Detail string }

// planPage is one plan.
type planPage struct {
	Row     planRow
	Stages  []stage
	Stats   []pair
	Percent int64
	Holds   []hold
	ETA     moment
	Rate    string // that is asked for
	Canary  int
	Change  action // of rate and canary
	Asked   []pair
	Errors  []pair
	Rule    []string
	Actions []action
	Command string
	Results string // the page of them
	Again   string // the page of what died again
	Report  string // on this plan
}

func viewPlan(p *wire.Plan, now time.Time) planPage {
	page := planPage{
		Row: planRowOf(p, now), Stages: stagesOf(p), Command: command("redrive", "plans", "show", p.ID), Results: planPath(p.ID) + "/results",
		Report: withQuery("/report", url.Values{"plan": {p.ID}}),
	}
	if p.Total > 0 {
		page.Percent = min((p.Done+p.Failed)*100/p.Total, 100)
	}
	total := number(p.Total)
	if p.TotalMore {
		total = "at least " + total
	}
	page.Stats = []pair{{"of", total}, {"changed", number(p.Done)}, {"refused", number(p.Failed)}}
	if g := p.Progress; g != nil {
		page.Stats = append(page.Stats, pair{"delivered", number(g.Delivered)}, pair{"dead again", number(g.DeadAgain)}, pair{"of new causes", number(g.NewCauses)}, pair{"waiting", number(g.Waiting)})
		if g.Taken > 0 {
			page.Stats = append(page.Stats, pair{"changed by others since", number(g.Taken)})
		}
	}
	for i := range p.Holds {
		h := holdOf(&p.Holds[i].Hold, now)
		if p.Holds[i].Queue != "" {
			h.Why = "queue " + p.Holds[i].Queue + ": " + h.Why
		}
		page.Holds = append(page.Holds, h)
	}
	if p.HoldsUnknown {
		page.Holds = append(page.Holds, hold{chip: chip{"not known", "?", toneWarn}, Why: "what else holds it, the store does not tell at the moment"})
	}
	page.ETA = momentOf(p.ETA, now)
	r := &p.Request
	page.Rate, page.Canary = r.Rate, r.Canary
	if p.Speed > 0 {
		page.Stats = append(page.Stats, pair{"a second", fmt.Sprintf("%.0f", p.Speed)})
	}
	if r.Reason != "" {
		page.Asked = append(page.Asked, pair{"why", r.Reason})
	}
	page.Asked = append(page.Asked, pair{"by", p.Actor}, pair{"asked", page.Row.Created.Full}, pair{"rate", r.Rate})
	if r.Canary > 0 {
		page.Asked = append(page.Asked, pair{"canary", number(r.Canary)})
	}
	if r.To != "" {
		page.Asked = append(page.Asked, pair{"into", r.To})
	}
	if r.NewID {
		page.Asked = append(page.Asked, pair{"ids", "new"})
	}
	if p.EndedAt != nil {
		page.Asked = append(page.Asked, pair{"ended", page.Row.Ended.Full})
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Errors)) {
		page.Errors = append(page.Errors, pair{kind, number(p.Errors[kind])})
	}
	for i := range r.Repair {
		if line, err := json.Marshal(r.Repair[i]); err == nil {
			page.Rule = append(page.Rule, string(line))
		}
	}
	return page
}

// stagesOf shows how far a plan is: canary, ramp, full.
func stagesOf(p *wire.Plan) (all []stage) {
	c := p.Canary
	if c == nil {
		return nil
	}
	names := []string{"canary", "ramp", "full"}
	at := slices.Index(names, c.Stage)
	for i, name := range names {
		s := stage{Name: name}
		switch {
		case i < at || p.State == wire.PlanDone:
			s.Class, s.Detail = "done", "✓"
		case i == at && p.State == wire.PlanStopped:
			s.Class, s.Detail = "bad", "stopped"
		case i == at:
			s.Class, s.Detail = "now", strings.TrimSpace(p.State)
		}
		if i == 0 {
			s.Detail = fmt.Sprintf("%d of %d delivered", c.Delivered, c.Size)
			if c.DeadAgain > 0 {
				s.Detail += fmt.Sprintf(", %d dead again", c.DeadAgain)
			}
		}
		all = append(all, s)
	}
	return all
}
