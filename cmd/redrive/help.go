package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const description = `A fault-tolerance layer for message delivery: what was accepted is delivered, or it waits, or it is dead-lettered with its failure history.

To begin: redrive serve --deliver hooks=https://example.com/hook, then: redrive publish hooks '{"hello": "world"}'`

// examples formats pairs of a command line and what it does.
func examples(pairs ...string) string {
	var b strings.Builder
	b.WriteString("Examples:\n")
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "  %s\n      %s\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// helpPrinter prints the help of a command with its examples at the end, as they
// are: the default wraps them into one paragraph before the flags.
func helpPrinter(o kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	var detail string
	if node != nil {
		detail, node.Detail = node.Detail, ""
	}
	if err := kong.DefaultHelpPrinter(o, ctx); err != nil {
		return err
	}
	if detail != "" {
		node.Detail = detail
		_, err := fmt.Fprintf(ctx.Stdout, "\n%s", detail)
		return err
	}
	return nil
}

// helpCmd is --help in other words.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command's words."`
}

// Run shows the help of a command.
func (c *helpCmd) Run(ctx context.Context, t *terminal) error {
	if run(ctx, append(slices.Clone(c.Command), "--help"), t) != exitOK {
		return errUsage
	}
	return nil
}

// commandPath returns the words of the command that was parsed so far.
func commandPath(ctx *kong.Context) string {
	words := []string{"redrive"}
	if ctx == nil {
		return words[0]
	}
	for _, p := range ctx.Path {
		if p.Command != nil {
			words = append(words, p.Command.Name)
		}
	}
	return strings.Join(words, " ")
}
