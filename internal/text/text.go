// Package text has what several packages do to texts and numbers that people read:
// names of enumerations, clean and printable text, durations that do not overflow.
package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Enum returns the name of an enumeration's value, or a number for one that has none.
func Enum[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%T(%d)", v, v)
}

// ParseEnum is the reverse of Enum. Its error wraps invalid, and lists the names.
func ParseEnum[T ~uint8](invalid error, names []string, s, what string) (T, error) {
	for i, n := range names {
		if n == s {
			return T(i), nil
		}
	}
	var known []string
	for _, n := range names {
		if n != "" {
			known = append(known, n)
		}
	}
	return 0, fmt.Errorf("%w %s %q: use one of %s", invalid, what, s, strings.Join(known, ", "))
}

// Match reports whether a name fits a pattern, in which * stands for any characters.
func Match(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[last])
}

// Gap stands where the middle of a text was cut out.
const Gap = " … "

// Clean makes s valid UTF-8 without NUL and at most limit bytes, cut in the middle.
func Clean(s string, limit int) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	if len(s) <= limit {
		return s
	}
	head := (limit - len(Gap)) * 2 / 3
	tail := len(s) - (limit - len(Gap) - head)
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + Gap + s[tail:]
}

// Printable reports whether s is valid UTF-8 without control characters.
func Printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// IsHex reports whether s has hexadecimal digits only.
func IsHex(s string) bool {
	for i := range len(s) {
		if !HexDigit(s[i]) {
			return false
		}
	}
	return true
}

// HexDigit reports whether c is a hexadecimal digit.
func HexDigit(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// Plural is "1 time" or "2 times".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Positive returns d, or otherwise if d is not above zero.
func Positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// Duration converts nanoseconds, which may be negative or beyond what a Duration
// holds.
func Duration(ns float64) time.Duration {
	switch {
	case !(ns > 0): // NaN too
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// Hidden reports a character that does not show by itself, or that changes how what is
// around it shows: controls, line breaks of every kind, direction, zero width, and what no
// font has.
func Hidden(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0: // C0 and C1
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separator
		return true
	case r < utf8.RuneSelf:
		return false
	}
	// Cf holds the bidirectional controls, zero-width characters and tags; Co and Cs
	// show as nothing or as anything.
	return unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs)
}

// Dated reports whether a time can be stored and written as JSON, by its year in UTC: a broker has any number.
func Dated(t time.Time) bool {
	y := t.UTC().Year()
	return y >= 1 && y <= 9999
}
