package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/redrive/redrive/internal/wire"
)

// Bounds of a diff.
const (
	diffContext = 2
	diffLines   = 60   // that are shown
	diffTable   = 2000 // lines on each side that are compared one by one
)

// printDiff prints what differs between two forms of a message, line by line; JSON is laid out.
func printDiff(t *terminal, before, after *wire.Message) {
	lines := diff(diffText(before), diffText(after))
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

// diffText is a message as lines.
func diffText(m *wire.Message) []string {
	var lines []string
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, name+": "+value)
		}
	}
	add("kind", m.Kind)
	add("key", m.Key)
	for _, h := range m.Headers {
		lines = append(lines, h.Name+": "+string(h.Value))
	}
	body := m.Bytes()
	switch {
	case body == nil && m.Size != nil && *m.Size > 0:
		return append(lines, fmt.Sprintf("(a body of %s bytes)", grouped(int64(*m.Size))))
	case json.Valid(body):
		var b bytes.Buffer
		if json.Indent(&b, body, "", "  ") == nil {
			body = b.Bytes()
		}
	}
	return append(lines, strings.Split(string(body), "\n")...)
}

// diff returns the lines that differ, with - and +, and a few around them.
func diff(a, b []string) []string {
	head := 0
	for head < len(a) && head < len(b) && same(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && same(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	var out []string
	for _, line := range a[max(head-diffContext, 0):head] {
		out = append(out, "  "+line)
	}
	out = append(out, changes(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail : len(a)-tail+min(tail, diffContext)] {
		out = append(out, "  "+line)
	}
	return folded(out)
}

// same compares lines but for the comma behind what is followed by something new.
func same(a, b string) bool { return strings.TrimSuffix(a, ",") == strings.TrimSuffix(b, ",") }

// changes compares lines by their longest common subsequence.
func changes(a, b []string) (out []string) {
	if len(a) > diffTable || len(b) > diffTable {
		a, b = a[:min(len(a), diffLines)], b[:min(len(b), diffLines)]
	}
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); same(a[i], b[j]) {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && same(a[i], b[j]):
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

// folded leaves out lines that are the same on both sides and far from those that are not.
func folded(lines []string) (out []string) {
	near := func(i int) bool {
		for k := max(i-diffContext, 0); k <= min(i+diffContext, len(lines)-1); k++ {
			if lines[k][0] != ' ' {
				return true
			}
		}
		return false
	}
	for i := range lines {
		switch {
		case near(i):
			out = append(out, lines[i])
		case len(out) > 0 && out[len(out)-1] != "  …":
			out = append(out, "  …")
		}
	}
	return out
}
