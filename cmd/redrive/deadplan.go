package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// planFlags are common to what changes many dead letters.
type planFlags struct {
	remote      `embed:""`
	filterFlags `embed:""`
	IDs         []string `arg:"" optional:"" name:"[queue/]id" help:"These dead letters; otherwise those that the flags select."`
	All         bool     `help:"Every dead letter of every queue."`
	planHow     `embed:""`
}

// planHow says how a plan is carried out.
type planHow struct {
	Rate   config.Rate `placeholder:"RATE" help:"How fast, such as 50/s (default 100/s; repairs 2000/s)."`
	DryRun bool        `help:"Count and show what would be done only."`
	Yes    bool        `short:"y" help:"Do not ask."`
	Wait   bool        `short:"w" help:"Wait until it is done."`
	Why    string      `placeholder:"TEXT" help:"The reason, for the plan and the audit log."`
	PlanID string      `name:"id" placeholder:"ID" help:"Name the plan: the same command again, with the same id, goes on with that plan."`
}

type deadRedriveCmd struct {
	planFlags        `embed:""`
	To               string        `placeholder:"QUEUE" help:"Into another queue."`
	NewID            bool          `name:"new-id" help:"Under new ids, for receivers that deduplicate."`
	ConfirmUncertain bool          `help:"Also those whose effect is unknown and may happen twice."`
	ConfirmCorrupt   bool          `help:"Also those whose bytes do not match their checksum."`
	MaxRedrives      int           `placeholder:"N" help:"Refuse what was redriven so often."`
	Canary           int           `placeholder:"N" help:"Try so many first; the others follow, faster and faster, if all of these are delivered. If their cause of death is back, the plan stops."`
	Watch            time.Duration `placeholder:"TIME" help:"How long to look out, after the canary was delivered, for what comes back as a dead letter (default 1m where the queue delivers to a broker)."`
}

func (*deadRedriveCmd) Help() string {
	return examples(
		"redrive dead redrive hooks/order-42", "one",
		"redrive dead redrive --queue hooks --reason exhausted --dry-run", "what would be redriven",
		"redrive dead redrive --queue hooks --rate 50/s --wait", "all of a queue, slowly, and watch",
		"redrive dead redrive --signature 2-4f1c09aa52de83b6 --canary 10 --wait", "ten first; the rest only if these are delivered",
	)
}

// Run redrives dead letters. They become what waits, and are delivered as such.
func (c *deadRedriveCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if c.To != "" {
		if err := driver.CheckQueue(c.To); err != nil {
			return usageError{err}
		}
	}
	return c.run(ctx, t, client, wire.PlanRequest{Action: "redrive", To: c.To, NewID: c.NewID, ConfirmUncertain: c.ConfirmUncertain, ConfirmCorrupt: c.ConfirmCorrupt, MaxRedrives: c.MaxRedrives, Canary: c.Canary, Watch: wire.Duration(c.Watch)},
		"redriven", c.confirmRedrive)
}

// confirmRedrive asks on a terminal when no single messages were named.
func (c *deadRedriveCmd) confirmRedrive(t *terminal, d *wire.DryRun) error {
	return c.ask(t, d, "Redrive", "redriven")
}

// ask asks on a terminal whether what can be undone shall be done, when no single
// messages were named.
func (c *planFlags) ask(t *terminal, d *wire.DryRun, verb, done string) error {
	if len(c.IDs) > 0 || !t.inTTY || !t.errTTY || t.json {
		return nil
	}
	fmt.Fprintf(t.err, "%s %s (%s)? [y/N] ", verb, letters(d), c.described())
	answer, err := readLine(t.in)
	if err != nil {
		return err
	}
	if a := strings.ToLower(answer); a != "y" && a != "yes" {
		return fmt.Errorf("nothing was %s", done)
	}
	return nil
}

// confirmTyped asks for a phrase with the count to be typed before something is removed
// for good. what names how many of what, which says the filter.
func confirmTyped(t *terminal, verb string, count int64, what, which string) error {
	if !t.inTTY || !t.errTTY || t.json {
		return usagef("this removes messages for good: add --yes to %s %s (%s)", verb, what, which)
	}
	phrase := fmt.Sprintf("%s %d", verb, count)
	fmt.Fprintf(t.err, "This removes %s (%s) for good. Type %q to go on: ", what, which, phrase)
	answer, err := readLine(t.in)
	if err != nil {
		return err
	}
	if answer != phrase {
		return fmt.Errorf("nothing was removed")
	}
	return nil
}

type deadArchiveCmd struct {
	planFlags `embed:""`
}

func (*deadArchiveCmd) Help() string {
	return examples(
		"redrive dead archive --queue hooks --until 30d", "what died more than 30 days ago, into the archive's folder",
		"redrive dead import ./redrive-data/archive --queue hooks", "and back again",
	)
}

// Run moves dead letters into the archive.
func (c *deadArchiveCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.run(ctx, t, client, wire.PlanRequest{Action: "archive"}, "archived", func(t *terminal, d *wire.DryRun) error { return c.ask(t, d, "Archive", "archived") })
}

type deadDropCmd struct {
	planFlags `embed:""`
}

func (*deadDropCmd) Help() string {
	return examples(
		"redrive dead drop hooks/order-42 --yes", "one",
		"redrive dead drop --queue hooks --kind ping --since 7d", "those that match, after a confirmation",
	)
}

// Run removes dead letters for good.
func (c *deadDropCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.run(ctx, t, client, wire.PlanRequest{Action: "drop"}, "dropped", c.confirmDrop)
}

// confirmDrop asks for the count to be typed: what is dropped is gone.
func (c *deadDropCmd) confirmDrop(t *terminal, d *wire.DryRun) error {
	return confirmTyped(t, "drop", d.Total, letters(d), c.described())
}

// everything describes a filter without conditions.
const everything = "all queues"

func (c *planFlags) described() string {
	if len(c.IDs) > 0 {
		return "as named"
	}
	if s := clean(c.Filter.String()); s != "" {
		return s
	}
	return everything
}

func letters(d *wire.DryRun) string {
	return atLeast(d) + " dead " + plural(int(min(d.Total, 2)), "letter", "letters") + ofExamined(d)
}

func atLeast(d *wire.DryRun) string {
	if d.More {
		return "at least " + grouped(d.Total)
	}
	return grouped(d.Total)
}

// ofExamined says of how many messages a count is that is not of all.
func ofExamined(d *wire.DryRun) string {
	if !d.More || d.Examined == 0 {
		return ""
	}
	return " (" + grouped(d.Examined) + " were examined)"
}

// run carries out a plan.
func (c *planFlags) run(ctx context.Context, t *terminal, client *client, req wire.PlanRequest, done string, confirm func(*terminal, *wire.DryRun) error) error {
	if err := c.check(); err != nil {
		return err
	}
	switch named := len(c.IDs) > 0 || c.described() != everything; {
	case !named && !c.All && !c.DryRun:
		return usagef("this is about every dead letter of every queue: name a queue or another filter, or give --all")
	case named && c.All:
		return usagef("--all goes with no other filter and with no ids")
	}
	req.All = c.All
	if client.local && req.Canary > 0 {
		return usagef("a canary needs a daemon that delivers it: start redrive serve, or leave --canary out")
	}
	if len(c.IDs) == 0 {
		f := c.Filter
		if req.Filter != nil {
			f.State = req.Filter.State
		}
		req.Filter = &f
	}
	for _, id := range c.IDs {
		ref, err := parseRef(id, c.Queue)
		if err != nil {
			return err
		}
		if ref, err = client.resolve(ctx, ref); err != nil {
			return err
		}
		req.Refs = append(req.Refs, ref.String())
	}
	return c.carryOut(ctx, t, client, req, done, confirm)
}

// carryOut counts, asks, and has a plan carried out.
func (c *planHow) carryOut(ctx context.Context, t *terminal, client *client, req wire.PlanRequest, done string, confirm func(*terminal, *wire.DryRun) error) error {
	req.Rate, req.Reason, req.ID = c.Rate.String(), c.Why, c.PlanID
	if c.DryRun || !c.Yes {
		var d wire.DryRun
		dry := req
		dry.DryRun = true
		if err := client.do(ctx, http.MethodPost, "/v1/plans", nil, dry, &d); err != nil {
			return err
		}
		if d.More && req.Filter != nil && req.Filter.State == "" {
			t.note("to count all: %s", countCommand(req.Filter))
		}
		if c.DryRun {
			if d.Preview != nil && !t.json {
				printRule(t, req.Repair)
			}
			return printDryRun(t, &d, done)
		}
		if err := confirm(t, &d); err != nil {
			return err
		}
	}
	var p wire.Plan
	if err := client.do(ctx, http.MethodPost, "/v1/plans", nil, req, &p); err != nil {
		return err
	}
	if (c.Wait || client.local) && !p.Ended() {
		var err error
		if p, err = client.wait(ctx, t, p, done); err != nil {
			return err
		}
	}
	return reportPlan(t, &p, done)
}

func printDryRun(t *terminal, d *wire.DryRun, done string) error {
	if t.json {
		return t.writeJSON(d)
	}
	t.printf("%s would be %s", letters(d), done)
	for i, name := range slices.Sorted(maps.Keys(d.Reason)) {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		t.printf("%s%s %s", sep, grouped(d.Reason[name]), clean(name))
	}
	t.printf("\n")
	for _, name := range slices.Sorted(maps.Keys(d.Refused)) {
		more := ""
		if d.RefusedMore {
			more = "at least "
		}
		t.printf("%s%s would be refused: %s\n", more, grouped(d.Refused[name]), clean(name))
	}
	if len(d.Causes) > 0 {
		t.printf("\n")
		printCauses(t, d.Causes)
	}
	if d.Preview != nil {
		printPreview(t, d.Preview)
	}
	return nil
}

// readLine reads one line of what a person types.
func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("nothing was typed: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// actor names who is at the keyboard.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return "someone"
}
