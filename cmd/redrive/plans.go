package main

import (
	"context"
	"net/http"

	"github.com/redrive/redrive/internal/wire"
)

// plansCmd looks at redrives and holds them.
type plansCmd struct {
	List    plansListCmd    `cmd:"" default:"withargs" help:"List the plans, the newest first."`
	Show    plansShowCmd    `cmd:"" help:"Tell how far a plan is and what became of its messages."`
	Results plansResultsCmd `cmd:"" help:"List what became of each message of a plan."`
	Pause   plansPauseCmd   `cmd:"" help:"Hold a plan."`
	Resume  plansResumeCmd  `cmd:"" help:"Go on with a plan."`
	Cancel  plansCancelCmd  `cmd:"" help:"End a plan; what it did stays done."`
}

type plansListCmd struct {
	remote `embed:""`
}

func (*plansListCmd) Help() string {
	return examples("redrive plans", "what is being redriven, and how far it is")
}

// Run prints a line a plan.
func (c *plansListCmd) Run(ctx context.Context, t *terminal, client *client) error {
	var list wire.List[wire.Plan]
	if err := client.do(ctx, http.MethodGet, "/v1/plans", nil, nil, &list); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	if len(list.Items) == 0 {
		t.note("there are no plans; redrive dead redrive makes one")
		return nil
	}
	b := newTable("PLAN", "ACTION", "STATE", "DONE", "REFUSED", "TOTAL", "CREATED", "BY")
	for i := range list.Items {
		p := &list.Items[i]
		total := grouped(p.Total)
		if p.TotalMore {
			total += "+"
		}
		b.add(text(p.ID), text(p.Request.Action), coloured(planColour(p.State), p.State), number(p.Done), number(p.Failed),
			cell{text: total, right: true}, text(since(&p.CreatedAt)), text(p.Actor))
	}
	b.print(t)
	return nil
}

func planColour(state string) string {
	switch state {
	case wire.PlanDone:
		return good
	case wire.PlanFailed, wire.PlanCancelled, wire.PlanStopped:
		return bad
	}
	return warn
}

// planArg names a plan.
type planArg struct {
	remote `embed:""`
	ID     string `arg:"" name:"plan" help:"The plan."`
}

func (a *planArg) post(ctx context.Context, t *terminal, client *client, verb string) error {
	var p wire.Plan
	if err := client.do(ctx, http.MethodPost, "/v1/plans/"+segment(a.ID)+"/"+verb, nil, nil, &p); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(p)
	}
	t.printf("plan %s is %s\n", clean(p.ID), clean(p.State))
	return nil
}

type (
	plansPauseCmd struct {
		planArg `embed:""`
	}
	plansResumeCmd struct {
		planArg `embed:""`
	}
	plansCancelCmd struct {
		planArg `embed:""`
	}
)

// Run pauses the plan.
func (c *plansPauseCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "pause")
}

// Run resumes the plan.
func (c *plansResumeCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "resume")
}

// Run cancels the plan.
func (c *plansCancelCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "cancel")
}
