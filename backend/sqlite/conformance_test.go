package sqlite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
)

func TestConformance(t *testing.T) { backendtest.Run(t, conformance) }

// FuzzDiffer compares random batches with what the memory store answers.
func FuzzDiffer(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { backendtest.Differ(t, conformance, seed) })
	})
}

var conformance = backendtest.Factory{
	Open:   func(t testing.TB) driver.Store { return open(t, t.TempDir(), rarely) },
	Reopen: reopen,
	Crash: func(t testing.TB, s driver.Store) driver.Store {
		s.(*Store).abandon()
		return open(t, s.(*Store).dir, rarely)
	},
	Fill:    fill,
	Flip:    flip,
	Shift:   shift,
	Advance: func(d time.Duration) { <-time.After(d) },
	Around: func(t *testing.T, run func(t testing.TB)) {
		synctest.Test(t, func(t *testing.T) { run(t) })
	},
}

// rarely has a store look for its files less often than each second, as cases let years
// pass.
func rarely(s *Store) { s.every = 24 * time.Hour }

func reopen(t testing.TB, s driver.Store) driver.Store {
	noErr(t, s.Close())
	return open(t, s.(*Store).dir, rarely)
}
