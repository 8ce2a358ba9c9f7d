package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redrive/redrive/driver"
)

var (
	diskFull = desc("redrive_store_full", "Whether the store takes no messages because its disk is full: 1 or 0.")
	diskFree = desc("redrive_store_disk_free_bytes", "Room that the store's disk has left, beside the store's own reserve; absent where the system does not say.")
	diskSize = desc("redrive_store_disk_size_bytes", "Size of the store's disk.")
)

// Disk collects the metrics of an embedded store's disk.
type Disk struct{ of driver.RoomyStore }

// NewDisk returns a collector that asks the store at each scrape.
func NewDisk(of driver.RoomyStore) *Disk { return &Disk{of} }

// Describe implements prometheus.Collector.
func (d *Disk) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{diskFull, diskFree, diskSize} {
		ch <- one
	}
}

// Collect implements prometheus.Collector.
func (d *Disk) Collect(ch chan<- prometheus.Metric) {
	full := 0.0
	if d.of.Full() != nil {
		full = 1
	}
	gauge(ch, diskFull, full)
	if free, size, err := d.of.Room(); err == nil {
		gauge(ch, diskFree, float64(free))
		gauge(ch, diskSize, float64(size))
	}
}
