package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ValueError says that a single value cannot be understood, and what to write.
type ValueError struct {
	What string
	Hint string
}

// Error joins both.
func (e *ValueError) Error() string {
	if e.Hint == "" {
		return e.What
	}
	return e.What + ": " + e.Hint
}

// Error is one thing that is wrong with a configuration.
type Error struct {
	File   string // as it was given to Load or Parse; "" when no file is concerned
	Line   int    // from 1; 0 when no line is concerned
	Column int    // from 1, in characters
	Path   string // "queues.sms.policy.max_attempts"
	What   string // what is wrong
	Hint   string // what to do about it
	Source string // the offending line or 120 characters of it, without secrets

	caret int // where in Source, from 1
}

// Error returns the error in one to four lines.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.What)
	if e.Source != "" {
		fmt.Fprintf(&b, "\n  %4d | %s\n       | %s^", e.Line, e.Source, strings.Repeat(" ", max(e.caret-1, 0)))
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: " + e.Hint)
	}
	return b.String()
}

// Errors is everything that is wrong with a configuration, in the order of the file.
type Errors []*Error

// Error joins the errors, one after the other.
func (l Errors) Error() string {
	parts := make([]string, len(l))
	for i, e := range l {
		parts[i] = e.Error()
	}
	return strings.Join(parts, "\n")
}

// Unwrap returns the single errors.
func (l Errors) Unwrap() []error {
	all := make([]error, len(l))
	for i, e := range l {
		all[i] = e
	}
	return all
}

// secretLike finds what looks like a secret in a line that could not be understood,
// so that an excerpt does not show it.
var secretLike = regexp.MustCompile(`(?i)((?:secrets?|tokens?|password|authorization|api[_-]?key)["']?\s*:\s*)(\[[^\]]*\]?|"[^"]*"?|'[^']*'?|[^\s,}\]]+(?:\s+[^\s,}\]]+)*)|whsec_[A-Za-z0-9+/=_-]+`)

// userInfo finds a name and password in an address.
var userInfo = regexp.MustCompile(`//[^/@\s]*@`)

// excerpt prepares one line for printing: secrets hidden, control characters and
// tabs replaced one for one, and around a column if it is long. It returns where the column
// is in what is left.
func excerpt(line string, secrets []string, column int) (string, int) {
	mask := func(s string) string { return strings.Repeat("*", max(utf8.RuneCountInString(s), 1)) }
	for _, s := range secrets {
		if strings.Contains(line, s) {
			line = strings.ReplaceAll(line, s, mask(s))
		}
	}
	line = secretLike.ReplaceAllStringFunc(line, func(m string) string {
		sub := secretLike.FindStringSubmatch(m)
		if strings.HasPrefix(sub[2], "env:") || strings.HasPrefix(sub[2], `"env:`) {
			return m
		}
		return sub[1] + mask(m[len(sub[1]):])
	})
	line = userInfo.ReplaceAllStringFunc(line, func(m string) string { return "//" + mask(m[3:]) + "@" })
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 ||
			r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return ' '
		}
		return r
	}, line)
	const widest = 120
	if runes := []rune(line); len(runes) > widest {
		from := max(0, min(column-widest/2, len(runes)-widest))
		line = string(runes[from : from+widest])
		if from+widest < len(runes) {
			line = string(runes[from:from+widest-1]) + "…"
		}
		if from > 0 {
			line = "…" + strings.TrimPrefix(line, string(runes[from]))
			column -= from
		}
	}
	return strings.TrimRight(line, " "), column
}
