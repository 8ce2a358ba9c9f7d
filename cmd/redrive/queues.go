package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// queuesCmd looks at queues and holds them.
type queuesCmd struct {
	List    queuesListCmd    `cmd:"" default:"withargs" help:"Show the queues: what waits, what is dead, what went through."`
	Pause   queuesPauseCmd   `cmd:"" help:"Stop delivering; messages are still accepted."`
	Resume  queuesResumeCmd  `cmd:"" help:"Go on delivering."`
	Monitor queuesMonitorCmd `cmd:"" help:"Show consumers, attempts and dead letters of queues that are Redis streams."`
	Purge   queuesPurgeCmd   `cmd:"" help:"Remove everything that waits in a queue, for good."`
}

type queuesListCmd struct {
	remote     `embed:""`
	Queue      string `arg:"" optional:"" help:"Only this queue."`
	Processing bool   `help:"Show what is in flight instead; the lease that ends first comes first."`
	Limit      int    `default:"100" placeholder:"N" help:"With --processing: at most so many of a queue, up to 1000 (default 100)."`
}

func (*queuesListCmd) Help() string {
	return examples("redrive queues", "all queues; DONE counts what came from a source since the daemon started, too", "redrive queues --json", "every count, breaker and pause",
		"redrive queues --processing hooks", "what is being handled, by whom and until when")
}

// Run prints a line a queue.
func (c *queuesListCmd) Run(ctx context.Context, t *terminal, client *client) error {
	list, err := client.queues(ctx, c.Queue)
	if err != nil {
		return err
	}
	if c.Processing {
		return c.processing(ctx, t, client, list.Items)
	}
	if t.json {
		return t.writeJSON(list)
	}
	if len(list.Items) == 0 {
		t.note("there are no queues; publishing to one makes it: redrive publish QUEUE BODY")
		return nil
	}
	b := newTable("QUEUE", "WAITING", "DUE", "RETRY", "BLOCKED", "RUNNING", "DEAD", "DONE", "OLDEST DUE", "STATE")
	for i := range list.Items {
		q := &list.Items[i]
		due := grouped(q.Due)
		if q.DueMore {
			due += "+"
		}
		dead := number(q.Dead)
		if q.Dead > 0 {
			dead.colour = bad
		}
		oldest := "-"
		if q.OldestDue != nil {
			oldest = ago(*q.OldestDue, time.Now())
		}
		state, colour := queueState(q)
		b.add(text(q.Queue), number(q.Waiting.All), cell{text: due, right: true}, number(q.Waiting.Retry), number(q.Blocked), number(q.Leased), dead,
			number(q.Done()), text(oldest), coloured(colour, state))
	}
	b.print(t)
	return nil
}

// queueState says in a few words what a queue does: what holds it, first of all.
func queueState(q *wire.Queue) (state, colour string) {
	for i := range q.HeldBy {
		if h := &q.HeldBy[i]; h.What != wire.HoldKeys && h.What != wire.HoldNobody {
			return holdText(h, time.Now()), holdColour(h)
		}
	}
	if q.Engine == nil {
		return withoutEngine(q)
	}
	switch {
	case len(q.Engine.Unhandled) > 0:
		return unhandledText(q.Engine.Unhandled), warn
	case q.Engine.Stuck > 0:
		return fmt.Sprintf("%d of %d slots are stuck", q.Engine.Stuck, q.Engine.Slots), bad
	case q.Engine.AllRefusedSince != nil:
		return allRefused(*q.Engine.AllRefusedSince), bad
	case q.Deliver != "":
		return "delivers to " + q.Deliver, plain
	}
	return "consumed", plain
}

// holdText says what holds a queue, since when and until when.
func holdText(h *wire.Hold, now time.Time) string {
	what, until := strings.ReplaceAll(h.What, "_", " "), "until "
	switch h.What {
	case wire.HoldPause:
		if what = "paused"; h.By != "" {
			what += " by " + h.By
		}
	case wire.HoldBreaker:
		what, until = "breaker open", "next probe "
	case wire.HoldRate:
		until = "next "
	case wire.HoldSource, wire.HoldStore:
		what += " unavailable"
	case wire.HoldDisk, wire.HoldLimit:
		what = "full: publishing is refused"
	}
	if h.Target != "" {
		what = h.Target + " " + what
	}
	if h.Since != nil {
		what += " since " + roughly(now.Sub(*h.Since))
	}
	if h.Until != nil && h.Until.After(now) {
		what += ", " + until + ago(*h.Until, now)
	}
	return what + ": " + h.Detail
}

// holdColour says how bad a hold is. What only bounds the pace is not, for a while.
func holdColour(h *wire.Hold) string {
	switch h.What {
	case wire.HoldPause, wire.HoldGuard, wire.HoldRetryAfter:
		return warn
	case wire.HoldRate, wire.HoldConcurrency, wire.HoldSlots, wire.HoldGate:
		if h.Since == nil || time.Since(*h.Since) < time.Minute {
			return plain
		}
		return warn
	}
	return bad
}

func allRefused(since time.Time) string {
	return "every delivery has been refused since " + since.UTC().Format(time.RFC3339) + ": a wrong deploy?"
}

// unhandledText names the first kinds without a handler.
func unhandledText(list []wire.Unhandled) string {
	const named = 3
	var kinds []string
	for _, k := range list[:min(len(list), named)] {
		kinds = append(kinds, strconv.Quote(k.Kind))
	}
	text := "no handler for kind " + strings.Join(kinds, ", ")
	if more := len(list) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// withoutEngine says what reads a queue that the daemon does not deliver.
func withoutEngine(q *wire.Queue) (state, colour string) {
	switch p := q.Pull; {
	case p != nil && p.AllRefusedSince != nil:
		return allRefused(*p.AllRefusedSince), bad
	case p != nil && len(p.Unhandled) > 0:
		return unhandledText(p.Unhandled), warn
	case p != nil && p.Polls+p.Held > 0:
		return "workers pull from it", plain
	case p != nil:
		return "workers pulled from it; none is there now", warn
	case q.PolledAt != nil:
		return "results are read by their ids", plain
	}
	return "nobody consumes it", faint
}

type queuesPauseCmd struct {
	remote `embed:""`
	Queue  string          `arg:"" help:"The queue."`
	Target string          `placeholder:"TARGET" help:"Only what goes to this target (or of this kind)."`
	For    config.Duration `placeholder:"TIME" help:"For this long; otherwise until it is resumed."`
	Reason string          `placeholder:"TEXT" help:"Why, for those who wonder."`
}

func (*queuesPauseCmd) Help() string {
	return examples("redrive queues pause hooks --for 1h --reason 'receiver is being moved'", "hold deliveries for an hour")
}

// Run pauses a queue.
func (c *queuesPauseCmd) Run(ctx context.Context, t *terminal, client *client) error {
	req := wire.PauseRequest{Target: c.Target, Reason: c.Reason, For: wire.Duration(c.For)}
	if req.Reason == "" {
		req.Reason = "by " + actor()
	}
	return c.post(ctx, t, client, c.Queue, "pause", req, "paused")
}

type queuesResumeCmd struct {
	remote `embed:""`
	Queue  string `arg:"" help:"The queue."`
	Target string `placeholder:"TARGET" help:"Only what goes to this target (or of this kind)."`
}

func (*queuesResumeCmd) Help() string { return examples("redrive queues resume hooks", "go on") }

// Run resumes a queue.
func (c *queuesResumeCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.post(ctx, t, client, c.Queue, "resume", wire.PauseRequest{Target: c.Target}, "resumed")
}

func (r *remote) post(ctx context.Context, t *terminal, client *client, queue, verb string, req wire.PauseRequest, done string) error {
	if err := driver.CheckQueue(queue); err != nil {
		return usageError{err}
	}
	if err := client.do(ctx, http.MethodPost, "/v1/queues/"+segment(queue)+"/"+verb, nil, req, nil); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(map[string]string{"queue": queue, "done": done})
	}
	t.printf("%s is %s\n", queue, done)
	return nil
}

// verifyCmd compares the ledger with what is there.
type verifyCmd struct {
	remote `embed:""`
	Queue  string `short:"q" placeholder:"QUEUE" help:"Of this queue only."`
	Scan   bool   `help:"Read all messages: count them and compare them with their checksums."`

	Acknowledge string `placeholder:"REASON" help:"Count as dropped what other clients of a Redis server deleted, so that only the next loss is shown."`
}

func (*verifyCmd) Help() string {
	return examples("redrive verify", "entered = waiting + dead + done + dropped + archived + moved, for every queue, by counters",
		"redrive verify --scan", "the same by reading all messages, with their checksums",
		"redrive verify -q sms --acknowledge 'trimmed by the shop, see OPS-12'", "a store on Redis streams from which others took messages")
}

// Run prints the ledger and fails if it does not balance.
func (c *verifyCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query := (&wire.Filter{Queue: c.Queue}).Parameters()
	if c.Scan {
		query.Set("scan", "true")
	}
	var v wire.Verified
	method, body := http.MethodGet, any(nil)
	switch {
	case c.Acknowledge != "" && c.Scan:
		return usagef("--acknowledge goes by counters: run redrive verify --scan before it, or after")
	case c.Acknowledge != "":
		method, query, body = http.MethodPost, nil, wire.AcknowledgeRequest{Queue: c.Queue, Reason: c.Acknowledge}
	}
	if err := client.do(ctx, method, "/v1/verify", query, body, &v); err != nil {
		return err
	}
	if t.json {
		if err := t.writeJSON(v); err != nil {
			return err
		}
	} else {
		printVerified(t, &v)
	}
	if !v.Balanced {
		return errFailed
	}
	return nil
}

func printVerified(t *terminal, v *wire.Verified) {
	b := newTable("QUEUE", "ENTERED", "WAITING", "DEAD", "DONE", "DROPPED", "ARCHIVED", "MOVED OUT", "")
	for _, a := range v.Queues {
		state := coloured(good, "balanced")
		if !a.Balanced {
			state = coloured(bad, fmt.Sprintf("off by %s", grouped(a.Imbalance)))
		}
		b.add(text(a.Queue), number(a.Ledger.Entered), number(a.Waiting), number(a.Dead), number(a.Ledger.Done), number(a.Ledger.Dropped),
			number(a.Ledger.Archived), number(a.Ledger.MovedOut), state)
	}
	if len(v.Queues) > 0 {
		b.print(t)
	}
	for _, a := range v.Queues {
		for _, p := range a.Problems {
			t.printf("%s: %s\n", clean(a.Queue), clean(p))
		}
	}
	if v.Balanced {
		t.printf("%s\n", t.paint(good, "the ledger balances"))
		return
	}
	t.printf("%s\n%s\n", t.paint(bad, "the ledger does not balance"), clean(v.Hint))
}
