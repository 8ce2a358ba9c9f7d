package main

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// table is rows of columns that are aligned when they are printed.
type table struct {
	head []string
	rows [][]cell
}

// cell is a text with its colour.
type cell struct {
	text   string
	colour string
	right  bool // aligned to the right, as numbers are
}

func newTable(head ...string) *table { return &table{head: head} }

func text(s string) cell             { return cell{text: clean(s)} }
func coloured(c, s string) cell      { return cell{text: clean(s), colour: c} }
func number[T int | int64](n T) cell { return cell{text: grouped(int64(n)), right: true} }

func (b *table) add(cells ...cell) { b.rows = append(b.rows, cells) }

// minLast is how many columns the last cell of a row needs to stand beside the others.
const minLast = 12

// print writes the table. On a terminal nothing is wider than it: the last column is cut, and where
// the others leave no room for it, each row takes several lines.
func (b *table) print(t *terminal) {
	widths := make([]int, len(b.head))
	for i, h := range b.head {
		widths[i] = columns(h)
		for _, r := range b.rows {
			if i < len(r) {
				widths[i] = max(widths[i], columns(r[i].text))
			}
		}
	}
	used := 0
	for i, w := range widths {
		if i == len(widths)-1 {
			w = min(w, minLast)
		}
		used += w + 2
	}
	if t.width > 0 && used-2 > t.width {
		for _, r := range b.rows {
			b.block(t, r)
		}
		return
	}
	head := make([]cell, len(b.head))
	for i, h := range b.head {
		head[i] = cell{text: h, colour: strong}
		if len(b.rows) > 0 && i < len(b.rows[0]) {
			head[i].right = b.rows[0][i].right
		}
	}
	b.line(t, widths, head)
	for _, r := range b.rows {
		b.line(t, widths, r)
	}
}

func (b *table) line(t *terminal, widths []int, cells []cell) {
	var s strings.Builder
	used := 0
	for i, c := range cells {
		last := i == len(cells)-1
		if last && t.width > 0 {
			c.text = shorten(c.text, t.width-used)
		}
		pad := strings.Repeat(" ", max(widths[i]-columns(c.text), 0))
		switch {
		case c.right:
			s.WriteString(pad + t.paint(c.colour, c.text))
		case last:
			s.WriteString(t.paint(c.colour, c.text))
		default:
			s.WriteString(t.paint(c.colour, c.text) + pad)
		}
		if !last {
			s.WriteString("  ")
		}
		used += widths[i] + 2
	}
	fmt.Fprintln(t.out, strings.TrimRight(s.String(), " "))
}

// block writes a row over several lines: numbers with their names, the last cell on a line of its own.
func (b *table) block(t *terminal, cells []cell) {
	const indent = "    "
	used := 0
	for i, c := range cells {
		if c.text == "" || c.text == "-" {
			continue
		}
		if c.right {
			c.text = strings.ToLower(b.head[i]) + " " + c.text
		}
		room, gap := t.width, "  "
		switch {
		case used == 0:
			gap = ""
		case i == len(cells)-1, used+2+columns(c.text) > room:
			gap, used = "\n"+indent, len(indent)-2
			room -= len(indent)
		}
		c.text = shorten(c.text, room)
		t.printf("%s%s", gap, t.paint(c.colour, c.text))
		used += 2 + columns(c.text)
		if gap == "" {
			used -= 2
		}
	}
	t.printf("\n")
}

// columns is how many columns of a terminal a clean text takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// shorten cuts text to a number of columns, with an ellipsis in place of what is missing.
func shorten(s string, most int) string {
	if most <= 0 || columns(s) <= most {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeColumns(r); used > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}
