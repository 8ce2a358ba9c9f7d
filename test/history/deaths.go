package history

import (
	"fmt"
	"slices"
	"time"
)

// dropWaiting is the action of a plan that drops what waits; all others change dead letters.
const dropWaiting = "drop waiting"

// alive are the signs that a message was not dead.
func alive(e *Event) bool { return e.Op == OpDeliver || e.Op == OpClaim }

// dead are the signs that it was, while the call ran.
func dead(e *Event) bool {
	return e.Answer == OK && (is(OpSettle, Dead)(e) || is(OpLook, Dead)(e) || e.Op == OpEdit)
}

// byPlan returns the plans of an action that changed the message, or may have.
func (v *view) byPlan(m *message, action string, outcomes ...string) (list []planned1) {
	for _, r := range v.planResults(m) {
		if r.plan.Action == action && r.Outcome != "refused" && (len(outcomes) == 0 || slices.Contains(outcomes, r.Outcome)) {
			list = append(list, r)
		}
	}
	return list
}

// dropped finds claims and deliveries of what had been dropped. What a plan drops was dead
// from before the plan was made until then, unless a clock that went back let the plan take what died
// later. A source may deliver again what it has.
func dropped(v *view, m *message) (all []Violation) {
	after := func(d *Event) {
		for _, e := range m.some(alive) {
			of := e.Op == OpDeliver && (v.foreign(m) || v.stray(d.End, e.Begin))
			if e.Begin > d.End && !of && !(d.Op == OpPlan && v.happened(d.Begin, ever, MoveClock)) {
				all = append(all, m.broken("what was dropped is gone", "it came later", d, e))
			}
		}
	}
	for _, d := range m.some(is(OpDrop)) {
		if d.Answer == OK {
			after(d)
		}
	}
	for _, r := range v.byPlan(m, "drop", Dropped) {
		if made := v.plans[r.plan.ID]; made != nil && made.Answer == OK && made.Action != dropWaiting {
			after(made)
		}
	}
	return all
}

// uncaused finds messages that are dead, or were, more often than anything may have killed
// them: a settlement that was refused kills nobody.
func uncaused(v *view, m *message) (all []Violation) {
	if m.copies() > 1 {
		return nil
	}
	judge := func(deaths int, at time.Duration, shown ...*Event) {
		receipts := map[string]bool{}
		possible := 0
		for _, e := range m.events {
			switch {
			case e.Begin >= at:
			case is(OpDeliver, Dead)(e):
				possible++
			case is(OpSettle, Dead)(e) && e.Answer != Refused && !receipts[e.Receipt]:
				receipts[e.Receipt] = true
				possible++
			}
		}
		if possible < deaths {
			all = append(all, m.broken("nothing dies without a cause", fmt.Sprintf("it died %d times, and %d may have killed it", deaths, possible), shown...))
		}
	}
	for _, e := range m.some(is(OpLook, Dead)) {
		judge(e.Redrives+1, e.End, e)
	}
	for _, l := range m.left {
		if l.State == Dead {
			judge(l.Redrives+1, ever)
		}
	}
	return all
}

// planned finds messages that were redriven more often than plans say they did it, and
// those that a plan took although they died after it was made.
func planned(v *view, m *message) (all []Violation) {
	for _, r := range v.planResults(m) {
		made := v.plans[r.plan.ID]
		if r.Outcome == "refused" || made == nil || made.Answer != OK || made.Action == dropWaiting {
			continue
		}
		died := m.some(func(e *Event) bool { return is(OpDeliver, Dead)(e) || is(OpSettle, Dead)(e) })
		// The cutoff is a time of the store's clock: one that jumped has others die before it.
		if len(died) == 0 || died[0].Begin >= made.End && !v.happened(made.Begin, ever, MoveClock) {
			all = append(all, m.broken("a plan takes what had died before it", "nothing had killed it when the plan was made", made))
		}
	}
	by := len(v.byPlan(m, "redrive"))
	most, at := 0, []*Event(nil)
	for _, e := range m.some(func(e *Event) bool { return e.Op == OpClaim || e.Op == OpLook }) {
		if n := max(e.Redrives, e.Generation); n > most {
			most, at = n, []*Event{e}
		}
	}
	for _, l := range m.left {
		most = max(most, l.Redrives, l.Generation)
	}
	if n, shown := v.revived(m); n > most {
		most, at = n, shown
	}
	if most > by {
		all = append(all, m.broken("a plan redrives a message once", fmt.Sprintf("%d plans redrove it, and it was redriven %d times", by, most), at...))
	}
	return all
}

// revived counts how often a message was delivered or claimed that had been dead, with the
// events that show it. A source may deliver again what became a dead letter.
func (v *view) revived(m *message) (n int, shown []*Event) {
	if m.copies() > 1 || v.foreign(m) {
		return 0, nil
	}
	lived := time.Duration(-1)
	for _, d := range m.some(dead) {
		if d.Begin <= lived {
			continue
		}
		for _, e := range m.some(alive) {
			if e.Begin > d.End && !v.stray(d.Begin, e.Begin) {
				n, lived, shown = n+1, e.Begin, append(shown, d, e)
				break
			}
		}
	}
	return n, shown
}

// skipped finds dead letters that a plan for all of their queue left out: dead when it was
// made, and touched by nobody else.
func skipped(v *view, m *message) (all []Violation) {
	sure := m.some(dead)
	results := v.planResults(m)
	if len(sure) == 0 || m.any(func(e *Event) bool { return e.Op == OpDrop && e.Answer != Refused }) {
		return nil
	}
	d := sure[0]
	if m.any(func(e *Event) bool { return alive(e) && e.End > d.Begin }) {
		return nil
	}
	for i := range v.Final.Plans {
		p := &v.Final.Plans[i]
		made := v.plans[p.ID]
		if made == nil || made.Answer != OK || made.Queue != m.queue || made.Action != p.Action || p.State != "done" || made.Begin <= d.End {
			continue
		}
		others := slices.ContainsFunc(results, func(r planned1) bool { return r.Outcome != "refused" })
		if !others && !slices.ContainsFunc(results, func(r planned1) bool { return r.plan == p }) && !v.happened(d.Begin, made.End, MoveClock, PowerLoss) {
			all = append(all, m.broken("a plan takes all that match", "plan "+p.ID+" left it out", d, made))
		}
	}
	return all
}
