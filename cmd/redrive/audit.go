package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// auditCmd lists who changed what.
type auditCmd struct {
	remote `embed:""`
	Since  string `type:"when" placeholder:"TIME" help:"Since then: 1h, or 2026-01-02T15:04:05Z."`
	Until  string `type:"when" placeholder:"TIME" help:"Before then."`
	Actor  string `placeholder:"NAME" help:"By this token."`
	Action string `placeholder:"ACTION" help:"Of this kind, as the list shows it: \"plan redrive\", edit, pause."`
	Queue  string `short:"q" placeholder:"QUEUE" help:"About this queue."`
	Plan   string `placeholder:"PLAN" help:"About this plan."`
	Limit  int    `default:"100" placeholder:"N" help:"At most so many (default 100; 0: all)."`
}

func (*auditCmd) Help() string {
	return examples("redrive audit --since 1h", "who changed what in the last hour", "redrive audit --action 'plan ended' --json", "how plans ended, with true numbers")
}

// Run prints a line an entry.
func (c *auditCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query := url.Values{"limit": {strconv.Itoa(redrive.MaxPage)}}
	for name, value := range map[string]string{"since": c.Since, "until": c.Until, "actor": c.Actor, "action": c.Action, "queue": c.Queue, "plan": c.Plan} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.Limit > 0 {
		query.Set("limit", strconv.Itoa(min(c.Limit, redrive.MaxPage)))
	}
	list := wire.List[wire.AuditEntry]{Items: []wire.AuditEntry{}, Complete: true}
	err := pages(ctx, client, "/v1/audit", query, func(page wire.List[wire.AuditEntry]) bool {
		list.Items = append(list.Items, page.Items...)
		list.Next = page.Next
		return c.Limit == 0 || len(list.Items) < c.Limit
	})
	if err != nil {
		return err
	}
	if c.Limit > 0 && len(list.Items) > c.Limit {
		list.Items = list.Items[:c.Limit]
	}
	if t.json {
		return t.writeJSON(list)
	}
	if len(list.Items) == 0 {
		t.note("there is no such entry; they are kept for 90 days")
		return nil
	}
	b := newTable("AT", "WHO", "ACTION", "OF", "COUNT", "OUTCOME", "NOTE")
	for i := range list.Items {
		e := &list.Items[i]
		count := cell{right: true}
		if e.Count != 0 {
			count = number(e.Count)
			if e.CountMore {
				count.text = "at least " + count.text
			}
		}
		b.add(text(e.At.Local().Format("2006-01-02 15:04:05")), text(e.Actor), text(e.Action), text(auditOf(e)), count, text(e.Outcome), text(e.Note))
	}
	b.print(t)
	if list.Next != "" {
		t.note("there are more; --limit 0 shows all")
	}
	return nil
}

// auditOf says what an entry is about.
func auditOf(e *wire.AuditEntry) string {
	of := e.Queue
	if e.Message != "" {
		of += "/" + e.Message
	}
	if e.Plan != "" {
		of = strings.TrimSpace(of + " plan " + e.Plan)
	}
	return of
}
