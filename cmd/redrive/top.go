package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

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
	return examples("redrive top", "the queues with their rates, until it is interrupted", "redrive top -n 2 --json", "the rates of one second, for a script")
}

const minTopEvery = 100 * time.Millisecond

// queueRates is a queue with what went through it since the look before.
type queueRates struct {
	wire.Queue
	In   float64 `json:"in_per_second"`
	Done float64 `json:"done_per_second"`
}

// Run redraws the table until it is interrupted.
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
		var list wire.List[wire.Queue]
		if err := client.do(ctx, http.MethodGet, "/v1/queues", nil, nil, &list); err != nil {
			return err
		}
		now := time.Now()
		rows := rates(list.Items, before, now.Sub(last))
		ended := c.Count > 0 && n == c.Count
		if t.outTTY && !t.json || ended {
			if err := printTop(t, client.where, rows); err != nil || ended {
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

func printTop(t *terminal, where string, rows []queueRates) error {
	if t.json {
		return t.writeJSON(wire.List[queueRates]{Items: rows, Complete: true})
	}
	if t.outTTY {
		t.printf("\x1b[H\x1b[2J")
	}
	t.printf("%s  %s\n\n", t.paint(strong, clean(where)), time.Now().Format("15:04:05"))
	b := newTable("QUEUE", "IN/S", "DONE/S", "WAITING", "RETRY", "RUNNING", "DEAD", "OLDEST DUE", "STATE")
	for i := range rows {
		q := &rows[i]
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
	return nil
}

func perSecond(v float64) cell {
	if v > 0 && v < 10 {
		return cell{text: fmt.Sprintf("%.1f", v), right: true}
	}
	return number(int64(v + 0.5))
}
