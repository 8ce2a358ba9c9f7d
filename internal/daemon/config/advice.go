package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Advice returns what is right and may still be a surprise, a sentence each.
func (c *Config) Advice() []string {
	store, err := c.Store.Resolve()
	if err != nil || !strings.HasPrefix(store, "sqlite:") {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		if q := c.Queues[name]; q != nil && q.Source != "" {
			all = append(all, fmt.Sprintf("queue %s: several daemons may share its source only if they share a store, and this one is embedded in one daemon: "+
				"what one of them parked, or had in flight when it crashed, no other would see. For more than one, write store: postgres://..., mysql://... or redis://...", name))
		}
	}
	return all
}
