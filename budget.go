package redrive

import "time"

// The retry budget of a queue, and the slots of time that it is counted in.
const (
	budgetWindow      = 10 * time.Second
	budgetFloor       = 10 // retries a window: 1/s
	successesPerRetry = 5  // 20 %
	budgetSlots       = 20
)

// budgetGate bounds the retries that a sick target gets. In any ten seconds it grants
// as many retries as
//
//	10 + 20 % of all successes + the retries that succeeded
//
// of those ten seconds. The last term is what makes it a budget of futile retries: a
// retry that succeeded, or was never made, costs nothing. So retries flow freely while
// at most one attempt in six fails, a backlog of messages that only needed a second
// try drains at full speed, growing from ten at once, and against a target that is
// down there is one retry a second. What exceeds is not claimed and waits uncounted.
//
// It keeps no count of what is in flight, so nothing that is never reported can lock
// it up.
type budgetGate struct {
	lane  Lane  // of the last Reserve, which is what is given back
	slot  int64 // number of the current slot since 1970
	slots [budgetSlots]budgetSlot
	total struct{ granted, refunded, succeeded int64 }
}

// budgetSlot is small, as there are many queues.
type budgetSlot struct {
	granted   int32 // retries, less those given back
	refunded  int32 // retries that succeeded or were released
	succeeded int32 // of all lanes
}

func newBudgetGate() *budgetGate { return new(budgetGate) }

// Reserve implements Gate.
func (g *budgetGate) Reserve(now time.Time, a Ask) Grant {
	g.lane = a.Lane
	if a.Lane != LaneRetry {
		return Grant{N: a.Max}
	}
	g.advance(now)
	n := min(int64(a.Max), g.left())
	g.slots[g.slot%budgetSlots].granted += int32(n) //nolint:gosec // at most a.Max
	g.total.granted += n
	if n == int64(a.Max) {
		return Grant{N: a.Max}
	}
	return Grant{N: int(n), Until: g.nextGrant(now), Reason: "retry budget: too few attempts succeed"}
}

// left is how many retries may be claimed in the window as it stands, 0 or more.
func (g *budgetGate) left() int64 {
	return max(budgetFloor+g.total.succeeded/successesPerRetry+g.total.refunded-g.total.granted, 0)
}

// nextGrant returns when the oldest grants leave the window.
func (g *budgetGate) nextGrant(now time.Time) time.Time {
	for i := g.slot - budgetSlots + 1; i <= g.slot; i++ {
		if i >= 0 && g.slots[i%budgetSlots].granted > 0 {
			return time.Unix(0, (i+budgetSlots)*int64(budgetWindow/budgetSlots))
		}
	}
	return now.Add(budgetWindow / budgetSlots)
}

// Return implements Gate.
func (g *budgetGate) Return(now time.Time, _ Grant, unused int) {
	if g.lane != LaneRetry || unused <= 0 {
		return
	}
	g.advance(now)
	g.slots[g.slot%budgetSlots].granted -= int32(unused) //nolint:gosec // at most what was granted
	g.total.granted -= int64(unused)
}

// Report implements Gate.
func (g *budgetGate) Report(now time.Time, d *Delivery, s *Settlement) {
	how, _ := judge(s)
	released := s != nil && s.Outcome == OutcomeRelease && s.Failure == nil
	if how != endedSuccess && !released {
		return
	}
	g.advance(now)
	slot := &g.slots[g.slot%budgetSlots]
	if how == endedSuccess {
		slot.succeeded++
		g.total.succeeded++
	}
	if d.Lane == LaneRetry {
		slot.refunded++
		g.total.refunded++
	}
}

// advance drops the slots that left the window.
func (g *budgetGate) advance(now time.Time) {
	slot := now.UnixNano() / int64(budgetWindow/budgetSlots)
	for i := max(g.slot, slot-budgetSlots) + 1; i <= slot; i++ {
		old := &g.slots[i%budgetSlots]
		g.total.granted -= int64(old.granted)
		g.total.refunded -= int64(old.refunded)
		g.total.succeeded -= int64(old.succeeded)
		*old = budgetSlot{}
	}
	g.slot = max(g.slot, slot)
}
