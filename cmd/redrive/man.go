package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// manCmd writes the manual pages, one for the program and one for each of its commands,
// from what --help shows.
type manCmd struct {
	Dir string `arg:"" type:"path"`
}

// Run writes the files.
func (c *manCmd) Run(app *kong.Kong) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // pages that everybody may read
		return err
	}
	root := app.Model.Node
	for _, n := range append([]*kong.Node{root}, root.Children...) {
		if n.Hidden {
			continue
		}
		file := filepath.Join(c.Dir, pageName(n)+".1")
		if err := os.WriteFile(file, []byte(page(root, n)), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}

func pageName(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return pageName(n.Parent) + "-" + n.Name
}

// page is the page of a node: the program with the names of its commands, or a command with
// all that is below it.
func page(root, n *kong.Node) string {
	help, name := n.Help, pageName(n)
	detail := n.Detail
	if n == root {
		help, detail, _ = strings.Cut(n.Help, "\n\n")
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"redrive\" \"Redrive\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(name)), roff(name), roff(strings.TrimSuffix(help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(n.FullPath()+strings.TrimPrefix(n.Summary(), n.Path())))
	if n == root {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n.SH COMMANDS\n", roff(detail))
		for _, child := range n.Children {
			if !child.Hidden {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(child)), roff(child.Help))
			}
		}
	} else {
		body(&b, n)
	}
	flags(&b, "OPTIONS OF ALL COMMANDS", root.Flags)
	b.WriteString(".SH EXIT STATUS\n0: done. 1: failed. 2: called wrongly. 3: what was named is not there. 4: refused for now, the same command may succeed later.\n")
	b.WriteString(".SH FILES\n.TP\n.I redrive.yaml\nin the working directory, else\n.I /etc/redrive/redrive.yaml\n: the configuration of\n.BR redrive-serve (1)\n")
	return b.String()
}

// body writes what a command takes, and after it its own commands.
func body(b *strings.Builder, n *kong.Node) {
	if len(n.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range n.Positional {
			fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(p.Summary()), roff(p.Help))
		}
	}
	flags(b, "OPTIONS", n.Flags)
	if n.Detail != "" {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.Trim(strings.TrimPrefix(n.Detail, "Examples:"), "\n")))
	}
	for _, child := range n.Children {
		if !child.Hidden {
			fmt.Fprintf(b, ".SH %s\n.B %s\n.PP\n%s\n", strings.ToUpper(roff(child.FullPath())), roff(child.FullPath()+strings.TrimPrefix(child.Summary(), child.Path())), roff(child.Help))
			var below strings.Builder
			body(&below, child)
			b.WriteString(strings.ReplaceAll(below.String(), ".SH ", ".SS "))
		}
	}
}

func flags(b *strings.Builder, title string, list []*kong.Flag) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	for _, f := range list {
		if f.Hidden {
			continue
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(f.String()), roff(f.Help))
	}
}

// roff is a text as it stands in a page: no line of it is a request, no hyphen a dash.
func roff(s string) string {
	s = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = "\\&" + line
		}
	}
	return strings.Join(lines, "\n")
}
