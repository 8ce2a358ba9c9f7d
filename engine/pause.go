package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// PauseStatus is one pause of a queue.
type PauseStatus struct {
	Target string    // the target or kind; empty: the whole queue
	Reason string    // why
	Since  time.Time // since when
	Until  time.Time // until when; zero: until it is resumed
}

// pauseGate refuses what a person, or a refusal of our own, has paused.
type pauseGate struct {
	mu     sync.Mutex
	target string // of the consumer; empty: pauses are by kind
	paused map[string]PauseStatus
	asked  map[string]struct{} // those that the handler asked for
}

func newPauseGate(target string) *pauseGate {
	return &pauseGate{target: target, paused: make(map[string]PauseStatus), asked: make(map[string]struct{})}
}

// renew changes the target and what handles its messages. A pause of the target before, and one
// that the handler before asked for, say nothing about them.
func (g *pauseGate) renew(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.target != "" && target != g.target { // which stands for the whole queue
		delete(g.paused, g.target)
	}
	for paused := range g.asked {
		delete(g.paused, paused)
	}
	clear(g.asked)
	g.target = target
}

// pause refuses a target from now on. asked: its handler asked for it.
func (g *pauseGate) pause(now time.Time, target, reason string, d time.Duration, asked bool) {
	s := PauseStatus{Target: target, Reason: reason, Since: now}
	if d > 0 {
		s.Until = now.Add(d)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused[target] = s
	if delete(g.asked, target); asked {
		g.asked[target] = struct{}{}
	}
}

func (g *pauseGate) resume(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.paused, target)
}

func (g *pauseGate) status() []PauseStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []PauseStatus
	for _, target := range slices.Sorted(maps.Keys(g.paused)) {
		if s := g.paused[target]; s.Until.IsZero() || time.Now().Before(s.Until) { // Reserve removes it, when somebody asks
			all = append(all, s)
		}
	}
	return all
}

// Reserve implements Gate.
func (g *pauseGate) Reserve(now time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	grant := driver.Grant{N: a.Max}
	for target, s := range g.paused {
		switch {
		case !s.Until.IsZero() && !now.Before(s.Until):
			delete(g.paused, target)
		case target == "" || target == g.target:
			grant.N, grant.Until, grant.Reason = 0, s.Until, "paused: "+s.Reason
			return grant
		default:
			grant.ExceptKinds = append(grant.ExceptKinds, target)
		}
	}
	return grant
}

// Return implements Gate.
func (g *pauseGate) Return(time.Time, driver.Grant, int) {}

// Report implements Gate.
func (g *pauseGate) Report(time.Time, *redrive.Delivery, *driver.Settlement) {}
