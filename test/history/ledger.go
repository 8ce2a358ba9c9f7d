package history

import (
	"cmp"
	"fmt"
	"slices"
)

// order finds messages of a key that were delivered before the one ahead of them had
// been. A publisher of a key sends the next when the one before was acknowledged.
func order(v *view) (all []Violation) {
	keys := map[string][]*message{}
	seq := func(m *message) int {
		for _, e := range m.some(is(OpPublish)) {
			return e.Seq
		}
		return 0
	}
	for _, m := range v.sorted() {
		for _, e := range m.some(is(OpPublish))[:min(1, len(m.some(is(OpPublish))))] {
			if e.Key != "" {
				keys[e.Queue+"/"+e.Key] = append(keys[e.Queue+"/"+e.Key], m)
			}
		}
	}
	for _, list := range keys {
		slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(seq(a), seq(b)) })
		for i, m := range list[min(1, len(list)):] {
			all = append(all, v.overtook(list[i], m)...)
		}
	}
	return all
}

// overtook compares the deliveries of two messages of a key of which one is ahead of the
// other: it is done or dropped before the other's first, and not delivered after it.
func (v *view) overtook(ahead, m *message) (all []Violation) {
	deliveries := m.some(is(OpDeliver))
	if len(deliveries) == 0 || !ahead.acknowledged() {
		return nil
	}
	first := deliveries[0]
	before := func(e *Event) bool { return e != nil && e.Answer != Refused && e.Begin < first.Begin }
	if !ahead.any(func(e *Event) bool {
		return is(OpDeliver, Done)(e) && e.End <= first.Begin || e.Op == OpDrop && before(e)
	}) &&
		!slices.ContainsFunc(v.byPlan(ahead, "drop"), func(r planned1) bool { return v.plans[r.plan.ID] == nil || before(v.plans[r.plan.ID]) }) {
		all = append(all, m.broken("order by key", fmt.Sprintf("it was delivered before %s, which is ahead of it, was done", ahead.label),
			append(ahead.some(is(OpDeliver)), first)...))
	}
	for _, e := range ahead.some(is(OpDeliver)) {
		// A source delivers again from where it was, and a publish that was repeated there is another message.
		if e.Begin > first.Begin && !v.foreign(m) && !v.stray(first.Begin, e.Begin) {
			all = append(all, m.broken("order by key", fmt.Sprintf("%s, which is ahead of it, was delivered after it", ahead.label), first, e))
		}
	}
	return all
}

// plans finds plans whose results do not tell what they did.
func plans(v *view) (all []Violation) {
	for id, made := range v.plans {
		if made.Answer == OK && !slices.ContainsFunc(v.Final.Plans, func(p PlanEnd) bool { return p.ID == id }) {
			all = append(all, Violation{Promise: "a plan ends", ID: id, Text: "it was acknowledged and is not there", Events: []Event{*made}})
		}
	}
	for i := range v.Final.Plans {
		p := &v.Final.Plans[i]
		seen := map[string]bool{}
		for _, r := range p.Results {
			name := r.Queue + "/" + r.ID
			if seen[name] {
				all = append(all, Violation{Promise: "a plan redrives a message once", Queue: r.Queue, ID: r.ID, Text: "plan " + p.ID + " names it twice"})
			}
			seen[name] = true
			if v.labels[name] == "" && !v.dropsWaiting(p) {
				all = append(all, Violation{Promise: "a plan redrives what is there", Queue: r.Queue, ID: r.ID, Text: "plan " + p.ID + " names what nobody published"})
			}
		}
		if made := v.cancelled(p.ID); made != nil && p.State != "cancelled" {
			all = append(all, Violation{Promise: "a plan ends", ID: p.ID, Text: "it was cancelled and is " + p.State, Events: []Event{*made}})
		}
		if p.State == "failed" {
			all = append(all, Violation{Promise: "a plan ends", ID: p.ID, Text: "it failed: " + p.Problem})
		}
		if n := len(p.Results); p.State == "done" && n != p.Done+p.Failed {
			all = append(all, Violation{Promise: "a plan counts what it did", ID: p.ID, Text: fmt.Sprintf("%d done and %d failed, and %d results", p.Done, p.Failed, n)})
		}
	}
	return all
}

// dropsWaiting reports that a plan may name what nobody knows the id of: a message whose
// publisher has no answer, and that nobody got.
func (v *view) dropsWaiting(p *PlanEnd) bool {
	made := v.plans[p.ID]
	return p.Action == "drop" && (made == nil || made.Action == dropWaiting)
}

// cancelled returns the call that cancelled a plan.
func (v *view) cancelled(id string) *Event {
	for i := range v.Events {
		if e := &v.Events[i]; e.Op == OpSteer && e.Plan == id && e.Answer == OK && e.Outcome == "cancelled" {
			return e
		}
	}
	return nil
}

// span is a number that is known within bounds.
type span struct{ least, most int }

func (s *span) add(certain, possible bool) {
	if certain {
		s.least++
	}
	if certain || possible {
		s.most++
	}
}

// ledger compares the ledger with the history.
func ledger(v *view) (all []Violation) {
	type spans struct{ published, done, dropped, dead, waiting span }
	of := map[string]*spans{}
	for _, m := range v.sorted() {
		s := of[m.queue]
		if s == nil {
			s = &spans{}
			of[m.queue] = s
		}
		settled := m.any(func(e *Event) bool { return is(OpSettle, Done)(e) && e.Answer == OK })
		gone := m.acknowledged() && len(m.left) == 0
		// What was delivered before its publisher had the answer may be forgotten with the power.
		s.published.add(m.acknowledged() || m.any(func(e *Event) bool {
			return (e.Op == OpDeliver || e.Op == OpClaim) && !v.happened(e.Begin, ever, PowerLoss)
		}), m.possible())
		s.done.add(settled || gone && m.mayBeDone() && !v.mayBeDropped(m), m.mayBeDone() && len(m.left) == 0)
		s.dropped.add(v.wasDropped(m), v.mayBeDropped(m))
		if more := m.copies() - 1; more > 0 {
			s.published.most += more
			s.dropped.most += more
			if s.done.most += more; m.mayBeDone() && len(m.left) > 0 {
				s.done.most++
			}
		}
		for _, l := range m.left {
			if l.State == Dead {
				s.dead.add(true, true)
			} else {
				s.waiting.add(true, true)
			}
		}
	}
	for i := range v.Final.Plans {
		p := &v.Final.Plans[i]
		for _, r := range p.Results {
			if s := of[r.Queue]; s != nil && v.dropsWaiting(p) && v.labels[r.Queue+"/"+r.ID] == "" {
				s.dropped.add(r.Outcome == Dropped, r.Outcome != "refused")
			}
		}
	}
	for queue, b := range v.Final.Ledger {
		s := of[queue]
		if s == nil {
			s = &spans{}
		}
		if slices.Contains(v.Foreign, queue) { // what never was in the store is not in its ledger
			s.published.least, s.done.least = 0, 0
		}
		for _, c := range []struct {
			name string
			got  int
			want span
		}{{"published", b.Published, s.published}, {"done", b.Done, s.done}, {"dropped", b.Dropped, s.dropped}, {"dead", b.Dead, s.dead}, {"waiting", b.Waiting, s.waiting}} {
			if c.got < c.want.least || c.got > c.want.most {
				all = append(all, Violation{Promise: "the ledger equals the history", Queue: queue,
					Text: fmt.Sprintf("it counts %d %s, the history %d to %d", c.got, c.name, c.want.least, c.want.most)})
			}
		}
	}
	for _, text := range v.Final.Unbalanced {
		all = append(all, Violation{Promise: "the ledger balances", Text: text})
	}
	return all
}
