package telemetry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive/driver"
)

// sourceTimeout is how long a scrape waits for a broker's answer.
const sourceTimeout = 2 * time.Second

var (
	sourceUp         = desc("redrive_source_up", "1 if the source of the queue answered at this scrape.", "queue")
	sourceLag        = desc("redrive_source_lag_messages", "Messages at the broker that no consumer of ours has taken.", "queue")
	sourceMessages   = desc("redrive_source_messages", "Messages of the source in flight in this process.", "queue", "state")
	sourceOldest     = desc("redrive_source_oldest_unacked_age_seconds", "How long the message of the source has been in flight that has been so longest; 0 if none is.", "queue")
	sourceDead       = desc("redrive_source_dead_letters", "Native dead letters at the broker.", "queue")
	sourceReconnects = desc("redrive_source_reconnects_total", "How often the connection to the broker was made anew.", "queue")
)

// SourceStats collects what sources tell of themselves. It is safe for concurrent use.
type SourceStats struct {
	by func() map[string]driver.StatsSource
}

// NewSourceStats returns a collector that asks the sources that there are at each scrape, by the
// names of their queues, all at the same time and for at most 2 s.
func NewSourceStats(by func() map[string]driver.StatsSource) *SourceStats { return &SourceStats{by} }

// Describe implements prometheus.Collector.
func (s *SourceStats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sourceUp, sourceLag, sourceMessages, sourceOldest, sourceDead, sourceReconnects} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *SourceStats) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	var wg sync.WaitGroup
	by := s.by()
	for _, queue := range slices.Sorted(maps.Keys(by)) {
		wg.Go(func() { collectSource(ctx, ch, queue, by[queue]) })
	}
	wg.Wait()
}

func collectSource(ctx context.Context, ch chan<- prometheus.Metric, queue string, of driver.StatsSource) {
	stats, err := of.SourceStats(ctx)
	if err != nil {
		gauge(ch, sourceUp, 0, queue)
		return
	}
	gauge(ch, sourceUp, 1, queue)
	known := func(d *prometheus.Desc, n int64, labels ...string) {
		if n != driver.Unknown {
			gauge(ch, d, float64(n), labels...)
		}
	}
	known(sourceLag, stats.Lag, queue)
	known(sourceMessages, stats.Buffered, queue, "buffered")
	known(sourceMessages, stats.Unacked, queue, "unacked")
	known(sourceMessages, stats.Uncommitted, queue, "uncommitted")
	if stats.OldestUnacked != driver.Unknown {
		gauge(ch, sourceOldest, stats.OldestUnacked.Seconds(), queue)
	}
	known(sourceDead, stats.Dead, queue)
	if stats.Reconnects != driver.Unknown {
		ch <- prometheus.MustNewConstMetric(sourceReconnects, prometheus.CounterValue, float64(stats.Reconnects), queue)
	}
}
