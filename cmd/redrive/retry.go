package main

import (
	"context"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// retryCmd lets what waits for a retry be tried at once.
type retryCmd struct {
	remote  `embed:""`
	Queue   string        `arg:"" help:"The queue."`
	Cause   string        `placeholder:"S" help:"What failed last with this signature."`
	Kind    string        `placeholder:"KIND" help:"Of this kind."`
	Key     string        `placeholder:"KEY" help:"Of this key."`
	All     bool          `help:"All that waits for a retry in the queue."`
	Canary  int           `placeholder:"N" help:"Try so many first; the others follow if less than half of these fail again."`
	Watch   time.Duration `placeholder:"TIME" help:"How long to look out, after the canary was tried, for what comes back as a dead letter (default 1m where the queue delivers to a broker)."`
	planHow `embed:""`
}

func (*retryCmd) Help() string {
	return examples(
		"redrive retry hooks --all --dry-run", "how many wait for a retry",
		"redrive retry hooks --all --canary 10 --rate 100/s --wait", "after an outage: ten first, then the rest, none of them waits for its backoff",
		"redrive retry hooks --cause 2-4f1c09aa52de83b6", "only what failed last of one cause",
	)
}

// Run retries messages that wait.
func (c *retryCmd) Run(ctx context.Context, t *terminal, client *client) error {
	f := wire.Filter{Queue: c.Queue, State: "waiting", Signature: c.Cause, Kind: c.Kind, Key: c.Key}
	chosen := f != wire.Filter{Queue: c.Queue, State: "waiting"}
	switch {
	case chosen == c.All:
		return usagef("say what of the queue: --cause, --kind or --key, or else --all")
	case client.local && !c.DryRun:
		return usagef("a retry needs a daemon that delivers: start redrive serve")
	}
	named := planFlags{planHow: c.planHow}
	named.Filter = f
	return c.carryOut(ctx, t, client, wire.PlanRequest{Action: "retry", Filter: &f, Canary: c.Canary, Watch: wire.Duration(c.Watch)}, "due for a retry", func(t *terminal, d *wire.DryRun) error {
		return named.askWhat(t, "Retry "+retryingText(d), "retried")
	})
}

// retryingText is how many messages wait for a retry, by a dry run.
func retryingText(d *wire.DryRun) string {
	return atLeast(d) + " " + plural(int(min(d.Total, 2)), "message that waits for a retry", "messages that wait for a retry") + ofExamined(d)
}
