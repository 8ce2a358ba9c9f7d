package driver_test

import (
	"testing"

	"github.com/redrive/redrive/driver"
)

type withStats struct{}

func (withStats) Stats() driver.StoreStats { return driver.StoreStats{Pool: driver.PoolStats{Max: 7}} }

type decorator struct{ of any }

func (d decorator) Unwrap() any { return d.of }

// A power is found below any number of decorators, and nothing is found in nothing.
func TestAs(t *testing.T) {
	for _, v := range []any{withStats{}, decorator{withStats{}}, decorator{decorator{withStats{}}}} {
		s, ok := driver.As[driver.StatsStore](v)
		if !ok || s.Stats().Pool.Max != 7 {
			t.Errorf("%T: found %v, %v", v, s, ok)
		}
	}
	for _, v := range []any{nil, decorator{}, decorator{nil}, 7} {
		if s, ok := driver.As[driver.StatsStore](v); ok {
			t.Errorf("%v: found %v", v, s)
		}
	}
	if s, ok := driver.As[driver.DeadLetterSink](decorator{withStats{}}); ok {
		t.Errorf("found %v", s)
	}
}
