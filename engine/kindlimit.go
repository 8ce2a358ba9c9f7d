package engine

// kindRoomLocked bounds a claim of n by the room of kinds that have a limit of their own
// ([redrive.WithConcurrency]), as all of it might be of one kind. Kinds without room are
// not to be claimed; there is no room at all at a source that cannot leave them out.
func (c *consumer) kindRoomLocked(f *feed, o *consumerConfig, n int) (room int, full []string) {
	for i := range o.policies.limits {
		l := &o.policies.limits[i]
		if free := l.max - c.kindBusy[l.name]; free > 0 {
			n = min(n, free)
		} else {
			full = append(full, l.kinds...)
		}
	}
	if len(full) > 0 && !f.caps.Filters {
		return 0, nil
	}
	return n, full
}

// enterLimitLocked counts an attempt for the limit of its kind.
func (c *consumer) enterLimitLocked(a *attempt) {
	if a.limit = a.o.policies.limit(a.d.Kind); a.limit == nil {
		return
	}
	if c.kindBusy == nil {
		c.kindBusy = make(map[string]int)
	}
	c.kindBusy[a.limit.name]++
}

// leaveLimitLocked takes an attempt from its limit. What was not claimed because of it
// is looked for again.
func (c *consumer) leaveLimitLocked(a *attempt) {
	l := a.limit
	if l == nil {
		return
	}
	c.kindBusy[l.name]--
	if c.kindBusy[l.name] < l.max-1 {
		return // there was room before
	}
	for _, f := range c.feeds {
		f.refresh, f.empty, f.wait = true, 0, 0
	}
}
