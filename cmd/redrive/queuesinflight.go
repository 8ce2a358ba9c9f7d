package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// queues returns all queues, or one.
func (c *client) queues(ctx context.Context, only string) (list wire.List[wire.Queue], err error) {
	if only == "" {
		list = wire.List[wire.Queue]{Items: []wire.Queue{}, Complete: true}
		return list, pages(ctx, c, "/v1/queues", url.Values{"limit": {strconv.Itoa(redrive.MaxPage)}}, func(page wire.List[wire.Queue]) bool {
			list.Items = append(list.Items, page.Items...)
			return true
		})
	}
	if err := driver.CheckQueue(only); err != nil {
		return list, usageError{err}
	}
	list = wire.List[wire.Queue]{Items: make([]wire.Queue, 1), Complete: true}
	return list, c.do(ctx, http.MethodGet, "/v1/queues/"+segment(only), nil, nil, &list.Items[0])
}

// processing prints what is in flight.
func (c *queuesListCmd) processing(ctx context.Context, t *terminal, client *client, queues []wire.Queue) error {
	if c.Limit < 1 || c.Limit > redrive.MaxPage {
		return usagef("--limit is 1 to %d", redrive.MaxPage)
	}
	all := wire.List[wire.Message]{Items: []wire.Message{}, Complete: true}
	for i := range queues {
		var list wire.List[wire.Message]
		path := "/v1/queues/" + segment(queues[i].Queue) + "/processing"
		if err := client.do(ctx, http.MethodGet, path, url.Values{"limit": {strconv.Itoa(c.Limit)}}, nil, &list); err != nil {
			return err
		}
		all.Items = append(all.Items, list.Items...)
		all.Complete = all.Complete && list.Complete
	}
	if t.json {
		return t.writeJSON(all)
	}
	if len(all.Items) == 0 {
		t.note("nothing is in flight")
		return nil
	}
	now := time.Now()
	b := newTable("QUEUE", "ID", "KIND", "ATTEMPTS", "PUBLISHED", "LEASE ENDS", "HELD BY")
	for i := range all.Items {
		m := &all.Items[i]
		until := text(since(m.LeasedUntil))
		if m.LeasedUntil != nil && m.LeasedUntil.Before(now) {
			until.colour = bad
		}
		b.add(text(m.Queue), text(m.ID), text(m.Kind), number(m.Attempts), text(since(m.PublishedAt)), until, text(m.Instance))
	}
	b.print(t)
	if !all.Complete {
		t.note("there are more; --limit %d shows up to as many of a queue", redrive.MaxPage)
	}
	return nil
}

// queuesMonitorCmd shows how the streams of queues stand.
type queuesMonitorCmd struct {
	remote `embed:""`
	Queue  string `arg:"" optional:"" help:"The queue (default: all)."`
}

func (*queuesMonitorCmd) Help() string {
	return examples("redrive queues monitor hooks", "who holds what, leases that ran out, how the dead letters grow",
		"redrive queues monitor --json --data redis://127.0.0.1:6379", "of all queues of a store, without a daemon")
}

// Run prints a paragraph a queue.
func (c *queuesMonitorCmd) Run(ctx context.Context, t *terminal, client *client) error {
	queues, err := client.queues(ctx, c.Queue)
	if err != nil {
		return err
	}
	all := wire.List[wire.Monitor]{Items: make([]wire.Monitor, len(queues.Items)), Complete: true}
	for i := range queues.Items {
		if err := client.do(ctx, http.MethodGet, "/v1/queues/"+segment(queues.Items[i].Queue)+"/monitor", nil, nil, &all.Items[i]); err != nil {
			return err
		}
	}
	if t.json {
		return t.writeJSON(all)
	}
	if len(all.Items) == 0 {
		t.note("there are no queues")
	}
	for i := range all.Items {
		if i > 0 {
			t.printf("\n")
		}
		printMonitor(t, &all.Items[i])
	}
	return nil
}

func printMonitor(t *terminal, m *wire.Monitor) {
	t.printf("%s (stream %s): %s entries, %s of them unclaimed, %s beside the stream; the oldest has been due for %s\n",
		t.paint(strong, clean(m.Queue)), clean(m.Stream), grouped(m.Entries), grouped(m.Unclaimed), grouped(m.Indexed), roughly(m.Oldest.Std()))
	d := &m.Dead
	t.printf("dead letters (stream %s): %s, %s ever added", clean(d.Stream), grouped(d.Length), grouped(d.Added))
	if d.Length > 0 {
		t.printf(", %s within the last hour, the oldest died %s ago", grouped(d.LastHour), roughly(d.Oldest.Std()))
	}
	t.printf("\n")
	if len(d.Groups) > 0 {
		t.printf("groups on them: %s\n", clean(strings.Join(d.Groups, ", ")))
	}
	if len(m.Attempts) > 0 {
		var parts []string
		for _, n := range slices.SortedFunc(maps.Keys(m.Attempts), cmp.Compare[int]) {
			parts = append(parts, fmt.Sprintf("%s at attempt %d", grouped(m.Attempts[n]), n))
		}
		t.printf("claims: %s\n", strings.Join(parts, ", "))
	}
	if !m.Complete {
		t.note("only the %s leases that end first were looked at", grouped(int64(m.Looked)))
	}
	printPartitions(t, m.Partitions)
	if len(m.Consumers) == 0 {
		t.printf("nobody consumes it\n")
		return
	}
	b := newTable("CONSUMER", "PENDING", "LEASED", "OVERDUE", "OVERDUE FOR", "IDLE")
	for _, c := range m.Consumers {
		over, longest := number(c.Overdue), "-"
		if c.Overdue > 0 {
			over.colour, longest = bad, roughly(c.LongestOverdue.Std())
		}
		b.add(text(c.Name), number(c.Pending), number(c.Leased), over, text(longest), text(roughly(c.Idle.Std())))
	}
	b.print(t)
}

// printPartitions prints a line a partition, if there are several.
func printPartitions(t *terminal, parts []wire.MonitorPartition) {
	if len(parts) == 0 {
		return
	}
	b := newTable("PARTITION", "STREAM", "NODE", "ENTRIES", "UNCLAIMED", "BESIDE", "LEASED", "OVERDUE", "DEAD")
	for _, p := range parts {
		b.add(number(p.Number), text(p.Stream), text(p.Node), number(p.Entries), number(p.Unclaimed), number(p.Indexed), number(p.Leased), number(p.Overdue), number(p.Dead))
	}
	b.print(t)
}
