package main

import (
	"context"
	"net/http"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// plansCmd looks at redrives and holds them.
type plansCmd struct {
	List    plansListCmd    `cmd:"" default:"withargs" help:"List the plans, the newest first."`
	Show    plansShowCmd    `cmd:"" help:"Tell how far a plan is and what became of its messages."`
	Results plansResultsCmd `cmd:"" help:"List what became of each message of a plan."`
	Pause   plansPauseCmd   `cmd:"" help:"Hold a plan."`
	Resume  plansResumeCmd  `cmd:"" help:"Go on with a plan, at another rate or with another canary if you like."`
	Set     plansSetCmd     `cmd:"" help:"Change the rate or the canary of a plan, also while it runs."`
	Release plansReleaseCmd `cmd:"" help:"Let a plan run that another proposed."`
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
	return a.send(ctx, t, client, http.MethodPost, "/"+verb, nil)
}

func (a *planArg) send(ctx context.Context, t *terminal, client *client, method, verb string, body any) error {
	var p wire.Plan
	if err := client.do(ctx, method, "/v1/plans/"+segment(a.ID)+verb, nil, body, &p); err != nil {
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
		planArg  `embed:""`
		planPace `embed:""`
	}
	plansSetCmd struct {
		planArg  `embed:""`
		planPace `embed:""`
	}
	plansReleaseCmd struct {
		planArg `embed:""`
	}
	plansCancelCmd struct {
		planArg `embed:""`
	}
)

// planPace is how fast and how carefully a plan goes on.
type planPace struct {
	Rate   config.Rate `placeholder:"RATE" help:"How fast from now on, such as 50/s."`
	Canary *int        `placeholder:"N" help:"Try so many before the others: past its canary, a plan begins another one. 0: none any more."`
}

func (c *planPace) change() wire.PlanChange {
	return wire.PlanChange{Rate: c.Rate.String(), Canary: c.Canary}
}

func (*plansResumeCmd) Help() string {
	return examples("redrive plans resume PLAN", "as before; one that stopped begins with its canary", "redrive plans resume PLAN --canary 10 --rate 20/s", "with another canary, and slower")
}

func (*plansSetCmd) Help() string {
	return examples("redrive plans set PLAN --rate 200/s", "faster, at once", "redrive plans set PLAN --canary 0", "without waiting for its canary")
}

// Run pauses the plan.
func (c *plansPauseCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "pause")
}

// Run resumes the plan.
func (c *plansResumeCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.send(ctx, t, client, http.MethodPost, "/resume", c.change())
}

// Run changes the pace of the plan.
func (c *plansSetCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if c.change() == (wire.PlanChange{}) {
		return usagef("say what to change: --rate or --canary")
	}
	return c.send(ctx, t, client, http.MethodPatch, "", c.change())
}

func (*plansReleaseCmd) Help() string {
	return examples("redrive plans release PLAN", "what a token with the scope propose asked for; it takes one with redrive, or purge for a drop")
}

// Run releases the plan.
func (c *plansReleaseCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "release")
}

// Run cancels the plan.
func (c *plansCancelCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, "cancel")
}
