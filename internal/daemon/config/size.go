package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Size is a number of bytes: "512", "64kB", "1MB" (a million), "1MiB" (1024 * 1024).
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// String returns the size in the largest unit that divides it.
func (s Size) String() string {
	if s <= 0 {
		return strconv.FormatInt(int64(s), 10) + "B"
	}
	for _, u := range sizeUnits {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	bad := &ValueError{What: fmt.Sprintf("%q is not a size", text), Hint: "write a number of bytes, or one with its unit, such as 64kB, 1MB or 1MiB"}
	m := sizePattern.FindStringSubmatch(text)
	if m == nil {
		return bad
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return bad
	}
	factor := int64(0)
	if m[2] == "" {
		factor = 1
	}
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, m[2]) {
			factor = u.bytes
		}
	}
	if factor == 0 {
		if c := strings.ToUpper(m[2]); c == "K" || c == "M" || c == "G" || c == "T" {
			bad.Hint = fmt.Sprintf("write %s%sB (powers of 1000) or %s%siB (powers of 1024)", m[1], strings.Replace(c, "K", "k", 1), m[1], c)
		}
		return bad
	}
	v := n * float64(factor)
	if v >= math.MaxInt64 {
		bad.Hint = "it is too large"
		return bad
	}
	*s = Size(v)
	return nil
}
