package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time as people write it: "1.5s", "10m", "1h30m", "30d",
// "2w". A number needs its unit, and none is negative.
type Duration time.Duration

// Std returns the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the shortest usual form: "10m", not "10m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err == nil {
		*d = Duration(v)
	}
	return err
}

var durationUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// durationWords are what people write instead of a unit.
var durationWords = map[string]string{
	"second": "s", "seconds": "s", "sec": "s", "secs": "s", "minute": "m", "minutes": "m", "min": "m", "mins": "m",
	"hour": "h", "hours": "h", "hr": "h", "hrs": "h", "day": "d", "days": "d", "week": "w", "weeks": "w",
	"millisecond": "ms", "milliseconds": "ms", "msec": "ms", "millis": "ms", "S": "s", "M": "m", "H": "h", "D": "d",
}

var (
	durationPart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([a-zµ]+)`)
	numberWord   = regexp.MustCompile(`^\s*([0-9]+(?:[.,][0-9]+)?)\s*([A-Za-zµ]*)\s*$`)
)

// ParseDuration reads a [Duration]. Its errors are a [*ValueError] with a hint.
func ParseDuration(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	if text == "0" {
		return 0, nil
	}
	if text == "" || strings.HasPrefix(text, "-") {
		return 0, badDuration(s)
	}
	var sum float64
	for rest := text; rest != ""; {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, badDuration(s)
		}
		unit, ok := durationUnits[m[2]]
		n, err := strconv.ParseFloat(m[1], 64)
		if !ok || err != nil {
			return 0, badDuration(s)
		}
		sum += n * float64(unit)
		rest = rest[len(m[0]):]
	}
	if sum >= math.MaxInt64 {
		return 0, &ValueError{What: fmt.Sprintf("duration %q is longer than 292 years", s), Hint: "leave the key out for no limit"}
	}
	return time.Duration(math.Round(sum)), nil
}

func badDuration(s string) error {
	e := &ValueError{What: fmt.Sprintf("%q is not a duration", s), Hint: "write a number with its unit, such as 500ms, 5s, 10m, 1h30m or 30d"}
	if strings.HasPrefix(strings.TrimSpace(s), "-") {
		e.Hint = "a duration is zero or more"
		return e
	}
	if m := numberWord.FindStringSubmatch(s); m != nil {
		n := strings.ReplaceAll(m[1], ",", ".")
		unit, known := durationWords[m[2]]
		if _, exact := durationUnits[m[2]]; exact && !known {
			unit, known = m[2], true
		}
		switch {
		case known:
			e.Hint = "write " + n + unit
		case m[2] == "":
			e.Hint = fmt.Sprintf("the unit is missing: write %ss, %sm or %sh", n, n, n)
		}
	}
	return e
}
