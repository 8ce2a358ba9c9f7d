package main

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// messagesCmd looks at messages that are alive.
type messagesCmd struct {
	List   messagesListCmd   `cmd:"" help:"List the messages of a queue, or of all."`
	Cancel messagesCancelCmd `cmd:"" help:"Remove messages that wait."`
}

type messagesListCmd struct {
	remote       `embed:""`
	messageFlags `embed:""`
	Limit        int `default:"100" placeholder:"N" help:"At most so many (default 100; 0: all)."`
}

func (*messagesListCmd) Help() string {
	return examples("redrive messages list --queue hooks --state waiting", "what waits", "redrive messages list --body order-42", "search the bodies of all queues")
}

// Run prints a line a message.
func (c *messagesListCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if err := c.check(); err != nil {
		return err
	}
	query := c.Parameters()
	query.Del("queue")
	began := time.Now()
	list, err := c.collect(ctx, t, client, query)
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	b := newTable("ID", "KIND", "STATE", "ATTEMPTS", "PUBLISHED", "DUE", "LAST ERROR")
	for i := range list.Items {
		m := &list.Items[i]
		id := m.ID
		if c.Queue == "" {
			id = m.Queue + "/" + id
		}
		b.add(text(id), text(m.Kind), text(m.State), number(m.Attempts), text(since(m.PublishedAt)), text(since(m.DueAt)), text(m.Error))
	}
	b.print(t)
	ended(t, list, began)
	return nil
}

// collect gathers the messages of the queue, or of one queue after the other.
func (c *messagesListCmd) collect(ctx context.Context, t *terminal, client *client, query map[string][]string) (wire.List[wire.Message], error) {
	all := wire.List[wire.Message]{Items: []wire.Message{}, Complete: true}
	queues := []string{c.Queue}
	if c.Queue == "" {
		list, err := client.queues(ctx, "")
		if err != nil {
			return all, err
		}
		queues = nil
		for i := range list.Items {
			if q := &list.Items[i]; q.Waiting.All+q.Dead > 0 {
				queues = append(queues, q.Queue)
			}
		}
	}
	for _, queue := range queues {
		left := 0
		if c.Limit > 0 {
			if left = c.Limit - len(all.Items); left == 0 {
				all.Complete = false
				return all, nil
			}
		}
		one, err := collect(ctx, t, client, "/v1/queues/"+segment(queue)+"/messages", maps.Clone(query), left)
		if err != nil {
			return all, err
		}
		all.Items = append(all.Items, one.Items...)
		all.Next, all.Complete = one.Next, all.Complete && one.Complete
		all.How, all.Examined = cmp.Or(one.How, all.How), all.Examined+one.Examined
	}
	return all, nil
}

func since(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return ago(*at, time.Now())
}

// collect gathers pages up to a limit; 0 is no limit. Who interrupts it gets what was found so far.
func collect(ctx context.Context, t *terminal, c *client, path string, query map[string][]string, limit int) (wire.List[wire.Message], error) {
	all := wire.List[wire.Message]{Items: []wire.Message{}, Complete: true}
	if limit > 0 && limit < redrive.MaxPage {
		query["limit"] = []string{strconv.Itoa(limit)}
	}
	line := &progress{t: t}
	defer line.clear()
	err := pages(ctx, c, path, query, func(p wire.List[wire.Message]) bool {
		all.Items = append(all.Items, p.Items...)
		all.Next, all.How, all.Examined = p.Next, cmp.Or(p.How, all.How), all.Examined+p.Examined
		line.update("%s found, %s examined; Ctrl-C stops it", grouped(int64(len(all.Items))), grouped(int64(all.Examined)))
		return limit == 0 || len(all.Items) < limit
	})
	if limit > 0 && len(all.Items) > limit {
		all.Items = all.Items[:limit]
	}
	all.Complete = all.Next == ""
	return all, err
}

// ended says what a list leaves out, and how it was found if that took long.
func ended(t *terminal, list wire.List[wire.Message], began time.Time) {
	if took := time.Since(began); list.How == wire.HowScan && list.Examined >= redrive.Examined {
		t.note("%s were looked at one by one, in %s: %s/s", grouped(int64(list.Examined)), took.Round(time.Millisecond), grouped(int64(float64(list.Examined)/took.Seconds())))
	}
	switch {
	case len(list.Items) == 0 && !list.Complete:
		t.note("at least 0 match, of %s that were examined", grouped(int64(list.Examined)))
	case len(list.Items) == 0:
		t.note("there is none")
	case !list.Complete:
		t.note("there are more; --limit 0 shows all")
	}
}

type messagesCancelCmd struct {
	planFlags `embed:""`
}

func (*messagesCancelCmd) Help() string {
	return examples("redrive messages cancel hooks/order-42", "it will not be delivered; the ledger counts it as dropped",
		"redrive messages cancel --queue hooks --kind ping", "all that wait and match, after a confirmation")
}

// Run removes messages that wait.
func (c *messagesCancelCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if len(c.IDs) > 0 {
		return c.cancelNamed(ctx, t, client)
	}
	if c.Filter == (wire.Filter{}) && !c.All {
		return usagef("name messages, or a filter such as --queue QUEUE, or give --all")
	}
	if c.Reason != "" || c.Signature != "" {
		return usagef("messages that wait have neither a reason nor a signature; for dead letters: redrive dead drop")
	}
	return c.run(ctx, t, client, wire.PlanRequest{Action: "drop", Filter: &wire.Filter{State: redrive.StateWaiting.String()}}, "cancelled", func(t *terminal, d *wire.DryRun) error {
		return confirmTyped(t, "cancel", d.Total, waitingText(d), c.described())
	})
}

// waitingText is how many messages wait, by a dry run.
func waitingText(d *wire.DryRun) string {
	return atLeast(d) + " " + plural(int(min(d.Total, 2)), "message that waits", "messages that wait") + ofExamined(d)
}

func (c *messagesCancelCmd) cancelNamed(ctx context.Context, t *terminal, client *client) error {
	failed := false
	var done []wire.Changed
	for _, id := range c.IDs {
		ref, err := parseRef(id, c.Queue)
		if err != nil {
			return err
		}
		if ref, err = client.resolve(ctx, ref); err == nil {
			err = client.do(ctx, http.MethodDelete, messagePath(ref), nil, nil, nil)
		}
		if err != nil {
			t.printError(err)
			failed = true
			continue
		}
		done = append(done, wire.Changed{Queue: ref.Queue, ID: ref.ID, Done: "cancelled"})
		if !t.json {
			t.printf("%s cancelled\n", ref)
		}
	}
	if t.json {
		if err := t.writeJSON(done); err != nil {
			return err
		}
	}
	if failed {
		return errFailed
	}
	return nil
}
