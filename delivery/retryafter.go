package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest time that a target may ask us to wait.
const MaxRetryAfter = time.Hour

// ParseRetryAfter returns how long a Retry-After header asks to wait from now: as
// seconds, also fractional ones, or as a date in one of the forms of HTTP or of mail.
// What lies in the past is 0, what is longer than [MaxRetryAfter] is cut to it. It
// reports false for what is neither.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if d, ok := parseSeconds(value); ok {
		return d, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		at, err = time.Parse(time.RFC1123Z, value)
	}
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}

// parseSeconds reads digits with an optional sign and fraction; unlike ParseFloat it
// takes no exponents, hexadecimal or names.
func parseSeconds(s string) (time.Duration, bool) {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(digits, 64)
	if err != nil && seconds == 0 { // out of range is infinite, which is cut
		return 0, false
	}
	if s[0] == '-' {
		return 0, true
	}
	return time.Duration(min(seconds, MaxRetryAfter.Seconds()) * float64(time.Second)), true
}

// retryAfter reads the header of an answer. A date is compared with the answer's own
// Date where it has one, as the target's clock may differ from ours.
func retryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	value := header.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return ParseRetryAfter(value, now)
}
