package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// topCmd shows the queues as they change.
type topCmd struct {
	remote `embed:""`
	Every  config.Duration `default:"1s" placeholder:"TIME" help:"How often (default 1s)."`
	Count  int             `short:"n" placeholder:"N" help:"Stop after so many looks; on what is no terminal it defaults to 2."`
}

func (*topCmd) Help() string {
	return examples("redrive top", "the queues with their rates, the causes that grow and the plans at work, until it is interrupted", "redrive top -n 2 --json", "the rates of one second, for a script")
}

const minTopEvery = 100 * time.Millisecond

// queueRates is a queue with what went through it since the look before.
type queueRates struct {
	wire.Queue
	In   float64 `json:"in_per_second"`
	Done float64 `json:"done_per_second"`
}

// topView is what one look shows.
type topView struct {
	wire.List[queueRates]
	Causes []wire.Cause `json:"causes"` // those that grow or came back first, then the largest
	// Looked is of how many causes, the largest, these were picked; absent: of all.
	Looked int         `json:"causes_looked,omitempty"`
	Plans  []wire.Plan `json:"plans"` // that work, or wait for a person
}

// topRows is how many causes and plans are shown.
const topRows = 5

// rest looks at causes and plans. A token that is confined to queues may not see all causes.
func (v *topView) rest(ctx context.Context, client *client) error {
	var causes wire.List[wire.Cause]
	err := client.do(ctx, http.MethodGet, "/v1/causes", url.Values{"limit": {strconv.Itoa(redrive.MaxPage)}}, nil, &causes)
	if p := asProblem(err); err != nil && (p == nil || p.Status != http.StatusForbidden) {
		return err
	}
	slices.SortStableFunc(causes.Items, func(x, y wire.Cause) int { return cmp.Compare(urgency(&y), urgency(&x)) })
	v.Causes = causes.Items[:min(len(causes.Items), topRows)]
	if err == nil && !causes.Complete {
		v.Looked = len(causes.Items)
	}
	var plans wire.List[wire.Plan]
	if err := client.do(ctx, http.MethodGet, "/v1/plans", nil, nil, &plans); err != nil {
		return err
	}
	plans.Items = slices.DeleteFunc(plans.Items, func(p wire.Plan) bool { return p.Ended() })
	v.Plans = plans.Items[:min(len(plans.Items), topRows)]
	return nil
}

// urgency orders causes: what came back, what grows, the rest.
func urgency(c *wire.Cause) int {
	switch {
	case c.State == wire.CauseRegressed:
		return 2
	case c.Growing || c.PerMinute > 0:
		return 1
	}
	return 0
}

// Run redraws the tables until it is interrupted.
func (c *topCmd) Run(ctx context.Context, t *terminal, client *client) error {
	every := max(c.Every.Std(), minTopEvery)
	if c.Count == 0 && (!t.outTTY || t.json) {
		c.Count = 2
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before map[string]wire.Queue
	last := time.Now()
	for n := 1; ; n++ {
		list, err := client.queues(ctx, "")
		if err != nil {
			return err
		}
		now := time.Now()
		ended := c.Count > 0 && n == c.Count
		if t.outTTY && !t.json || ended {
			view := topView{List: wire.List[queueRates]{Items: rates(list.Items, before, now.Sub(last)), Complete: true}}
			if err := view.rest(ctx, client); err != nil {
				return err
			}
			if err := view.print(t, client.where); err != nil || ended {
				return err
			}
		}
		before, last = make(map[string]wire.Queue, len(list.Items)), now
		for i := range list.Items {
			before[list.Items[i].Queue] = list.Items[i]
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func rates(now []wire.Queue, before map[string]wire.Queue, took time.Duration) []queueRates {
	rows := make([]queueRates, len(now))
	for i := range now {
		rows[i].Queue = now[i]
		if b, ok := before[now[i].Queue]; ok && took > 0 {
			rows[i].In = float64(now[i].Ledger.Entered-b.Ledger.Entered) / took.Seconds()
			rows[i].Done = float64(now[i].Done()-b.Done()) / took.Seconds()
		}
	}
	return rows
}

func (v *topView) print(t *terminal, where string) error {
	if t.json {
		return t.writeJSON(v)
	}
	if t.outTTY {
		t.printf("\x1b[H\x1b[2J")
	}
	t.printf("%s  %s\n\n", t.paint(strong, clean(where)), time.Now().Format("15:04:05"))
	b := newTable("QUEUE", "IN/S", "DONE/S", "WAITING", "RETRY", "RUNNING", "DEAD", "OLDEST DUE", "STATE")
	for i := range v.Items {
		q := &v.Items[i]
		dead := number(q.Dead)
		if q.Dead > 0 {
			dead.colour = bad
		}
		oldest := "-"
		if q.OldestDue != nil {
			oldest = ago(*q.OldestDue, time.Now())
		}
		state, colour := queueState(&q.Queue)
		b.add(text(q.Queue.Queue), perSecond(q.In), perSecond(q.Done), number(q.Waiting.All), number(q.Waiting.Retry), number(q.Leased), dead, text(oldest), coloured(colour, state))
	}
	b.print(t)
	if len(v.Causes) > 0 {
		t.printf("\n")
		printCauses(t, v.Causes)
	}
	if v.Looked > 0 {
		t.printf("%s\n", t.paint(faint, fmt.Sprintf("of the %s largest causes: there are more", grouped(int64(v.Looked)))))
	}
	for i := range v.Plans {
		p := &v.Plans[i]
		if i == 0 {
			t.printf("\n")
		}
		line := fmt.Sprintf("%s %s of %s: %s", p.State, p.Request.Action, planFilter(p), planLine(p, doneWord(p.Request.Action)))
		if p.Problem != "" {
			line += "; " + p.Problem
		}
		t.printf("%s  %s\n", clean(p.ID), t.paint(planColour(p.State), shorten(clean(line), max(t.width-len(p.ID)-2, 0))))
	}
	return nil
}

func perSecond(v float64) cell {
	if v > 0 && v < 10 {
		return cell{text: fmt.Sprintf("%.1f", v), right: true}
	}
	return number(int64(v + 0.5))
}
