package guard

import "time"

// Preset is a set of rules that suits a kind of provider.
type Preset struct {
	Health Health
	Exit   Exit
	Pace   Pace
}

// Presets returns the presets by name: "sms", "webhook" and "payment". The defaults
// suit any other HTTP API.
//
//   - sms: many short calls; a call is slow after a second.
//   - webhook: receivers of all kinds; a call is slow after three seconds, one
//     that is down is left alone for longer, and gets its backlog back more gently.
//   - payment: few calls that matter; it is slow after five seconds, trips after
//     five failures in a row, and comes back in smaller steps.
func Presets() map[string]Preset {
	return map[string]Preset{
		"sms": {Health: Health{SlowAfter: time.Second}},
		"webhook": {
			Health: Health{SlowAfter: 3 * time.Second},
			Exit:   Exit{Hold: 2 * time.Second, MaxHold: 30 * time.Second},
			Pace:   Pace{MaxShare: 0.25},
		},
		"payment": {
			Health: Health{SlowAfter: 5 * time.Second, SlowRun: 5, Consecutive: 5, NetworkErrors: 3},
			Exit:   Exit{Canaries: 3, Start: 0.02, MaxHold: 10 * time.Second},
			Pace:   Pace{MaxShare: 0.25},
		},
	}
}
