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
			lost, phantom, twice, settledTwice, cameBack, staleHolder, heldTwice, dropped, edits, falseResult, planned,
		} {
			all = append(all, check(v, m)...)
		}
	}
	all = append(all, order(v)...)
	all = append(all, plans(v)...)
	all = append(all, ledger(v)...)
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

// claims returns the claim of each receipt.
func (m *message) claims() map[string]*Event {
	by := map[string]*Event{}
	for _, e := range m.some(is(OpClaim)) {
		by[e.Receipt] = e
	}
	return by
}

// settledTwice finds two receipts that both ended the message in one of its generations.
func settledTwice(_ *view, m *message) (all []Violation) {
	claims := m.claims()
	ended := map[int]*Event{}
	for _, e := range m.some(is(OpSettle, Done, Dead)) {
		c := claims[e.Receipt]
		if c == nil || e.Answer != OK {
			continue
		}
		if first := ended[c.Generation]; first != nil && first.Receipt != e.Receipt {
			all = append(all, m.broken("nothing is settled twice", fmt.Sprintf("two receipts ended generation %d", c.Generation), first, e))
		}
		ended[c.Generation] = e
	}
	return all
}

// cameBack finds claims of what had ended.
func cameBack(_ *view, m *message) (all []Violation) {
	claims := m.claims()
	for _, s := range m.some(is(OpSettle, Done, Dead)) {
		c := claims[s.Receipt]
		if c == nil || s.Answer != OK {
			continue
		}
		for _, e := range m.some(is(OpClaim)) {
			if e.Begin > s.End && (s.Outcome == Done || e.Generation <= c.Generation) {
				all = append(all, m.broken("what was settled does not come back", "it was claimed after it had been settled as "+s.Outcome, c, s, e))
			}
		}
	}
	return all
}

// staleHolder finds settlements and extensions that were accepted after another had got
// the message. A claim that a crash of the server undid is none; a settlement that is
// repeated because its answer was lost may have been accepted in time.
func staleHolder(v *view, m *message) (all []Violation) {
	claims := m.claims()
	for _, s := range m.some(func(e *Event) bool { return (e.Op == OpSettle || e.Op == OpExtend) && e.Answer == OK }) {
		mine := claims[s.Receipt]
		if mine == nil || m.any(func(e *Event) bool {
			return e.Op == OpSettle && e.Receipt == s.Receipt && e.Answer == Unknown && e.Begin < s.Begin
		}) {
			continue
		}
		for _, other := range claims {
			if other.Receipt != s.Receipt && other.Begin > mine.End && other.End < s.Begin && !v.happened(other.Begin, s.End, KillServer) {
				all = append(all, m.broken("a stale holder changes nothing", "its receipt was accepted after another had claimed it", mine, other, s))
			}
		}
	}
	return all
}

// slack is what clocks that are read in milliseconds may differ.
const slack = 50 * time.Millisecond

// heldTwice finds a message that was claimed while another's lease ran.
func heldTwice(v *view, m *message) (all []Violation) {
	claims := m.some(is(OpClaim))
	for i, a := range claims {
		for _, b := range claims[i+1:] {
			until := a.Begin + a.Lease
			for _, e := range m.some(is(OpExtend)) {
				if e.Receipt == a.Receipt && e.Answer == OK && e.End < b.Begin {
					until = max(until, e.Begin+e.Lease)
				}
			}
			gaveUp := m.any(func(e *Event) bool { return e.Op == OpSettle && e.Receipt == a.Receipt && e.Begin < b.End })
			undone := v.happened(a.Begin, b.End, KillServer, MoveClock) || v.Embedded && v.happened(a.Begin, b.End, KillDaemon, PowerLoss)
			if b.Begin > a.End && b.End < until-slack && !gaveUp && !undone {
				all = append(all, m.broken("a message has one holder", "it was claimed while the first one's lease ran", a, b))
			}
		}
	}
	return all
}

// dropped finds claims of what had been dropped.
func dropped(_ *view, m *message) (all []Violation) {
	for _, d := range m.some(is(OpDrop)) {
		for _, c := range m.some(is(OpClaim)) {
			if d.Answer == OK && c.Begin > d.End {
				all = append(all, m.broken("what was dropped is gone", "it was claimed later", d, c))
			}
		}
	}
	return all
}

// edits finds bodies from before an edit that had been acknowledged, and those of edits
// that were refused.
func edits(_ *view, m *message) (all []Violation) {
	known := m.some(is(OpEdit))
	judge := func(rev int, at time.Duration, shown ...*Event) {
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
		case rev < least && !late:
			all = append(all, m.broken("an edit is kept", fmt.Sprintf("it shows edit %d after %d", rev, least), append(shown, why)...))
		}
	}
	for _, c := range m.some(is(OpClaim)) {
		judge(c.Rev, c.Begin, c)
	}
	for _, l := range m.left {
		if m.copies() == 1 {
			judge(l.Rev, ever)
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

// planned finds messages that were redriven more often than plans say they did it, and
// those that a plan took although they died after it was made.
func planned(v *view, m *message) (all []Violation) {
	by := 0
	for _, r := range v.planResults(m) {
		if r.Outcome == "refused" {
			continue
		}
		if r.plan.Action == "redrive" {
			by++
		}
		made := v.plans[r.plan.ID]
		died := m.some(func(e *Event) bool { return is(OpDeliver, Dead)(e) || is(OpSettle, Dead)(e) })
		// The cutoff is a time of the store's clock: one that jumped has others die before it.
		if made != nil && made.Answer == OK && (len(died) == 0 || died[0].Begin >= made.End && !v.happened(made.Begin, died[0].End, MoveClock)) {
			all = append(all, m.broken("a plan takes what had died before it", "nothing had killed it when the plan was made", made))
		}
	}
	most, at := 0, []*Event(nil)
	for _, e := range m.some(is(OpClaim)) {
		if e.Redrives > most {
			most, at = e.Redrives, []*Event{e}
		}
	}
	for _, l := range m.left {
		most = max(most, l.Redrives)
	}
	if most > by {
		all = append(all, m.broken("a plan redrives a message once", fmt.Sprintf("%d plans redrove it, and it was redriven %d times", by, most), at...))
	}
	return all
}
