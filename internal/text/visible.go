package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Visible makes text safe to print: what could move the cursor, change the terminal
// or reorder what is read becomes visible as \x1b and the like. Payloads, error
// texts, kinds, keys and header values come from strangers. A line break becomes \n
// so that one value stays on one line.
func Visible(s string) string {
	if !needsEscape(s, false) {
		return s
	}
	return escape(s, false)
}

// VisibleLines is Visible for text of several lines: line breaks and tabs stay.
func VisibleLines(s string) string {
	if !needsEscape(s, true) {
		return s
	}
	return escape(s, true)
}

func needsEscape(s string, lines bool) bool {
	if !utf8.ValidString(s) {
		return true
	}
	return strings.ContainsFunc(s, func(r rune) bool { return hidden(r, lines) })
}

// hidden reports what is escaped.
func hidden(r rune, lines bool) bool {
	return Hidden(r) && !(lines && (r == '\n' || r == '\t'))
}

func escape(s string, lines bool) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !hidden(r, lines):
			b.WriteString(s[:n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[n:]
	}
	return b.String()
}
