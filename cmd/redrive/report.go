package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/redrive/redrive/internal/daemon/report"
	"github.com/redrive/redrive/internal/wire"
)

// reportCmd tells what happened.
type reportCmd struct {
	remote `embed:""`
	Since  string `type:"when" placeholder:"TIME" help:"Since then: 1h, or 2026-01-02T15:04:05Z (default 24h, before the plan where there is one)."`
	Plan   string `placeholder:"PLAN" help:"About this plan and those that follow from it."`
	HTML   bool   `name:"html" help:"As HTML; otherwise as Markdown."`
}

func (*reportCmd) Help() string {
	return examples("redrive report --since 1h", "what happened in the last hour, as Markdown for the incident's channel",
		"redrive report --since 1h --html > report.html", "as a page", "redrive report --plan PLAN --json", "about one plan, for a script")
}

// Run prints a report.
func (c *reportCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query := url.Values{}
	for name, value := range map[string]string{"since": c.Since, "plan": c.Plan} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var r wire.Report
	if err := client.do(ctx, http.MethodGet, "/v1/report", query, nil, &r); err != nil {
		return err
	}
	switch {
	case t.json:
		return t.writeJSON(&r)
	case c.HTML:
		return report.HTML(t.out, &r)
	}
	return report.Markdown(t.out, &r)
}
