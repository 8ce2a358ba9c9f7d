package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

type plansShowCmd struct {
	planArg `embed:""`
	Wait    bool `short:"w" help:"Follow it until it ends."`
}

func (*plansShowCmd) Help() string {
	return examples("redrive plans show PLAN", "how far it is", "redrive plans show PLAN --wait", "follow it, also one that another started")
}

// Run prints a plan.
func (c *plansShowCmd) Run(ctx context.Context, t *terminal, client *client) error {
	path, whole := "/v1/plans/"+segment(c.ID), url.Values{"progress": {"true"}}
	var p wire.Plan
	if err := client.do(ctx, http.MethodGet, path, whole, nil, &p); err != nil {
		return err
	}
	done := doneWord(p.Request.Action)
	if c.Wait {
		p, err := client.wait(ctx, t, p, done)
		if err != nil {
			return err
		}
		return reportPlan(t, &p, done)
	}
	if t.json {
		return t.writeJSON(p)
	}
	t.printf("%s  %s\n", t.paint(strong, clean(p.ID)), t.paint(planColour(p.State), clean(p.State)))
	fields(t, "  ", "action", clean(p.Request.Action), "of", clean(planFilter(&p)), "to", clean(p.Request.To), "rate", clean(p.Request.Rate), "by", clean(p.Actor), "why", clean(p.Request.Reason), "released by", clean(p.ReleasedBy),
		"created", moment(&p.CreatedAt), "ended", moment(p.EndedAt), "so far", planLine(&p, done))
	if g := p.Progress; g != nil && anew(p.Request.Action) {
		more := ""
		if !g.Complete {
			more = " (there is more than was looked at)"
		}
		if g.Taken > 0 {
			more = ", " + grouped(g.Taken) + " changed by others since" + more
		}
		fields(t, "  ", "became", grouped(g.Delivered)+" delivered, "+deadAgain(g)+", "+grouped(g.Waiting)+" waiting"+more)
	}
	if p.Speed > 0 {
		fields(t, "  ", "speed", fmt.Sprintf("%.0f/s", p.Speed))
	}
	fields(t, "  ", "ends", moment(p.ETA), "problem", clean(p.Problem))
	for i := range p.Holds {
		h := &p.Holds[i]
		held := holdText(&h.Hold, time.Now())
		if h.Queue != "" {
			held = h.Queue + ": " + held
		}
		fields(t, "  ", "held by", clean(held))
	}
	if p.HoldsUnknown {
		fields(t, "  ", "held by", "what else holds it, the store does not tell at the moment")
	}
	printRule(t, p.Request.Repair)
	return nil
}

// deadAgain says how much died again, and of new causes.
func deadAgain(g *wire.Progress) string {
	s := grouped(g.DeadAgain) + " dead again"
	if g.NewCauses > 0 {
		s += " (" + grouped(g.NewCauses) + " of new causes)"
	}
	return s
}

// anew reports whether what an action changes is handled anew.
func anew(action string) bool { return action == "redrive" || action == "retry" }

// doneWord is what an action has done.
func doneWord(action string) string {
	switch action {
	case "drop":
		return "dropped"
	case "archive":
		return "archived"
	case "repair":
		return "repaired"
	case "restore":
		return "restored"
	case "retry":
		return "due for a retry"
	}
	return "redriven"
}

// planFilter describes what a plan selects.
func planFilter(p *wire.Plan) string {
	f := p.Request.Filter
	if p.Request.Restore != "" {
		return "what " + p.Request.Restore + " repaired"
	}
	if f == nil {
		return "named messages"
	}
	if s := clean(f.String()); s != "" {
		return s
	}
	return everything
}

type plansResultsCmd struct {
	planArg `embed:""`
	Outcome string `enum:",delivered,waiting,dead,taken,dropped,archived,repaired,restored,gone,refused,pending" default:"" placeholder:"OUTCOME" help:"Only these: delivered, waiting, dead, taken (changed by others since), dropped, archived, repaired, restored, gone, refused or pending."`
	Limit   int    `default:"100" placeholder:"N" help:"At most so many (default 100; 0: all)."`
}

func (*plansResultsCmd) Help() string {
	return examples("redrive plans results PLAN --outcome dead", "what died again, and of what", "redrive plans results PLAN --limit 0 --json", "all, with the history of each")
}

// Run prints a line a message.
func (c *plansResultsCmd) Run(ctx context.Context, t *terminal, client *client) error {
	list := wire.List[wire.PlanResult]{Items: []wire.PlanResult{}, Complete: true}
	query := url.Values{"limit": {strconv.Itoa(redrive.DefaultPage)}}
	err := pages(ctx, client, "/v1/plans/"+segment(c.ID)+"/results", query, func(page wire.List[wire.PlanResult]) bool {
		for i := range page.Items {
			if c.Outcome != "" && page.Items[i].Outcome != c.Outcome {
				continue
			}
			if c.Limit > 0 && len(list.Items) == c.Limit {
				list.Complete = false
				return false
			}
			list.Items = append(list.Items, page.Items[i])
		}
		return true
	})
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	b := newTable("MESSAGE", "OUTCOME", "ATTEMPTS", "NOW", "ERROR")
	for i := range list.Items {
		r := &list.Items[i]
		attempts, why := 0, r.Error
		if r.Message != nil {
			attempts = r.Message.Attempts
			why = r.Message.Error
		}
		b.add(text(r.Queue+"/"+r.ID), coloured(outcomeColour(r.Outcome), r.Outcome), number(attempts), text(r.Now), text(why))
	}
	b.print(t)
	if len(list.Items) == 0 {
		t.note("there is none")
	} else if !list.Complete {
		t.note("there are more; --limit 0 shows all")
	}
	return nil
}

func outcomeColour(outcome string) string {
	switch outcome {
	case "delivered", "archived", "repaired", "restored":
		return good
	case "dead", "refused":
		return bad
	}
	return warn
}
