package main

import (
	"unicode/utf8"

	texts "github.com/redrive/redrive/internal/text"
)

// clean makes a text of others safe to print on one line.
func clean(s string) string { return texts.Visible(s) }

// cleanText is clean for text of several lines.
func cleanText(s string) string { return texts.VisibleLines(s) }

// shorten cuts text to a number of characters, with an ellipsis in place of what
// is missing.
func shorten(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(width-1, 0)]) + "…"
}
