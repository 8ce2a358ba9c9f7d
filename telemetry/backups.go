package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	backupNewest = desc("redrive_backup_newest_timestamp_seconds", "When the newest backup that is whole was begun, in seconds since 1970; absent where there is none.")
	backupFailed = desc("redrive_backup_failed", "Whether the newest try to make a backup failed: 1 or 0.")
)

// Backups collects the metrics of backups.
type Backups struct {
	status func() (newest time.Time, failed bool)
}

// NewBackups returns a collector that asks for the state at each scrape.
func NewBackups(status func() (newest time.Time, failed bool)) *Backups { return &Backups{status} }

// Describe implements prometheus.Collector.
func (b *Backups) Describe(ch chan<- *prometheus.Desc) {
	ch <- backupNewest
	ch <- backupFailed
}

// Collect implements prometheus.Collector.
func (b *Backups) Collect(ch chan<- prometheus.Metric) {
	newest, failed := b.status()
	if !newest.IsZero() {
		gauge(ch, backupNewest, float64(newest.Unix()))
	}
	value := 0.0
	if failed {
		value = 1
	}
	gauge(ch, backupFailed, value)
}
