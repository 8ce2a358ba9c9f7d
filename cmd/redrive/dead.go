package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// deadCmd is everything about dead letters.
type deadCmd struct {
	List    deadListCmd    `cmd:"" help:"List dead letters, in the order in which they died."`
	Causes  deadCausesCmd  `cmd:"" help:"Count dead letters by cause."`
	Ack     deadAckCmd     `cmd:"" help:"Acknowledge, ignore or resolve a cause."`
	Triage  deadTriageCmd  `cmd:"" help:"Say what a cause looks like, by which numbers, and what to run next."`
	Count   deadCountCmd   `cmd:"" help:"Count dead letters that match, exactly."`
	Show    deadShowCmd    `cmd:"" help:"Show the full failure history of one."`
	Edit    deadEditCmd    `cmd:"" help:"Edit one; the original is kept."`
	Repair  deadRepairCmd  `cmd:"" help:"Repair many by a rule; the originals are kept."`
	Restore deadRestoreCmd `cmd:"" help:"Undo a repair: put back what was published."`
	Redrive deadRedriveCmd `cmd:"" help:"Give dead letters another life."`
	Drop    deadDropCmd    `cmd:"" help:"Remove dead letters for good."`
	Archive deadArchiveCmd `cmd:"" help:"Move dead letters into the archive's folder."`
	Export  deadExportCmd  `cmd:"" help:"Write dead letters as NDJSON."`
	Import  deadImportCmd  `cmd:"" help:"Put dead letters in, from an export or an archive."`
}

type deadListCmd struct {
	remote      `embed:""`
	filterFlags `embed:""`
	Limit       int `default:"100" placeholder:"N" help:"At most so many (default 100; 0: all)."`
}

func (*deadListCmd) Help() string {
	return examples("redrive dead list --queue hooks --since 1h", "what died in the last hour", "redrive dead list --reason crashed --json", "as JSON")
}

// Run prints a line a dead letter.
func (c *deadListCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if err := c.check(); err != nil {
		return err
	}
	list, err := collect(ctx, client, "/v1/dead-letters", c.Parameters(), c.Limit)
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	b := newTable("MESSAGE", "KIND", "REASON", "ATTEMPTS", "DIED", "ERROR")
	for i := range list.Items {
		m := &list.Items[i]
		b.add(text(m.Queue+"/"+m.ID), text(m.Kind), coloured(bad, reasonOf(m)), number(m.Attempts), text(since(m.DiedAt)), text(m.Error))
	}
	b.print(t)
	ended(t, list)
	if !list.Complete {
		t.note("how many there are: %s", countCommand(&c.Filter))
	}
	return nil
}

func reasonOf(m *wire.Message) string {
	if m.Reason == nil {
		return ""
	}
	return m.Reason.String()
}

type deadCausesCmd struct {
	remote      `embed:""`
	filterFlags `embed:""`
	Life        string `name:"state" enum:",new,acknowledged,ignored,resolved,regressed" default:"" placeholder:"STATE" help:"In this state: new, acknowledged, ignored, resolved or regressed."`
	Limit       int    `default:"100" placeholder:"N" help:"At most so many (default 100)."`
}

func (*deadCausesCmd) Help() string {
	return examples("redrive dead causes", "the causes, the largest first", "redrive dead redrive --signature SIGNATURE", "redrive one of them")
}

// Run prints a line a cause.
func (c *deadCausesCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if err := c.check(); err != nil {
		return err
	}
	query := c.Parameters()
	query.Set("limit", strconv.Itoa(c.Limit))
	if c.Life != "" {
		query.Set("life", c.Life)
	}
	var list wire.List[wire.Cause]
	if err := client.do(ctx, http.MethodGet, "/v1/causes", query, nil, &list); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	switch {
	case !list.Complete && len(list.Items) == 0:
		t.note("at least 0 match, of those that were examined; count all: %s", countCommand(&c.Filter))
	case len(list.Items) == 0 && c.Life != "":
		t.note("no cause is %s", c.Life)
	case len(list.Items) == 0:
		t.note("there are no dead letters")
	default:
		printCauses(t, list.Items)
		if !list.Complete {
			t.note("these are not all; narrow the search with --queue, --reason or --since, or count all: %s", countCommand(&c.Filter))
		}
	}
	return nil
}

func printCauses(t *terminal, causes []wire.Cause) {
	b := newTable("COUNT", "NOW", "QUEUE", "REASON", "SIGNATURE", "LAST", "EXAMPLE", "ERROR")
	for i := range causes {
		g := &causes[i]
		b.add(number(g.Count), growth(g), text(g.Queue), coloured(bad, g.Reason.String()), text(g.Signature), text(since(&g.Last)), text(g.Example), text(whatHappened(g)))
	}
	b.print(t)
}

// whatHappened is what a target answered, or else the error.
func whatHappened(c *wire.Cause) string {
	switch {
	case c.Answer != "":
		return fmt.Sprintf("%d %s", c.Status, c.Answer)
	case c.Type != "":
		return c.Type + ": " + c.Message
	}
	return c.Message
}

// growth says whether more die of a cause: how many a minute, or since when none did.
func growth(c *wire.Cause) cell {
	switch {
	case c.State == wire.CauseRegressed:
		return coloured(bad, strings.TrimSpace("regressed "+c.RegressedOn))
	case c.State != "" && c.State != wire.CauseNew:
		return text(c.State)
	case c.Growing:
		return coloured(bad, fmt.Sprintf("+%.1f/min", c.PerMinute))
	case c.PerMinute > 0:
		return text(fmt.Sprintf("+%.1f/min", c.PerMinute))
	case c.Quiet:
		return text("quiet")
	}
	return text("")
}

type deadShowCmd struct {
	remote `embed:""`
	ID     string `arg:"" name:"[queue/]id" help:"The dead letter."`
	Queue  string `short:"q" placeholder:"QUEUE" help:"Its queue."`
	Body   bool   `help:"Write the body only, byte for byte (made safe on a terminal)."`
}

func (*deadShowCmd) Help() string {
	return examples("redrive dead show hooks/order-42", "why it died: each attempt with error, host, target and answer")
}

// Run prints the dead letter.
func (c *deadShowCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.show(ctx, t, client, c.ID, c.Queue, c.Body, deadPath)
}

type deadExportCmd struct {
	remote      `embed:""`
	filterFlags `embed:""`
	Output      string `short:"o" type:"path" placeholder:"FILE" help:"Into this file, which must not exist; otherwise to the output."`
}

func (*deadExportCmd) Help() string {
	return examples("redrive dead export --queue hooks -o dead.ndjson", "one dead letter a line, with its body and failure history")
}

// Run writes whole dead letters, one a line.
func (c *deadExportCmd) Run(ctx context.Context, t *terminal, client *client) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	out := t.out
	if c.Output != "" {
		f, err := os.OpenFile(c.Output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			if cerr := f.Close(); err == nil {
				err = cerr
			}
		}()
		out = f
	}
	w := bufio.NewWriter(out)
	n, err := c.write(ctx, t, client, json.NewEncoder(w))
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	if err == nil {
		t.note("%s dead %s", grouped(n), plural(int(n), "letter", "letters"))
	}
	return err
}

func (c *deadExportCmd) write(ctx context.Context, t *terminal, client *client, e *json.Encoder) (n int64, err error) {
	p := &progress{t: t}
	defer p.clear()
	query := c.Parameters()
	query.Set("limit", strconv.Itoa(redrive.MaxPage))
	var inner error
	err = pages(ctx, client, "/v1/dead-letters", query, func(page wire.List[wire.Message]) bool {
		for i := range page.Items {
			var m wire.Message
			m, inner = client.whole(ctx, deadPath(redrive.Ref{Queue: page.Items[i].Queue, ID: page.Items[i].ID}))
			if isNotFound(inner) { // it was redriven meanwhile
				inner = nil
				continue
			}
			if inner == nil {
				inner = e.Encode(m)
			}
			if inner != nil {
				return false
			}
			n++
			p.update("%s exported", grouped(n))
		}
		return true
	})
	if inner != nil {
		err = fmt.Errorf("after %d: %w", n, inner)
	}
	return n, err
}
