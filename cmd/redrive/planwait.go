package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// How often a plan is looked at while it is waited for, and what became of its
// messages, which costs the daemon more.
const (
	pollEvery     = 200 * time.Millisecond
	progressPolls = 10
)

// wait follows a plan until it ends or stops.
func (c *client) wait(ctx context.Context, t *terminal, p wire.Plan, done string) (wire.Plan, error) {
	line := &progress{t: t}
	defer line.clear()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	began, from := time.Now(), p.Done
	var last *wire.Progress
	for n := 0; !p.Ended() && p.State != wire.PlanStopped && p.State != wire.PlanProposed; n++ {
		line.update("%s", planBar(&p, last, done, rateOf(p.Done-from, time.Since(began)), t.errWidth()))
		select {
		case <-ctx.Done():
			line.clear()
			if !c.local {
				t.note("the plan goes on: redrive plans cancel %s stops it", clean(p.ID))
			}
			return p, ctx.Err()
		case <-tick.C:
		}
		var query url.Values
		if t.errTTY && !t.json && n%progressPolls == 0 {
			query = url.Values{"progress": {"true"}}
		}
		var now wire.Plan
		if err := c.do(ctx, http.MethodGet, "/v1/plans/"+segment(p.ID), query, nil, &now); err != nil {
			return p, err
		}
		p = now
		if p.Progress != nil {
			last = p.Progress
		}
	}
	return p, nil
}

func rateOf(n int64, d time.Duration) float64 {
	if d < time.Second {
		return 0
	}
	return float64(n) / d.Seconds()
}

// barWidth is how many characters a full bar has.
const barWidth = 24

// planBar is one line about a plan that runs: a bar, counts, and what became of the
// messages. A narrow terminal gets no bar.
func planBar(p *wire.Plan, seen *wire.Progress, done string, rate float64, width int) string {
	s := ""
	if p.Total > 0 && !p.TotalMore && width >= 3*barWidth {
		full := int(min(p.Done+p.Failed, p.Total) * barWidth / p.Total)
		s = "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] "
	}
	s += planLine(p, done)
	if rate > 0 {
		s += fmt.Sprintf(" (%.0f/s)", rate)
	}
	if seen != nil && p.Done > 0 && anew(p.Request.Action) {
		s += fmt.Sprintf("; %s delivered, %s, %s waiting", grouped(seen.Delivered), deadAgain(seen), grouped(seen.Waiting))
		if seen.Taken > 0 {
			s += fmt.Sprintf(", %s changed by others since", grouped(seen.Taken))
		}
	}
	return s
}

// planLine says how far a plan is.
func planLine(p *wire.Plan, done string) string {
	total := grouped(p.Total)
	if p.TotalMore {
		total = "at least " + total
	}
	s := fmt.Sprintf("%s of %s %s", grouped(p.Done), total, done)
	if p.Failed > 0 {
		s += fmt.Sprintf(", %s refused", grouped(p.Failed))
	}
	switch c := p.Canary; {
	case p.State == wire.PlanPaused:
		s += ", paused"
	case c != nil && c.Until != nil && !p.Ended() && p.State != wire.PlanStopped: // which may stop while it is watched
		s += fmt.Sprintf("; canary of %d: all delivered, watched until %s for what comes back", c.Size, moment(c.Until))
	case c != nil && c.Stage == "canary" && !p.Ended():
		s += fmt.Sprintf("; canary of %d: %d delivered, %d dead again, %d waiting", c.Size, c.Delivered, c.DeadAgain, c.Waiting)
	case c != nil && c.Stage == "ramp" && !p.Ended():
		s += "; the canary was delivered, the rate grows"
	}
	return s
}

// reportPlan prints what became of a plan, or how to follow it.
func reportPlan(t *terminal, p *wire.Plan, done string) error {
	if t.json {
		if err := t.writeJSON(p); err != nil {
			return err
		}
	} else {
		printPlan(t, p, done)
	}
	if p.Failed > 0 || p.State == wire.PlanFailed || p.State == wire.PlanCancelled || p.State == wire.PlanStopped {
		return errFailed
	}
	return nil
}

func printPlan(t *terminal, p *wire.Plan, done string) {
	id := clean(p.ID)
	switch {
	case p.State == wire.PlanStopped:
		t.printf("%s %s: %s\n", t.paint(bad, "stopped"), planLine(p, done), clean(p.Problem))
		if p.Request.Action == "repair" {
			t.note("go on, whatever else is refused for that: redrive plans resume %s; to end it: redrive plans cancel %s; and to undo it: redrive dead restore %s", id, id, id)
			break
		}
		t.note("what became of each: redrive plans results %s; when the cause is mended, with another canary: redrive plans resume %s; to end it: redrive plans cancel %s", id, id, id)
	case p.State == wire.PlanProposed:
		t.printf("plan %s is proposed: %s, and nothing is touched\n", id, planLine(p, done))
		t.note("somebody with the scope redrive, or purge for a drop, lets it run: redrive plans release %s; to take it back: redrive plans cancel %s", id, id)
	case !p.Ended():
		t.printf("plan %s is %s: %s\n", id, clean(p.State), planLine(p, done))
		t.note("follow it with: redrive plans show %s --wait", id)
	default:
		t.printf("%s\n", planLine(p, done))
		if c := p.Canary; c != nil && c.Stage != "canary" && p.State == wire.PlanDone {
			t.printf("  the canary of %d was delivered\n", c.Size)
		}
		if p.Request.Action == "repair" && p.Done > 0 {
			t.note("redrive exactly these: redrive dead redrive --plan %s --canary 10 --wait; or undo it: redrive dead restore %s", id, id)
		}
	}
	if p.Problem != "" && p.State != wire.PlanStopped {
		t.printf("  %s\n", clean(p.Problem))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Errors)) {
		t.printf("  %s: %s\n", grouped(p.Errors[name]), clean(name))
	}
}
