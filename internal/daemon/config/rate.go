package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is a number in a time: "3000/s", "100/m", "50/h", "1/d". The zero value
// means that there is no limit.
type Rate struct {
	Count float64
	Per   time.Duration
}

var (
	ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?/ ?([A-Za-z]+)$`)
	plainNumber = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)
	rateUnits   = map[string]time.Duration{
		"s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute, "minute": time.Minute,
		"h": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
	}
	rateNames = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}
)

// PerSecond returns the rate as a number a second; 0 means no limit.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// String returns the rate as it is written, or "" for no limit.
func (r Rate) String() string {
	if r.Per <= 0 {
		return ""
	}
	name, ok := rateNames[r.Per]
	if !ok {
		name = r.Per.String()
	}
	return strconv.FormatFloat(r.Count, 'f', -1, 64) + "/" + name
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	bad := &ValueError{What: fmt.Sprintf("%q is not a rate", text), Hint: "write a number and a unit of time, such as 50/s, 100/m or 10/h"}
	m := ratePattern.FindStringSubmatch(text)
	if m == nil {
		if plainNumber.MatchString(text) {
			bad.Hint = fmt.Sprintf("write %s/s, %s/m or %s/h", text, text, text)
		}
		return bad
	}
	per, ok := rateUnits[strings.ToLower(m[2])]
	n, err := strconv.ParseFloat(m[1], 64)
	switch {
	case !ok || err != nil || math.IsInf(n, 0):
		return bad
	case n == 0:
		bad.Hint = "a rate is above zero; to stop a queue, pause it"
		return bad
	}
	*r = Rate{Count: n, Per: per}
	return nil
}

// Percent is a share: "80%" or 0.8.
type Percent float64

// String returns the share with its sign: "80%".
func (p Percent) String() string {
	return strconv.FormatFloat(math.Round(float64(p)*1e8)/1e6, 'f', -1, 64) + "%"
}

// MarshalText implements encoding.TextMarshaler.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	bad := &ValueError{What: fmt.Sprintf("%q is not a share", text), Hint: "write a percentage between 0% and 100%, such as 80%"}
	number, signed := strings.CutSuffix(text, "%")
	number = strings.TrimSpace(number)
	if !plainNumber.MatchString(number) {
		return bad
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return bad
	}
	if signed {
		v /= 100
	} else if v >= 1 {
		bad.Hint = fmt.Sprintf("write %s%%", number)
		return bad
	}
	if v > 1 {
		return bad
	}
	*p = Percent(v)
	return nil
}
