package config

import (
	"slices"
	"time"

	"github.com/redrive/redrive"
)

// backoffKeys are the keys that apply to each type of backoff.
var backoffKeys = map[string][]string{
	"exponential":  {"base", "multiplier", "max", "jitter", "spread"},
	"decorrelated": {"base", "max"},
	"fixed":        {"interval"},
	"schedule":     {"delays"},
}

// set returns the keys that have a value.
func (b *Backoff) set() []string {
	var keys []string
	for key, there := range map[string]bool{
		"base": b.Base != 0, "multiplier": b.Multiplier != 0, "max": b.Max != 0, "jitter": b.Jitter != redrive.JitterFull,
		"spread": b.Spread != 0, "interval": b.Interval != 0, "delays": len(b.Delays) > 0,
	} {
		if there {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// kind is the type with its default.
func (b *Backoff) kind() string {
	if b.Type == "" {
		return "exponential"
	}
	return b.Type
}

func (b *Backoff) convert() redrive.Backoff {
	switch b.kind() {
	case "fixed":
		return redrive.Fixed{Interval: b.Interval.Std()}
	case "decorrelated":
		return redrive.Decorrelated{Base: b.Base.Std(), Max: b.Max.Std()}
	case "schedule":
		delays := make([]time.Duration, len(b.Delays))
		for i, d := range b.Delays {
			delays[i] = d.Std()
		}
		return redrive.Schedule(delays)
	}
	return redrive.Exponential{Base: b.Base.Std(), Multiplier: b.Multiplier, Max: b.Max.Std(), Jitter: b.Jitter, Spread: b.Spread.Std()}
}
