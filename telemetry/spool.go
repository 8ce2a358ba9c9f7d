package telemetry

import "github.com/prometheus/client_golang/prometheus"

var (
	spoolHeld = desc("redrive_spool_messages", "Messages that were accepted and wait in the spool for the store.")
	spoolAway = desc("redrive_spool_store_away", "Whether the store could not be reached the last time: 1 or 0.")
)

// Spool collects the metrics of the spool.
type Spool struct {
	held func() int64
	away func() bool
}

// NewSpool returns a collector of what the functions tell at each scrape.
func NewSpool(held func() int64, away func() bool) *Spool { return &Spool{held: held, away: away} }

// Describe implements prometheus.Collector.
func (s *Spool) Describe(ch chan<- *prometheus.Desc) { ch <- spoolHeld; ch <- spoolAway }

// Collect implements prometheus.Collector.
func (s *Spool) Collect(ch chan<- prometheus.Metric) {
	away := 0.0
	if s.away() {
		away = 1
	}
	ch <- prometheus.MustNewConstMetric(spoolHeld, prometheus.GaugeValue, float64(s.held()))
	ch <- prometheus.MustNewConstMetric(spoolAway, prometheus.GaugeValue, away)
}
