package wire_test

import (
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// A cause grows while something dies of it in each of three minutes, of which this one may have
// only begun, and is quiet when nothing did for 15.
func TestWhetherACauseGrows(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 10, 0, time.UTC)
	for name, c := range map[string]struct {
		ago  []int // minutes, of a death each
		last time.Duration
		want wire.Cause
	}{
		"each of three":                     {[]int{0, 1, 2}, 0, wire.Cause{Growing: true, PerMinute: 1}},
		"each of three before this one":     {[]int{1, 2, 3, 3, 3, 3}, time.Minute, wire.Cause{Growing: true, PerMinute: 2}},
		"a minute without one":              {[]int{0, 2, 3}, 0, wire.Cause{PerMinute: 2. / 3}},
		"two minutes":                       {[]int{0, 1}, 0, wire.Cause{PerMinute: 2. / 3}},
		"one of the last 15":                {[]int{14}, 14*time.Minute + 59*time.Second, wire.Cause{}},
		"none for 15":                       {[]int{15}, 15 * time.Minute, wire.Cause{Quiet: true}},
		"one that was redriven since":       {[]int{5}, time.Hour, wire.Cause{}},
		"without a series":                  {nil, time.Minute, wire.Cause{}},
		"without a series, none for 15":     {nil, 15 * time.Minute, wire.Cause{Quiet: true}},
		"a series older than what is shown": {[]int{70}, 70 * time.Minute, wire.Cause{Quiet: true}},
	} {
		d := new(driver.Deaths)
		for _, ago := range c.ago {
			d.Buckets = append(d.Buckets, driver.DeathBucket{Start: now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute), Width: time.Minute, Count: 1})
		}
		if c.ago == nil {
			d = nil
		}
		got := wire.Cause{Last: now.Add(-c.last)}
		got.Grows(d, now)
		if got.Growing != c.want.Growing || got.Quiet != c.want.Quiet || got.PerMinute != c.want.PerMinute {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
