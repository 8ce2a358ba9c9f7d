package main

import texts "github.com/redrive/redrive/internal/text"

// clean makes a text of others safe to print on one line.
func clean(s string) string { return texts.Visible(s) }

// cleanText is clean for text of several lines.
func cleanText(s string) string { return texts.VisibleLines(s) }
