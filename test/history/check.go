package history

import (
	"fmt"
	"slices"
	"time"
)

// Check returns every promise that the history shows broken.
func Check(h *History) (all []Violation) {
	v := look(h)
	for _, m := range v.sorted() {
		for _, check := range []func(*view, *message) []Violation{
			lost, phantom, twice, settledTwice, cameBack, staleHolder, heldTwice, atOnce, dropped, edits, falseResult, uncaused, planned, skipped,
		} {
			all = append(all, check(v, m)...)
		}
	}
	all = append(all, order(v)...)
	all = append(all, plans(v)...)
	all = append(all, ledger(v)...)
	all = append(all, exits(v)...)
	all = append(all, copied(h)...)
	for _, p := range h.Final.Problems {
		all = append(all, Violation{Promise: "goes on", Text: p})
	}
	return all
}

// is returns a condition: these operations with one of these outcomes.
func is(op Op, outcomes ...string) func(*Event) bool {
	return func(e *Event) bool { return e.Op == op && (len(outcomes) == 0 || slices.Contains(outcomes, e.Outcome)) }
}

func (m *message) acknowledged() bool {
	return m.any(func(e *Event) bool { return e.Op == OpPublish && e.Answer == OK })
}

// possible reports that a publish may have stored the message.
func (m *message) possible() bool {
	return m.any(func(e *Event) bool { return e.Op == OpPublish && e.Answer != Refused })
}

// copies is how many of it there may be: a publish whose answer was lost and that was sent
// again without an id is another message for everybody but us.
func (m *message) copies() int {
	n := len(m.some(func(e *Event) bool { return e.Op == OpPublish && e.Answer == Unknown && e.ID == "" }))
	if m.acknowledged() {
		n++
	}
	return max(1, n)
}

// mayBeDone reports that a receiver took it, or that a worker may have settled it as done.
func (m *message) mayBeDone() bool {
	return m.any(func(e *Event) bool {
		return is(OpDeliver, Done)(e) || is(OpSettle, Done)(e) && e.Answer != Refused
	})
}

// mayBeDropped reports that an operator or a plan dropped it, or may have.
func (v *view) mayBeDropped(m *message) bool {
	return v.wasDropped(m) || m.any(func(e *Event) bool { return e.Op == OpDrop && e.Answer == Unknown }) ||
		slices.ContainsFunc(v.planResults(m), func(r planned1) bool {
			return r.plan.Action == "drop" && (r.Outcome == "pending" || r.Outcome == "gone")
		})
}

func (v *view) wasDropped(m *message) bool {
	return m.any(func(e *Event) bool { return e.Op == OpDrop && e.Answer == OK }) ||
		slices.ContainsFunc(v.planResults(m), func(r planned1) bool { return r.plan.Action == "drop" && r.Outcome == Dropped })
}

// planned1 is one message's part in a plan.
type planned1 struct {
	plan *PlanEnd
	PlanResult
}

func (v *view) planResults(m *message) (list []planned1) {
	for i := range v.Final.Plans {
		p := &v.Final.Plans[i]
		for _, r := range p.Results {
			if r.Queue == m.queue && (r.ID == m.id || v.labels[r.Queue+"/"+r.ID] == m.label) {
				list = append(list, planned1{p, r})
			}
		}
	}
	return list
}

func lost(v *view, m *message) []Violation {
	if !m.acknowledged() || len(m.left) > 0 || m.mayBeDone() || v.mayBeDropped(m) {
		return nil
	}
	return []Violation{m.broken("nothing acknowledged is lost", "it was acknowledged, nobody ended it, and it is not there")}
}

// phantom finds messages that were refused and are there all the same, and bodies that
// nobody sent.
func phantom(_ *view, m *message) (all []Violation) {
	if !m.possible() && (len(m.left) > 0 || m.any(func(e *Event) bool { return e.Op != OpPublish })) {
		all = append(all, m.broken("what was refused is not stored", "no publish of it can have succeeded"))
	}
	if changed := m.some(func(e *Event) bool { return e.Garbled }); len(changed) > 0 {
		all = append(all, m.broken("a body stays as it is", "it came with another body", changed...))
	}
	for _, l := range m.left {
		if l.Garbled {
			all = append(all, m.broken("a body stays as it is", "it is there with another body"))
		}
	}
	return all
}

// twice finds what is there more than once, or although it ended.
func twice(v *view, m *message) (all []Violation) {
	ids := map[string]bool{}
	for _, l := range m.left {
		ids[l.ID] = true
	}
	if len(m.left) > min(len(ids), m.copies()) {
		all = append(all, m.broken("a message is in one place", fmt.Sprintf("it is there %d times: %+v", len(m.left), m.left)))
	}
	ended := m.some(func(e *Event) bool { return is(OpSettle, Done)(e) && e.Answer == OK })
	if len(m.left) > 0 && len(ended) > 0 {
		all = append(all, m.broken("what was settled is gone", "it was settled as done and is "+m.left[0].State, ended...))
	}
	if len(m.left) > 0 && v.wasDropped(m) && m.copies() == 1 {
		all = append(all, m.broken("what was dropped is gone", "it was dropped and is "+m.left[0].State))
	}
	return all
}

// edits finds bodies from before an edit that had been acknowledged, and those of edits
// that were refused.
func edits(v *view, m *message) (all []Violation) {
	known := m.some(is(OpEdit))
	judge := func(rev int, at time.Duration, now bool, shown ...*Event) {
		least, why, may := 0, (*Event)(nil), rev == 0
		for _, e := range known {
			if e.Answer == OK && e.End < at && e.Rev > least {
				least, why = e.Rev, e
			}
			may = may || e.Rev == rev && e.Answer != Refused
		}
		// One whose answer was lost may be carried out late, over one that came after it.
		late := slices.ContainsFunc(known, func(e *Event) bool { return e.Rev == rev && e.Answer == Unknown })
		switch {
		case !may:
			all = append(all, m.broken("a refused edit changes nothing", fmt.Sprintf("it shows edit %d", rev), shown...))
		case rev < least && !late && now:
			all = append(all, m.broken("an edit is kept", fmt.Sprintf("it shows edit %d after %d", rev, least), append(shown, why)...))
		}
	}
	for _, e := range m.events {
		if m.copies() == 1 && (e.Op == OpClaim || e.Op == OpLook || e.Op == OpDeliver) {
			// A source may deliver what it has, and whoever lost a claim what it got.
			judge(e.Rev, e.Begin, e.Op != OpDeliver || !v.foreign(m) && !v.stray(e.Begin, e.Begin), e)
		}
	}
	for _, l := range m.left {
		if m.copies() == 1 {
			judge(l.Rev, ever, true)
		}
	}
	return all
}

// falseResult finds sessions that received a success that nobody saw.
func falseResult(_ *view, m *message) (all []Violation) {
	for _, r := range m.some(is(OpResult, Done)) {
		if !m.any(func(e *Event) bool { return is(OpDeliver, Done)(e) && e.Begin <= r.Begin }) {
			all = append(all, m.broken("a result is true", "its session received that it is done", r))
		}
	}
	return all
}

// starting is how long a daemon may take to find out that it cannot start.
const starting = 15 * time.Second

// unstartable are faults that keep a daemon from starting, those of a source's server among them.
var unstartable = []Kind{KillServer, StopServer, CutLink, DeafLink, FullDisk}

// exits finds daemons that ended by themselves. They may where the disk fails, and where
// the store or a source is not there when they start.
func exits(v *view) (all []Violation) {
	for i := range v.Events {
		e := &v.Events[i]
		if e.Op != OpExit || v.happened(e.End-slack, e.End+slack, PowerLoss) ||
			e.End-e.Begin < starting && slices.ContainsFunc(v.faults, func(f *Event) bool { return f.touches(e.Begin, e.End, unstartable) }) {
			continue
		}
		all = append(all, Violation{Promise: "goes on", ID: e.By, Text: "it ended by itself", Events: []Event{*e}})
	}
	return all
}

// copied finds what a copy of the store lacks, or has besides.
func copied(h *History) (all []Violation) {
	if h.Final.Copied == nil {
		return nil
	}
	stored := func(l Left) bool { return l.State == Dead || !slices.Contains(h.Foreign, l.Queue) }
	have := map[Left]int{}
	for _, l := range h.Final.Copied {
		have[l]++
	}
	for _, l := range h.Final.Left {
		if have[l]--; have[l] < 0 && stored(l) {
			all = append(all, Violation{Promise: "a copy has all that is left", Queue: l.Queue, ID: l.ID, Text: fmt.Sprintf("the copy has no %+v", l)})
		}
	}
	for _, l := range h.Final.Copied {
		if have[l]--; have[l] >= 0 {
			all = append(all, Violation{Promise: "a copy has all that is left", Queue: l.Queue, ID: l.ID, Text: fmt.Sprintf("only the copy has %+v", l)})
		}
	}
	return all
}
