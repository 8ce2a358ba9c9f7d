package guard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// preset is a set of rules that suits a kind of provider.
type preset struct {
	health Health
	start  float64
	more   machine.Preset
}

var presets = map[string]preset{
	"":    {},
	"sms": {health: Health{SlowAfter: time.Second}},
	"webhook": {
		health: Health{SlowAfter: 3 * time.Second},
		more:   machine.Preset{Hold: 2 * time.Second, MaxHold: 30 * time.Second, MaxShare: 0.25},
	},
	"payment": {
		health: Health{SlowAfter: 5 * time.Second, SlowRun: 5, Consecutive: 5, NetworkErrors: 3},
		start:  0.02,
		more:   machine.Preset{Canaries: 3, MaxHold: 10 * time.Second, MaxShare: 0.25},
	},
}

// Presets returns the names that Config.Preset takes.
func Presets() []string { return slices.Sorted(maps.Keys(presets))[1:] }

// machineConfig is what a provider's machine runs under.
func (c *Config[Req, Resp]) machineConfig(p *Provider[Req, Resp]) machine.Config {
	base, h := presets[c.Preset], c.Health
	if p.Health != nil {
		h = *p.Health
	}
	h.Consecutive = cmp.Or(h.Consecutive, base.health.Consecutive)
	h.NetworkErrors = cmp.Or(h.NetworkErrors, base.health.NetworkErrors)
	h.SlowAfter = cmp.Or(h.SlowAfter, base.health.SlowAfter)
	h.SlowRun = cmp.Or(h.SlowRun, base.health.SlowRun)
	return machine.Config{Health: machine.Health(h), After: c.Exit.After, Start: cmp.Or(c.Exit.Start, base.start), Fixed: c.Pace.Fixed,
		Preset: base.more, MaxInUse: p.MaxInUse, Shared: c.Shared}
}
