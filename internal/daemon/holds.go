package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/wire"
)

// holding is what holds queues for a reason that lies outside them, read once a request.
type holding struct {
	pauses map[string]map[string]pause // by queue and target
	away   map[string]time.Time        // since when servers are away, by queue of a source; "" is the store's
	full   error
	fullAt time.Time
}

// holding reads what people paused and how the store is.
func (a *app) holding(ctx context.Context) (h holding, err error) {
	var all map[string]pause
	if a.pauses != nil {
		all = a.pauses.inForce()
	} else if all, err = readPauses(ctx, a.store); err != nil {
		return h, err
	}
	h.pauses = make(map[string]map[string]pause)
	for _, p := range all {
		if h.pauses[p.Queue] == nil {
			h.pauses[p.Queue] = make(map[string]pause)
		}
		h.pauses[p.Queue][p.Target] = p
	}
	h.away = a.outages.away()
	if of, ok := driver.As[driver.RoomyStore](a.store); ok {
		h.full, h.fullAt = of.Full(), of.FullSince()
	}
	return h, nil
}

// heldBy says what keeps messages of a queue from being delivered or accepted. Texts are shown as
// they are: [app.describe] hides what must not be seen.
func (a *app) heldBy(h *holding, q *wire.Queue, engineHolds []engine.Hold) (all []wire.Hold) {
	never := time.Time{}
	all = append(h.pausedBy(q), brokenBy(q)...)
	if since, away := h.away[q.Queue]; away {
		all = append(all, wire.HoldOf(wire.HoldSource, "", since, never, "the server of the queue's source does not answer"))
	}
	if since, away := h.away[""]; away {
		all = append(all, wire.HoldOf(wire.HoldStore, "", since, never, errStoreAway.Error()))
	}
	if h.full != nil {
		all = append(all, wire.HoldOf(wire.HoldDisk, "", h.fullAt, never, redrive.ErrFull.Error()))
	}
	if q.Level == driver.LevelRefused.String() {
		all = append(all, wire.HoldOf(wire.HoldLimit, "", never, never, "it holds as much as limits of the queue or the store allow"))
	}
	providers := a.heldProviders(q.Queue)
	all = append(all, providers...)
	for _, e := range engineHolds {
		if q.Due > 0 && (e.What != wire.HoldGuard || len(providers) == 0) { // else nothing is kept from anything
			all = append(all, wire.HoldOf(e.What, "", e.Since, e.Until, e.Reason))
		}
	}
	if q.Due > 0 && a.engine != nil && q.Engine == nil && q.Pull == nil && q.PolledAt == nil && !strings.HasPrefix(q.Queue, "_") {
		nobody := wire.HoldOf(wire.HoldNobody, "", never, never, "nobody consumes it")
		nobody.Since = q.OldestDue
		all = append(all, nobody)
	}
	if q.Blocked > 0 {
		all = append(all, wire.HoldOf(wire.HoldKeys, "", never, never, fmt.Sprintf("%d messages wait behind the first one of their key", q.Blocked)))
	}
	return all
}

// pausedBy returns what people paused, and what handlers asked for.
func (h *holding) pausedBy(q *wire.Queue) (all []wire.Hold) {
	seen := make(map[string]bool)
	for _, list := range workingPauses(q) {
		for i := range list {
			p := &list[i]
			if seen[p.Target] {
				continue
			}
			seen[p.Target] = true
			one := wire.HoldOf(wire.HoldPause, p.Target, p.Since, time.Time{}, p.Reason)
			one.By, one.Until = p.By, p.Until
			all = append(all, one)
		}
	}
	for target, p := range h.pauses[q.Queue] { // nobody consumes it here
		if !seen[target] && (p.Until.IsZero() || p.Until.After(time.Now())) {
			one := wire.HoldOf(wire.HoldPause, target, p.Since, p.Until, p.Reason)
			one.By = p.By
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b wire.Hold) int { return strings.Compare(a.Target, b.Target) })
	return all
}

// workingPauses are the pauses of whoever consumes a queue here.
func workingPauses(q *wire.Queue) (all [][]wire.Paused) {
	if q.Engine != nil {
		all = append(all, q.Engine.Paused)
	}
	if q.Pull != nil {
		all = append(all, q.Pull.Paused)
	}
	return all
}

// signPauses puts into the pauses of an engine who made them and when, which it does not know
// after a restart.
func signPauses(known map[string]pause, paused []wire.Paused) {
	for i := range paused {
		p, ok := known[paused[i].Target]
		if !ok || p.Reason != paused[i].Reason {
			continue
		}
		if paused[i].By = p.By; !p.Since.IsZero() {
			paused[i].Since = p.Since.UTC()
		}
	}
}

// brokenBy returns the breakers that are open.
func brokenBy(q *wire.Queue) (all []wire.Hold) {
	var list []wire.Breaker
	if q.Engine != nil {
		list = q.Engine.Breakers
	}
	if q.Pull != nil {
		list = append(list[:len(list):len(list)], q.Pull.Breakers...)
	}
	for i := range list {
		b := &list[i]
		if b.State != engine.BreakerClosed {
			one := wire.HoldOf(wire.HoldBreaker, b.Key, time.Time{}, time.Time{}, b.Reason)
			one.Since, one.Until = b.Since, b.NextProbe
			all = append(all, one)
		}
	}
	return all
}

// heldProviders returns the providers of a guard that are not well.
func (a *app) heldProviders(queue string) (all []wire.Hold) {
	g := a.guards[queue]
	if g == nil {
		return nil
	}
	for name, s := range g.Snapshot() {
		if s.State != guard.Healthy.String() {
			all = append(all, wire.HoldOf(wire.HoldGuard, name, s.Since, s.Until, s.State+": "+s.Reason))
		}
	}
	return all
}
