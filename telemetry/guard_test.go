package telemetry_test

import (
	"testing"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/telemetry"
)

func TestGuards(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	g := telemetry.NewGuards(func() []telemetry.GuardReport {
		return []telemetry.GuardReport{{
			Guard: "sms",
			Providers: []guard.Stats{
				{Provider: "north", State: "down", Drain: 2, Demand: 30, InUse: 1, Refused: 9, Calls: map[string]int64{"network": 5}},
				{Provider: "south", State: "limited", Share: 1, RateCap: 70},
			},
			Totals: guard.Totals{Deferred: map[string]int64{"refused": 4}, Failovers: 3}, Tokens: map[string]int64{"team": 7},
		}}
	})
	m.Registry().MustRegister(g)
	g.Observe(&guard.Event{Guard: "sms", Provider: "north", From: guard.Healthy, To: guard.Down, Reason: "8 failures in a row"})
	g.Observe(&guard.Event{Guard: "sms", Reason: "refused"}) // a request that was put off: the totals have it
	want(t, scrape(t, m),
		`redrive_guard_state{guard="sms",provider="north"} 3`, `redrive_guard_state{guard="sms",provider="south"} 1`,
		`redrive_guard_share{guard="sms",provider="south"} 1`, `redrive_guard_rate_cap{guard="sms",provider="south"} 70`,
		`redrive_guard_drain_rate{guard="sms",provider="north"} 2`, `redrive_guard_demand{guard="sms",provider="north"} 30`,
		`redrive_guard_calls_in_flight{guard="sms",provider="north"} 1`, `redrive_guard_refused_total{guard="sms",provider="north"} 9`,
		`redrive_guard_calls_total{class="network",guard="sms",provider="north"} 5`,
		`redrive_guard_deferred_total{guard="sms",reason="refused"} 4`, `redrive_guard_failovers_total{guard="sms"} 3`,
		`redrive_guard_token_calls_total{guard="sms",token="team"} 7`,
		`redrive_guard_transitions_total{from="healthy",guard="sms",provider="north",to="down"} 1`,
	)
}
