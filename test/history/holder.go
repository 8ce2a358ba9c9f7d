package history

import (
	"fmt"
	"time"
)

// claims returns the claim of each receipt.
func (m *message) claims() map[string]*Event {
	by := map[string]*Event{}
	for _, e := range m.some(is(OpClaim)) {
		by[e.Receipt] = e
	}
	return by
}

// settledTwice finds two receipts that both ended the message in one of its generations,
// and receipts that were accepted after they had settled it.
func settledTwice(_ *view, m *message) (all []Violation) {
	claims := m.claims()
	accepted := map[string]*Event{}
	for _, e := range m.some(func(e *Event) bool { return (e.Op == OpSettle || e.Op == OpExtend) && e.Answer == OK }) {
		if first := accepted[e.Receipt]; first != nil && first.End < e.Begin {
			all = append(all, m.broken("nothing is settled twice", "a receipt was accepted after it had settled it", first, e))
		} else if e.Op == OpSettle && first == nil {
			accepted[e.Receipt] = e
		}
	}
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
// the message. A claim that a crash of the server undid is none.
func staleHolder(v *view, m *message) (all []Violation) {
	claims := m.claims()
	for _, s := range m.some(func(e *Event) bool { return (e.Op == OpSettle || e.Op == OpExtend) && e.Answer == OK }) {
		mine := claims[s.Receipt]
		if mine == nil {
			continue
		}
		for _, other := range claims {
			undone := v.Undoes && v.happened(other.Begin, s.End, KillServer)
			if other.Receipt != s.Receipt && other.Begin > mine.End && other.End < s.Begin && !undone {
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
			undone := v.Undoes && v.happened(a.Begin, b.End, KillServer) || v.happened(a.Begin, b.End, MoveClock) || v.Embedded && v.happened(a.Begin, b.End, KillDaemon, PowerLoss)
			if b.Begin > a.End && b.End < until-slack && !gaveUp && !undone {
				all = append(all, m.broken("a message has one holder", "it was claimed while the first one's lease ran", a, b))
			}
		}
	}
	return all
}

// stale is how long who lost a claim, and has not heard of it, may go on with a delivery.
const stale = 10 * time.Second

// stray reports that a delivery at a time may be that of a holder who lost its claim since,
// or that what was there before is forgotten.
func (v *view) stray(from, at time.Duration) bool {
	return v.happened(from-stale, at, MoveClock, PowerLoss) || v.Undoes && v.happened(from-stale, at, KillServer)
}

// timeout is after how long a delivery is given up.
const timeout = 2 * time.Second

// atOnce finds deliveries of a message that ran beside one another. A source may take a
// message away from a daemon whose connection it lost.
func atOnce(v *view, m *message) (all []Violation) {
	if v.foreign(m) {
		return nil
	}
	deliveries := m.some(is(OpDeliver))
	for i, a := range deliveries {
		for _, b := range deliveries[i+1:] {
			undone := v.stray(a.Begin, b.Begin) || v.Embedded && v.happened(a.Begin, b.Begin, KillDaemon)
			if b.Begin < min(a.End, a.Begin+timeout-slack) && !undone {
				all = append(all, m.broken("a message has one holder", "it was delivered twice at once", a, b))
			}
		}
	}
	return all
}
