package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Bounds of a breakerGate.
const (
	breakerKeys   = 256         // kinds it watches at once
	probeIDs      = 8           // messages probed recently that another probe avoids
	probeDeadline = time.Minute // a probe not reported by then is given up
)

// breakerGate keeps one breaker a target or kind of a queue. A breaker opens when
// within the window at least MinAttempts attempts of at least MinMessages messages
// succeeded or failed, the share of them failed, and none of the last LastFailed succeeded;
// see judge for what a failure is. While
// it is open, one message at a time is claimed as a probe. One probe that succeeds
// closes it: the slots, which are filled as they come free, make for a gentle start.
//
// It locks for itself, because its status is read from outside.
type breakerGate struct {
	o        BreakerOptions
	target   string
	onChange func(BreakerStatus) // may be nil

	mu   sync.Mutex
	keys map[string]*breaker
	open []*breaker
	// A probe by kind that found nothing in a lane holds back the next one there, so
	// that probes do not keep the other kinds waiting.
	probeLane redrive.Lane // of the last probe granted
	holdUntil [driver.Lanes]time.Time
	refusals  refusals
}

// refusals notices that every delivery of a queue is refused for its message, as after the
// deploy of a receiver that no longer takes what is sent.
type refusals struct {
	since time.Time // of the first since anything else
	n     int
}

// Refusals of so many messages over such a time, and nothing else between, are reported.
const (
	minRefusals  = 10
	refusalsLast = time.Minute
)

func (r *refusals) report(now time.Time, how endedHow) {
	switch how {
	case endedSuccess, endedFailed:
		*r = refusals{}
	case endedRefused:
		if r.n == 0 {
			r.since = now
		}
		r.n++
	}
}

// allRefusedSince returns since when every delivery was refused for its message; zero if
// that is not so, or not for a minute yet.
func (g *breakerGate) allRefusedSince(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusals.n < minRefusals || now.Sub(g.refusals.since) < refusalsLast {
		return time.Time{}
	}
	return g.refusals.since
}

func newBreakerGate(o BreakerOptions, target string) *breakerGate {
	return &breakerGate{o: o.withDefaults(), target: target, keys: make(map[string]*breaker)}
}

// configure replaces options and target. What was learned of another target, or by
// other rules, is forgotten.
func (g *breakerGate) configure(o BreakerOptions, target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o = o.withDefaults(); o != g.o || target != g.target {
		g.forget(o, target)
	}
}

// renew replaces options and target, and forgets what was learned, as another handler delivers.
func (g *breakerGate) renew(o BreakerOptions, target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(o.withDefaults(), target)
}

func (g *breakerGate) forget(o BreakerOptions, target string) {
	g.o, g.target, g.open, g.holdUntil, g.refusals = o, target, nil, [driver.Lanes]time.Time{}, refusals{}
	clear(g.keys)
}

// Reserve implements Gate.
func (g *breakerGate) Reserve(now time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) == 0 || a.Max <= 0 {
		return driver.Grant{N: max(a.Max, 0)}
	}
	due, next := g.probesDue(now, a.Lane)
	switch {
	case len(due) > 0:
		return g.grantProbe(now, a.Lane, due)
	case g.target != "":
		return driver.Grant{Until: next, Reason: "breaker open: " + g.open[0].reason}
	}
	grant := driver.Grant{N: a.Max, Until: next, ExceptKinds: make([]string, len(g.open))}
	for i, b := range g.open {
		grant.ExceptKinds[i] = b.key
	}
	return grant
}

// probesDue returns the open breakers that may be probed from a lane now, and when
// the next of the others may.
func (g *breakerGate) probesDue(now time.Time, l redrive.Lane) (due []*breaker, next time.Time) {
	for _, b := range g.open {
		at := b.probeAt
		if b.probing && !now.Before(b.probeEnds) {
			b.probing = false // it was lost on the way
		}
		if b.probing {
			at = b.probeEnds
		} else if g.target == "" && at.Before(g.holdUntil[l]) {
			at = g.holdUntil[l]
		}
		switch {
		case !now.Before(at):
			due = append(due, b)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return due, next
}

// grantProbe lets one message be claimed as a probe of one of the breakers.
func (g *breakerGate) grantProbe(now time.Time, l redrive.Lane, due []*breaker) driver.Grant {
	g.probeLane = l
	grant := driver.Grant{N: 1, Until: now.Add(g.o.ProbeMin), Reason: "breaker open: " + due[0].reason}
	for _, b := range due {
		b.probing, b.probe, b.probeEnds = true, "", now.Add(max(probeDeadline, g.o.ProbeMax))
		if g.target == "" {
			grant.Kinds = append(grant.Kinds, b.key)
			grant.Until = now // the other kinds need not wait for the probe
		}
		for _, id := range b.recent {
			if id != "" {
				grant.ExceptIDs = append(grant.ExceptIDs, id)
			}
		}
	}
	return grant
}

// probed returns the breakers whose probe a grant was, and who does not know yet
// which message it is.
func (g *breakerGate) probed(grant *driver.Grant) (all []*breaker) {
	for _, b := range g.open {
		if b.probing && b.probe == "" && (g.target != "" || slices.Contains(grant.Kinds, b.key)) {
			all = append(all, b)
		}
	}
	return all
}

// Return implements Gate. A probe that found nothing does not use up its interval.
func (g *breakerGate) Return(now time.Time, grant driver.Grant, unused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if unused <= 0 || len(g.open) == 0 {
		return
	}
	for _, b := range g.probed(&grant) {
		b.probing = false
		clear(b.recent) // if nothing else waits, one of them again
		g.holdUntil[g.probeLane] = now.Add(g.o.ProbeMin / 4)
	}
}

// claimed tells what a grant was used for, so that the gate knows its probe.
func (g *breakerGate) claimed(grant driver.Grant, ds []redrive.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(ds) == 0 || len(g.open) == 0 {
		return
	}
	for _, b := range g.probed(&grant) {
		if b.key == g.key(&ds[0]) {
			b.setProbe(ds[0].ID)
		} else {
			b.probing = false // a message of another kind was taken
		}
	}
}

// Report implements Gate.
func (g *breakerGate) Report(now time.Time, d *redrive.Delivery, s *driver.Settlement) {
	if changed := g.report(now, d, judge(s)); changed.State != "" && g.onChange != nil {
		g.onChange(changed)
	}
}

// report returns the new status if the breaker opened or closed.
func (g *breakerGate) report(now time.Time, d *redrive.Delivery, how endedHow) (changed BreakerStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusals.report(now, how)
	if g.o.Off {
		return BreakerStatus{}
	}
	b := g.breaker(g.key(d))
	switch {
	case b == nil:
	case b.opened:
		if why := b.reportOpen(&g.o, now, d.ID, how); why != "" {
			g.open = slices.DeleteFunc(g.open, func(o *breaker) bool { return o == b })
			b.change(false, now, why)
			return b.status()
		}
	case how == endedSuccess || how == endedFailed:
		if why := b.record(&g.o, now, d.ID, how); why != "" {
			g.open = append(g.open, b)
			b.change(true, now, why)
			b.interval, b.probeAt = g.o.ProbeMin, now.Add(g.o.ProbeMin)
			b.avoid(d.ID)
			return b.status()
		}
	}
	return BreakerStatus{}
}

// uncounted reports whether a transient failure of the delivery is recorded without
// being counted: it was in flight when its breaker opened.
func (g *breakerGate) uncounted(d *redrive.Delivery) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) == 0 {
		return false
	}
	b := g.keys[g.key(d)]
	return b != nil && b.opened && !b.isProbe(d.ID)
}

// states returns the breakers that are open or have been, by key.
func (g *breakerGate) states() []BreakerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []BreakerStatus
	for _, b := range g.keys {
		if b.reason != "" {
			all = append(all, b.status())
		}
	}
	slices.SortFunc(all, func(x, y BreakerStatus) int { return cmp.Compare(x.Key, y.Key) })
	return all
}

func (g *breakerGate) key(d *redrive.Delivery) string {
	if g.target != "" {
		return g.target
	}
	return d.Kind
}

// breaker returns the breaker of a key, made on demand. When there are too many it
// replaces the closed one that was quiet for longest; nil if all are open.
func (g *breakerGate) breaker(key string) *breaker {
	b := g.keys[key]
	if b != nil {
		return b
	}
	if len(g.keys) < breakerKeys {
		b = &breaker{messages: make([]seenMessage, g.o.MinMessages)}
	} else {
		for _, old := range g.keys {
			if !old.opened && (b == nil || old.slot < b.slot) {
				b = old
			}
		}
		if b == nil {
			return nil
		}
		delete(g.keys, b.key)
		messages := b.messages
		clear(messages)
		*b = breaker{messages: messages}
	}
	b.key = key
	g.keys[key] = b
	return b
}
