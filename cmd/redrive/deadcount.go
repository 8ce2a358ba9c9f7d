package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

type deadCountCmd struct {
	remote      `embed:""`
	filterFlags `embed:""`
}

func (*deadCountCmd) Help() string {
	return examples(
		"redrive dead count --queue hooks --text 'no stock'", "how many have this in their error or the target's answer, exactly; Ctrl-C stops it",
		"redrive dead count --kind order --json", "as JSON",
	)
}

// Run counts what matches, also what no counter knows.
func (c *deadCountCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if err := c.check(); err != nil {
		return err
	}
	var n wire.Count
	if err := client.do(ctx, http.MethodPost, "/v1/counts", nil, wire.CountRequest{Filter: c.Filter}, &n); err != nil {
		return err
	}
	stopped, err := client.follow(ctx, t, &n)
	if err != nil {
		return err
	}
	if t.json {
		if err := t.writeJSON(&n); err != nil {
			return err
		}
	} else if n.State == wire.CountDone {
		t.printf("%s dead %s\n", grouped(n.Count), plural(int(min(n.Count, 2)), "letter", "letters"))
	} else {
		t.printf("at least %s dead %s (%s were examined); the count %s %s\n", grouped(n.Count), plural(int(min(n.Count, 2)), "letter", "letters"), ofTotal(&n), clean(n.State), clean(n.Problem))
	}
	if stopped != nil || n.State != wire.CountDone {
		return errFailed
	}
	return nil
}

// follow shows how far a count is until it ends. A command that is interrupted cancels it.
func (c *client) follow(ctx context.Context, t *terminal, n *wire.Count) (stopped, err error) {
	line := &progress{t: t}
	defer line.clear()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	method := http.MethodGet
	for n.State == wire.CountRunning {
		line.update("%s found, %s examined", grouped(n.Count), ofTotal(n))
		select {
		case <-ctx.Done():
			stopped, method = ctx.Err(), http.MethodDelete
		case <-tick.C:
		}
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		err = c.do(ask, method, "/v1/counts/"+segment(n.ID), nil, nil, n)
		if cancel(); err != nil || stopped != nil {
			break
		}
	}
	return stopped, err
}

// cancelTimeout bounds how long an interrupted command waits for the daemon.
const cancelTimeout = 10 * time.Second

// ofTotal is how many a count has looked at.
func ofTotal(n *wire.Count) string {
	if n.Total == 0 {
		return grouped(n.Examined)
	}
	return fmt.Sprintf("%s of %s", grouped(n.Examined), grouped(n.Total))
}

// countCommand is the command that counts what matches a filter.
func countCommand(f *wire.Filter) string { return "redrive dead count" + flagsOf(f) }

// flagsOf writes a filter as flags of a command.
func flagsOf(f *wire.Filter) string {
	var b strings.Builder
	values := f.Parameters()
	for i := range wire.Fields {
		name := wire.Fields[i].Name
		switch value := values.Get(name); {
		case value == "" || name == "state":
		case name == "edited":
			b.WriteString(" --edited")
		default:
			b.WriteString(" --" + name + " " + quoteWord(clean(value)))
		}
	}
	return b.String()
}

// quoteWord writes a word as a shell takes it.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@=+,%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
