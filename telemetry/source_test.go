package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/telemetry"
)

// fixed is a source that returns what the test says.
type fixed struct {
	stats driver.SourceStats
	err   error
}

func (s fixed) SourceStats(context.Context) (driver.SourceStats, error) { return s.stats, s.err }

func TestSourceStats(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	by := map[string]driver.StatsSource{
		"orders": fixed{stats: driver.SourceStats{Lag: 7, Buffered: 5, Unacked: 3, Uncommitted: 2, Dead: 1, Reconnects: 4, OldestUnacked: 90 * time.Second}},
		"mail":   fixed{stats: driver.SourceStats{Lag: driver.Unknown, Dead: driver.Unknown, Uncommitted: driver.Unknown, OldestUnacked: driver.Unknown}},
		"sms":    fixed{err: errors.New("no broker")},
	}
	m.Registry().MustRegister(telemetry.NewSourceStats(func() map[string]driver.StatsSource { return by }))
	text := scrape(t, m)
	want(t, text,
		`redrive_source_up{queue="orders"} 1`, `redrive_source_lag_messages{queue="orders"} 7`,
		`redrive_source_messages{queue="orders",state="buffered"} 5`, `redrive_source_messages{queue="orders",state="unacked"} 3`,
		`redrive_source_messages{queue="orders",state="uncommitted"} 2`, `redrive_source_dead_letters{queue="orders"} 1`,
		`redrive_source_reconnects_total{queue="orders"} 4`, `redrive_source_messages{queue="mail",state="unacked"} 0`,
		`redrive_source_oldest_unacked_age_seconds{queue="orders"} 90`, `redrive_source_up{queue="sms"} 0`,
	)
	for _, none := range []string{`redrive_source_lag_messages{queue="mail"}`, `redrive_source_messages{queue="mail",state="uncommitted"}`, `redrive_source_messages{queue="sms"`, `redrive_source_oldest_unacked_age_seconds{queue="mail"}`} {
		if strings.Contains(text, none) {
			t.Errorf("what is not known is exported: %s", none)
		}
	}
}
