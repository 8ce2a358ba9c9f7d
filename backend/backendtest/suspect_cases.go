package backendtest

import (
	"fmt"

	"github.com/redrive/redrive"
)

// Suspects: messages of a claim that ended without a settlement.
var suspectCases = []testCase{
	{name: "SuspectsRotate", run: suspectsRotate, needs: []need{claimRecords}},
	{name: "SuspicionIsCleared", run: suspicionCleared, needs: []need{claimRecords}},
	{name: "SuspicionOfALateHolderIsTakenBack", run: lateRelease, needs: []need{claimRecords, leases, deadLetters}},
	{name: "NeighboursOfACrashAreNotCounted", run: neighbours, needs: []need{claimRecords}, basic: true},
	{name: "IsolatedCrashIsCounted", run: isolatedCrash, needs: []need{claimRecords, crash}},
}

func suspectsRotate(c *C) {
	c.publishN(3)
	c.get(3, c.short(3))
	c.runOut()
	if n := c.counts(); n.Suspects != 3 || n.AllWaiting() != 3 || n.Leased != 0 {
		c.Errorf("suspects %d, waiting %d, leased %d; want 3, 3, 0", n.Suspects, n.AllWaiting(), n.Leased)
	}
	times := map[string]int{}
	for range 6 {
		d := c.one(isolated(c.short(1)))
		times[d.ID]++
		c.runOut()
	}
	for i := range 3 {
		if id := fmt.Sprintf("m%04d", i+1); times[id] != 2 {
			c.Errorf("%s had %d of 6 turns, want 2", id, times[id])
		}
	}
}

func suspicionCleared(c *C) {
	c.publishN(3)
	c.get(3, c.short(3))
	c.runOut()
	d := c.one(isolated(c.ask(1)))
	c.noError(c.settle(retry(d, 0)), "retry")
	if d = c.one(c.lane(1, redrive.LaneRetry)); d.Suspect {
		c.Errorf("%s is a suspect after a settled retry", d.ID)
	}
	c.done(d)
	d = c.one(isolated(c.ask(1)))
	c.noError(c.settle(release(d, 0)), "release")
	c.none(c.ask(3))
	for range 2 {
		d = c.one(isolated(c.ask(1)))
		if !d.Suspect || d.Attempt != 2 {
			c.Errorf("%s: suspect %t, attempt %d; want true, 2", d.ID, d.Suspect, d.Attempt)
		}
		c.noError(c.settle(deadly(d, redrive.ReasonCrashed)), "dead")
	}
	c.redrive(d.ID)
	if d = c.one(c.lane(1, redrive.LaneRedrive)); d.Suspect || d.Crashes != 0 {
		c.Errorf("after a redrive: suspect %t, crashes %d", d.Suspect, d.Crashes)
	}
	c.done(d)
}

// lateRelease: who settles after the lease ran out lives after all, and so nothing is
// suspected of the message.
func lateRelease(c *C) {
	c.publish(redrive.Message{ID: "m"})
	d := c.one(c.short(1))
	c.runOut()
	c.noError(c.settle(release(d, 0)), "late release")
	if d = c.one(c.ask(1)); d.Suspect || d.Attempt != 1 || d.Crashes != 0 {
		c.Errorf("suspect %t, attempt %d, crashes %d; want false, 1, 0", d.Suspect, d.Attempt, d.Crashes)
	}
}

func neighbours(c *C) {
	c.publishN(20)
	c.get(20, c.short(20))
	c.runOut()
	for range 20 {
		d := c.one(isolated(c.ask(1)))
		if d.Crashes != 0 {
			c.Errorf("%s has %d crashes of a claim in which it was not isolated", d.ID, d.Crashes)
		}
		c.done(d)
	}
}

func isolatedCrash(c *C) {
	c.publish(redrive.Message{ID: "poison"}, redrive.Message{ID: "neighbour"})
	c.get(2, c.short(2))
	c.use(c.f.Crash(c, c.store))
	c.runOut()
	for crashes := 0; crashes < 3; {
		d := c.one(isolated(c.short(1)))
		if d.ID != "poison" {
			c.noError(c.settle(release(d, 0)), "release")
			continue
		}
		c.use(c.f.Crash(c, c.store))
		c.runOut()
		crashes++
	}
	if e := c.entry("poison"); e.Crashes != 3 || !e.Suspect || e.Attempts != 4 {
		c.Errorf("the poison: %d crashes, suspect %t, %d attempts; want 3, true, 4", e.Crashes, e.Suspect, e.Attempts)
	}
	if e := c.entry("neighbour"); e.Crashes != 0 || e.Attempts != 1 {
		c.Errorf("the neighbour: %d crashes, %d attempts; want 0, 1", e.Crashes, e.Attempts)
	}
}
