package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive/driver"
)

var (
	poolMax         = desc("redrive_store_connections_max", "Connections that the pool of the store may open.")
	poolOpen        = desc("redrive_store_connections", "Connections that the pool of the store has open.", "state")
	poolWaits       = desc("redrive_store_connection_waits_total", "How often a connection of the store had to be waited for.")
	poolWaited      = desc("redrive_store_connection_wait_seconds_total", "How long connections of the store were waited for.")
	statements      = desc("redrive_store_statement_duration_seconds", "How long statements or transactions of the store took.", "statement")
	statementErrors = desc("redrive_store_statement_errors_total", "Statements or transactions of the store that failed because of the server or the way to it.", "statement")
)

// StoreStats collects what a store tells of its own work. It is safe for concurrent
// use if the store's Stats is.
type StoreStats struct{ of driver.StatsStore }

// NewStoreStats returns a collector that asks the store at each scrape.
func NewStoreStats(of driver.StatsStore) *StoreStats { return &StoreStats{of} }

// Describe implements prometheus.Collector.
func (s *StoreStats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolMax, poolOpen, poolWaits, poolWaited, statements, statementErrors} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *StoreStats) Collect(ch chan<- prometheus.Metric) {
	stats := s.of.Stats()
	p := &stats.Pool
	gauge(ch, poolMax, float64(p.Max))
	gauge(ch, poolOpen, float64(p.InUse), "used")
	gauge(ch, poolOpen, float64(p.Idle), "idle")
	// Those that are being opened or closed are neither.
	gauge(ch, poolOpen, float64(max(p.Open-p.InUse-p.Idle, 0)), "changing")
	ch <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(p.Waits))
	ch <- prometheus.MustNewConstMetric(poolWaited, prometheus.CounterValue, p.Waited.Seconds())
	bounds := driver.StatementBounds()
	for i := range stats.Statements {
		one := &stats.Statements[i]
		// The count is the sum of the buckets, so that a statement which ends during
		// the scrape does not make them differ.
		var count uint64
		buckets := make(map[float64]uint64, len(bounds))
		for at, n := range one.Buckets {
			count += uint64(max(n, 0))
			if at < len(bounds) {
				buckets[bounds[at].Seconds()] = count
			}
		}
		ch <- prometheus.MustNewConstMetric(statementErrors, prometheus.CounterValue, float64(one.Errors), one.Name)
		ch <- prometheus.MustNewConstHistogram(statements, count, one.Total.Seconds(), buckets, one.Name)
	}
}
