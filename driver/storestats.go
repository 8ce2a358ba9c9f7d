package driver

import "time"

// StoreStats is what a store in a database server tells of its own work, for metrics.
// A store that has it offers a method Stats() StoreStats.
type StoreStats struct {
	Pool       PoolStats
	Statements []StatementStats // in order of their names
}

// PoolStats is the state of a pool of connections.
type PoolStats struct {
	Max, Open, InUse, Idle int
	Waits                  int64         // how often a connection had to be waited for
	Waited                 time.Duration // for how long altogether
}

// StatementStats counts how long a statement or transaction took and how often it failed,
// since the store was opened.
type StatementStats struct {
	Name  string
	Count int64
	Total time.Duration
	// Errors counts those that failed because of the server or the way to it.
	Errors int64
	// Buckets counts those that took at most as long as the bound of the same place
	// in [StatementBounds], and not as short as the one before; the last is of those
	// that took longer than all.
	Buckets []int64
}

// StatementBounds returns the upper bounds of StatementStats.Buckets.
func StatementBounds() []time.Duration {
	return []time.Duration{
		500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
		25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 10 * time.Second,
	}
}
