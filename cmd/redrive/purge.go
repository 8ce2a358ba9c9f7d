package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

type queuesPurgeCmd struct {
	remote `embed:""`
	Queue  string `arg:"" help:"The queue."`
	Dead   bool   `help:"Its dead letters too."`
	Yes    bool   `short:"y" help:"Do not ask."`
}

func (*queuesPurgeCmd) Help() string {
	return examples("redrive queues purge hooks", "what waits, after a confirmation; what is being delivered goes on",
		"redrive queues purge hooks --dead --yes", "its dead letters too, in a script")
}

// purgeRate is fast: nobody waits for what is thrown away.
const purgeRate = "20000/s"

// purgeRounds bounds how often it looks again: what was leased or blocked the first time
// may wait the next.
const purgeRounds = 5

// Run drops what is in the queue; the ledger counts it.
func (c *queuesPurgeCmd) Run(ctx context.Context, t *terminal) error {
	if err := driver.CheckQueue(c.Queue); err != nil {
		return usageError{err}
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.close()                                   //nolint:errcheck // it is done
	if _, err := client.queues(ctx, c.Queue); err != nil { // a misspelt name is no success
		return err
	}
	states := []redrive.State{redrive.StateWaiting}
	if c.Dead {
		states = append(states, redrive.StateDead)
	}
	var total int64
	what := ""
	for _, s := range states {
		var d wire.DryRun
		if err := client.do(ctx, http.MethodPost, "/v1/plans", nil, c.request(s, true), &d); err != nil {
			return err
		}
		total += d.Total
		if s == redrive.StateWaiting {
			what = waitingText(&d)
		} else {
			what += " and " + letters(&d)
		}
	}
	if total == 0 {
		t.note("there is nothing to remove")
	} else if !c.Yes {
		if err := confirmTyped(t, "purge", total, what, "queue "+c.Queue); err != nil {
			return err
		}
	}
	var dropped int64
	for _, s := range states {
		n, err := c.drop(ctx, t, client, s)
		dropped += n
		if err != nil {
			return fmt.Errorf("after %d: %w", dropped, err)
		}
	}
	if t.json {
		return t.writeJSON(map[string]any{"queue": c.Queue, "dropped": dropped})
	}
	t.printf("%s %s removed from %s\n", grouped(dropped), plural(int(min(dropped, 2)), "message", "messages"), clean(c.Queue))
	return nil
}

func (c *queuesPurgeCmd) request(s redrive.State, dry bool) wire.PlanRequest {
	return wire.PlanRequest{Action: "drop", Filter: &wire.Filter{Queue: c.Queue, State: s.String()}, Rate: purgeRate, DryRun: dry}
}

// drop drops what is in a state, again until nothing more goes.
func (c *queuesPurgeCmd) drop(ctx context.Context, t *terminal, client *client, s redrive.State) (dropped int64, err error) {
	for range purgeRounds {
		var p wire.Plan
		if err := client.do(ctx, http.MethodPost, "/v1/plans", nil, c.request(s, false), &p); err != nil {
			return dropped, err
		}
		if p, err = client.wait(ctx, t, p, "removed"); err != nil {
			return dropped, err
		}
		dropped += p.Done
		if p.State != wire.PlanDone {
			return dropped, fmt.Errorf("plan %s is %s: %s", p.ID, p.State, p.Problem)
		}
		if p.Done == 0 || p.Failed == 0 && p.Done >= p.Total {
			break
		}
	}
	return dropped, nil
}
