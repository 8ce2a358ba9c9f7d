package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/redrive/redrive/internal/wire"
)

type deadAckCmd struct {
	remote     `embed:""`
	Signature  string  `arg:"" help:"The cause, as dead causes shows it."`
	Queue      string  `short:"q" placeholder:"QUEUE" help:"In this queue, where several have the cause."`
	Reason     string  `placeholder:"REASON" help:"Of this reason only; otherwise of each."`
	Until      string  `placeholder:"TIME" help:"Until then: 2h, or 2026-01-02T15:04:05Z. Without it until one more dies."`
	Note       string  `placeholder:"TEXT" help:"What is known, for the next one who looks."`
	Link       string  `placeholder:"URL" help:"Of the incident."`
	IgnoreMore int64   `xor:"what" placeholder:"N" help:"Ignore it until N more have died."`
	IgnoreRate float64 `xor:"what" placeholder:"N" help:"Ignore it until N die a minute."`
	Resolved   bool    `xor:"what" help:"It is resolved; one more death makes it regressed."`
	Plan       string  `placeholder:"PLAN" help:"Resolved by this plan."`
	Version    string  `name:"on" placeholder:"VERSION" help:"Resolved on this version of the service."`
	Clear      bool    `xor:"what" help:"Take back what was said."`
}

func (*deadAckCmd) Help() string {
	return examples(
		"redrive dead ack 2-4f1c09aa52de83b6 --until 2h --note 'vendor is on it'", "somebody works on it",
		"redrive dead ack 2-4f1c09aa52de83b6 --ignore-more 1000", "not worth a look below 1,000",
		"redrive dead ack 2-4f1c09aa52de83b6 --resolved --on v1.4.2", "if one more dies of it, it is regressed",
		"redrive dead causes --state regressed", "what came back",
	)
}

// Run tells the daemon what was decided of a cause.
func (c *deadAckCmd) Run(ctx context.Context, t *terminal, client *client) error {
	change := wire.CauseChange{Queue: c.Queue, State: wire.CauseAcknowledged, Until: c.Until, More: c.IgnoreMore, Rate: c.IgnoreRate, Plan: c.Plan, Version: c.Version, Note: c.Note, Link: c.Link}
	if c.Reason != "" {
		if err := change.Reason.UnmarshalText([]byte(c.Reason)); err != nil {
			return usageError{err}
		}
	}
	switch {
	case c.Clear:
		change.State = wire.CauseNew
	case c.Resolved:
		change.State = wire.CauseResolved
	case c.IgnoreMore > 0 || c.IgnoreRate > 0:
		change.State = wire.CauseIgnored
	}
	if change.Queue == "" {
		var list wire.List[wire.Cause]
		if err := client.do(ctx, http.MethodGet, "/v1/causes", url.Values{"signature": {c.Signature}}, nil, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if queue := list.Items[i].Queue; change.Queue != "" && change.Queue != queue {
				return usagef("several queues have this cause: name one with --queue, such as %s or %s", clean(change.Queue), clean(queue))
			}
			change.Queue = list.Items[i].Queue
		}
		if change.Queue == "" {
			return usagef("no dead letter has this signature: name its queue with --queue")
		}
	}
	var life wire.CauseLife
	if err := client.do(ctx, http.MethodPut, "/v1/causes/"+segment(c.Signature), nil, &change, &life); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(&life)
	}
	t.printf("%s of queue %s is %s\n", clean(c.Signature), clean(change.Queue), change.State)
	return nil
}
