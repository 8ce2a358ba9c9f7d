package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// guardsCmd looks at guarded targets and forces states.
type guardsCmd struct {
	List  guardsListCmd  `cmd:"" default:"withargs" help:"Show how each endpoint is, and why."`
	Force guardsForceCmd `cmd:"" help:"Set the state of an endpoint: healthy, limited, down, recovering or isolated."`
}

type guardsListCmd struct {
	remote `embed:""`
}

func (*guardsListCmd) Help() string {
	return examples("redrive guards", "state, share and rates of every endpoint", "redrive guards --json", "every count")
}

// Run prints a line an endpoint.
func (c *guardsListCmd) Run(ctx context.Context, t *terminal, client *client) error {
	list, err := client.guards(ctx)
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	if len(list.Items) == 0 {
		t.note("there are no guards; add guard: to a queue with deliver: in the configuration")
		return nil
	}
	printGuards(t, list.Items)
	return nil
}

func (c *client) guards(ctx context.Context) (list wire.List[wire.Guard], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/guards", nil, nil, &list)
	return list, err
}

func printGuards(t *terminal, guards []wire.Guard) {
	b := newTable("GUARD", "ENDPOINT", "STATE", "SHARE", "LIVE/S", "BACKLOG/S", "IN FLIGHT", "OK", "FAILED", "NOT ASKED", "SINCE", "WHY")
	for _, g := range guards {
		for _, p := range g.Providers {
			rate := func(f float64) cell { return cell{text: fmt.Sprintf("%.1f", f), right: true} }
			failed := p.Calls[guard.ClassTransient.String()] + p.Calls[guard.ClassNetwork.String()] + p.Calls[guard.ClassLimited.String()]
			why := p.Reason
			if !p.Until.IsZero() && p.Until.After(time.Now()) {
				why += fmt.Sprintf(" (for %s)", time.Until(p.Until).Round(time.Second))
			}
			b.add(text(g.Queue), text(p.Provider), coloured(guardColour(p.State), p.State),
				cell{text: fmt.Sprintf("%.0f%%", 100*p.Share), right: true}, rate(p.Demand), rate(p.Drain), number(int64(p.InUse)),
				number(p.Calls[guard.ClassSuccess.String()]+p.Calls[guard.ClassPermanent.String()]), number(failed), number(p.Refused),
				text(ago(p.Since, time.Now())), text(strings.TrimSpace(why)))
		}
	}
	b.print(t)
}

func guardColour(state string) string {
	switch state {
	case guard.Healthy.String():
		return good
	case guard.Down.String(), guard.Isolated.String():
		return bad
	}
	return warn
}

type guardsForceCmd struct {
	remote   `embed:""`
	State    string          `arg:"" enum:"healthy,limited,down,recovering,isolated" help:"The state."`
	Guard    string          `short:"q" placeholder:"QUEUE" help:"The guarded queue; may be left out where there is one."`
	Endpoint string          `placeholder:"NAME" help:"Only this endpoint."`
	For      config.Duration `placeholder:"TIME" help:"How long down, limited and isolated last (default 1h)."`
}

func (*guardsForceCmd) Help() string {
	return examples("redrive guards force isolated --endpoint north --for 2h", "keep calls away from north while it is being moved",
		"redrive guards force healthy --guard sms", "take everything back at once, without probes")
}

// Run forces the state and shows what it is now.
func (c *guardsForceCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if c.Guard == "" {
		list, err := client.guards(ctx)
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return usagef("there are %d guards: name one with --guard QUEUE", len(list.Items))
		}
		c.Guard = list.Items[0].Queue
	}
	var g wire.Guard
	req := wire.ForceRequest{State: c.State, Provider: c.Endpoint, For: wire.Duration(c.For)}
	if err := client.do(ctx, http.MethodPost, "/v1/guards/"+segment(c.Guard)+"/force", nil, req, &g); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(g)
	}
	printGuards(t, []wire.Guard{g})
	return nil
}
