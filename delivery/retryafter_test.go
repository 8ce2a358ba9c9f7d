package delivery

import (
	"net/http"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"0", 0, true},
		{"120", 2 * time.Minute, true},
		{" 120 ", 2 * time.Minute, true},
		{"+5", 5 * time.Second, true},
		{"1.5", 1500 * time.Millisecond, true},
		{".5", 500 * time.Millisecond, true},
		{"-5", 0, true},
		{"-0.1", 0, true},
		{"3600", time.Hour, true},
		{"3601", time.Hour, true},
		{"99999999999999999999999999", time.Hour, true},
		{"1000000000000000000000000000000000000000000", time.Hour, true},
		{"Sat, 21 Nov 2026 04:00:30 GMT", 30 * time.Second, true},
		{"Saturday, 21-Nov-26 04:00:30 GMT", 30 * time.Second, true},
		{"Sat Nov 21 04:00:30 2026", 30 * time.Second, true},
		{"Sat, 21 Nov 2026 05:00:30 +0100", 30 * time.Second, true},
		{"Fri, 20 Nov 2026 04:00:00 GMT", 0, true},
		{"Sat, 21 Nov 2099 04:00:00 GMT", time.Hour, true},
		{"", 0, false},
		{"soon", 0, false},
		{"-", 0, false},
		{"--5", 0, false},
		{"1e3", 0, false},
		{"0x10", 0, false},
		{"1.2.3", 0, false},
		{".", 0, false},
		{"Inf", 0, false},
		{"NaN", 0, false},
		{"1_000", 0, false},
		{"5s", 0, false},
		{"Sat, 32 Nov 2026 04:00:30 GMT", 0, false},
	} {
		got, ok := ParseRetryAfter(c.value, now)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: got %s, %v, want %s, %v", c.value, got, ok, c.want, c.ok)
		}
	}
}

// The target's clock is an hour ahead; what counts is the difference that it means.
func TestRetryAfterUsesTheTargetsClock(t *testing.T) {
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	h := http.Header{}
	h.Set("Date", now.Add(time.Hour).Format(http.TimeFormat))
	h.Set("Retry-After", now.Add(time.Hour+10*time.Second).Format(http.TimeFormat))
	if got, ok := retryAfter(h, now); got != 10*time.Second || !ok {
		t.Errorf("got %s, %v, want 10s", got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "-1", "1.5", "1e9", "99999999999", "Sat, 21 Nov 2026 04:00:30 GMT", "Sat, 21 Nov 0001 04:00:30 GMT"} {
		f.Add(s, int64(1_795_233_600))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		d, ok := ParseRetryAfter(value, time.Unix(now%(1<<40), 0))
		if d < 0 || d > MaxRetryAfter || !ok && d != 0 {
			t.Errorf("%q at %d: %s, %v", value, now, d, ok)
		}
	})
}
