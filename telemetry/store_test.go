package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/telemetry"
)

// work is a store that did what the test says.
type work driver.StoreStats

func (w *work) Stats() driver.StoreStats { return driver.StoreStats(*w) }

func TestStoreStats(t *testing.T) {
	buckets := make([]int64, len(driver.StatementBounds())+1)
	buckets[0], buckets[1], buckets[len(buckets)-1] = 4, 2, 1
	m := telemetry.New(telemetry.Options{})
	m.Registry().MustRegister(telemetry.NewStoreStats(&work{
		Pool:       driver.PoolStats{Max: 10, Open: 6, InUse: 3, Idle: 2, Waits: 4, Waited: 1500 * time.Millisecond},
		Statements: []driver.StatementStats{{Name: "claim", Count: 7, Total: 12 * time.Second, Errors: 3, Buckets: buckets}, {Name: "now"}},
	}))
	text := scrape(t, m)
	want(t, text,
		`redrive_store_connections_max 10`, `redrive_store_connections{state="used"} 3`, `redrive_store_connections{state="idle"} 2`,
		`redrive_store_connections{state="changing"} 1`, `redrive_store_connection_waits_total 4`, `redrive_store_connection_wait_seconds_total 1.5`,
		`redrive_store_statement_duration_seconds_bucket{statement="claim",le="0.0005"} 4`,
		`redrive_store_statement_duration_seconds_bucket{statement="claim",le="0.001"} 6`,
		`redrive_store_statement_duration_seconds_bucket{statement="claim",le="10"} 6`,
		`redrive_store_statement_duration_seconds_bucket{statement="claim",le="+Inf"} 7`,
		`redrive_store_statement_duration_seconds_sum{statement="claim"} 12`,
		`redrive_store_statement_duration_seconds_count{statement="claim"} 7`,
		`redrive_store_statement_duration_seconds_count{statement="now"} 0`,
		`redrive_store_statement_errors_total{statement="claim"} 3`, `redrive_store_statement_errors_total{statement="now"} 0`,
	)
	if text = scrape(t, telemetry.New(telemetry.Options{})); strings.Contains(text, "redrive_store_conn") {
		t.Errorf("without such a store: %s", text)
	}
}
