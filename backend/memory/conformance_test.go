package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// TestConformance runs each case in a bubble of virtual time. The store plays the
// server that outlives its clients: a crash ends the leases, and no more.
func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Factory{
		Open: func(testing.TB) driver.Store { return memory.New() },
		Crash: func(_ testing.TB, s driver.Store) driver.Store {
			for _, instance := range backendtest.Instances {
				s.(*memory.Store).Crash(instance)
			}
			return s
		},
		Advance: advance,
		Flip:    backendtest.FlipShared,
		Around:  inBubble,
	})
}

// TestSourceConformance shows only the source and sink of a store to the suite.
func TestSourceConformance(t *testing.T) {
	type sourceSink struct {
		driver.Source
		redrive.Sink
	}
	backendtest.RunSource(t, backendtest.SourceFactory{
		Open: func(testing.TB) backendtest.SourceSink {
			s := memory.New()
			return sourceSink{s, s}
		},
		Advance: advance,
		Around:  inBubble,
	})
}

func inBubble(t *testing.T, run func(testing.TB)) {
	synctest.Test(t, func(t *testing.T) { run(t) })
}

// advance lets the bubble's clock go on.
func advance(d time.Duration) { <-time.After(d) }
