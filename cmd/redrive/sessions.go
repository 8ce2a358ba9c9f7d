package main

import (
	"context"
	"net/http"

	"github.com/redrive/redrive/internal/wire"
)

// sessionsCmd lists the sessions of the WebSocket gateway.
type sessionsCmd struct {
	remote `embed:""`
}

func (*sessionsCmd) Help() string {
	return examples("redrive sessions", "who is connected, or may come back, and what is on its way to and fro")
}

// Run prints a line a session.
func (c *sessionsCmd) Run(ctx context.Context, t *terminal, client *client) error {
	all := wire.List[wire.Session]{Items: []wire.Session{}, Complete: true}
	for after := ""; ; {
		query := map[string][]string{"limit": {"1000"}}
		if after != "" {
			query["after"] = []string{after}
		}
		var page wire.List[wire.Session]
		if err := client.do(ctx, http.MethodGet, "/v1/sessions", query, nil, &page); err != nil {
			return err
		}
		all.Items = append(all.Items, page.Items...)
		if after = page.Next; after == "" {
			break
		}
	}
	if t.json {
		return t.writeJSON(all)
	}
	if len(all.Items) == 0 {
		t.note("there are no sessions; redrive connect QUEUE opens one")
		return nil
	}
	b := newTable("SESSION", "STATE", "AGE", "SEEN", "ACKED", "UNACKED", "CREDIT", "NO RESULT YET", "PUSHED", "TOKEN", "FROM")
	for i := range all.Items {
		s := &all.Items[i]
		state, credit := coloured(faint, "away"), text("")
		if s.Attached {
			state, credit = coloured(good, "here"), number(int64(s.Limit-min(s.Limit, s.Seq))) //nolint:gosec // small
		}
		b.add(text(s.ID), state, text(since(&s.CreatedAt)), text(since(&s.SeenAt)), number(int64(s.Seq)), number(s.Unacked), credit, //nolint:gosec // a count
			number(s.Outstanding), number(s.Pushed), text(s.Token), text(s.Remote))
	}
	b.print(t)
	return nil
}
