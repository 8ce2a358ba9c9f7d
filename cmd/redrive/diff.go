package main

import (
	"github.com/redrive/redrive/internal/linediff"
	"github.com/redrive/redrive/internal/wire"
)

// diffLines bounds what is shown of a diff.
const diffLines = 60

// printDiff prints what differs between two forms of a message, line by line; JSON is laid out.
func printDiff(t *terminal, before, after *wire.Message) {
	lines := linediff.Lines(before.Lines(), after.Lines())
	for i, line := range lines {
		if i == diffLines {
			t.printf("  … %d lines more\n", len(lines)-i)
			break
		}
		shown := clean(shorten(line, 300))
		switch line[0] {
		case '+':
			shown = t.paint(good, shown)
		case '-':
			shown = t.paint(bad, shown)
		}
		t.printf("  %s\n", shown)
	}
}
