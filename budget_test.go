package redrive

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var retried, fresh = &Delivery{Lane: LaneRetry}, &Delivery{Lane: LaneFresh}

func retryAsk(n int) Ask { return Ask{Queue: "q", Lane: LaneRetry, Max: n} }

func TestBudgetLeavesOtherLanesAlone(t *testing.T) {
	g, now := newBudgetGate(), time.Unix(1_700_000_000, 0)
	for _, l := range []Lane{LaneFresh, LaneRedrive} {
		for range 100 {
			if got := g.Reserve(now, Ask{Lane: l, Max: 50}); got.N != 50 {
				t.Fatalf("%s: %+v", l, got)
			}
			g.Return(now, Grant{N: 50}, 50)
		}
	}
	if got := g.Reserve(now, retryAsk(100)); got.N != budgetFloor {
		t.Errorf("what other lanes gave back went to retries: %+v", got)
	}
}

func TestRetriesLeft(t *testing.T) {
	var s gateSet
	s.init("q", BreakerOptions{}, "")
	now := time.Unix(1_700_000_000, 0)
	for i, ask := range []int{budgetFloor - 1, 1} {
		if got, want := s.retriesLeft(now), []int{budgetFloor, 1}[i]; got != want {
			t.Errorf("before %d more: %d", ask, got)
		}
		s.budget.Reserve(now, retryAsk(ask))
	}
	if got := s.retriesLeft(now); got != 0 {
		t.Errorf("%d are left of a spent budget", got)
	}
	if got := s.retriesLeft(now.Add(budgetWindow + time.Second)); got != budgetFloor {
		t.Errorf("%d are left in the next window", got)
	}
}

func TestBudgetAgainstATargetThatIsDown(t *testing.T) {
	g, start := newBudgetGate(), time.Unix(1_700_000_000, 0)
	granted := 0
	for now := start; now.Before(start.Add(100 * time.Second)); now = now.Add(100 * time.Millisecond) {
		got := g.Reserve(now, retryAsk(50))
		granted += got.N
		if got.N < 50 && (got.Reason == "" || !got.Until.After(now)) {
			t.Fatalf("a refusal without reason or time: %+v", got)
		}
		for range got.N {
			g.Report(now, retried, failed())
		}
	}
	if granted < 90 || granted > 110 {
		t.Errorf("%d retries in 100 s, want about 1/s", granted)
	}
}

func TestBudgetIsAFifthOfTheSuccesses(t *testing.T) {
	g, now := newBudgetGate(), time.Unix(1_700_000_000, 0)
	for range 1000 {
		g.Report(now, fresh, succeeded())
	}
	if got := g.Reserve(now, retryAsk(1000)); got.N != budgetFloor+200 {
		t.Errorf("after 1,000 successes: %+v", got)
	}
	now = now.Add(budgetWindow + time.Second)
	if got := g.Reserve(now, retryAsk(1000)); got.N != budgetFloor {
		t.Errorf("when they are long past: %+v", got)
	}
}

func TestBudgetGivesBack(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name string
		back func(g *budgetGate, grant Grant)
		want int
	}{
		{"what was not claimed", func(g *budgetGate, grant Grant) { g.Return(now, grant, 4) }, 4},
		{"what was released", func(g *budgetGate, _ Grant) { g.Report(now, retried, &Settlement{Outcome: OutcomeRelease}) }, 1},
		{"what succeeded", func(g *budgetGate, _ Grant) { g.Report(now, retried, succeeded()) }, 1},
		{"not what failed", func(g *budgetGate, _ Grant) { g.Report(now, retried, failed()) }, 0},
		{"not what failed for good", func(g *budgetGate, _ Grant) { g.Report(now, retried, failedForGood("s")) }, 0},
		{"not what was lost", func(g *budgetGate, _ Grant) { g.Report(now, retried, nil) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newBudgetGate()
			grant := g.Reserve(now, retryAsk(100))
			if grant.N != budgetFloor {
				t.Fatalf("%+v", grant)
			}
			c.back(g, grant)
			if got := g.Reserve(now, retryAsk(100)); got.N != c.want {
				t.Errorf("%d were granted again, want %d", got.N, c.want)
			}
		})
	}
}

// Over any ten seconds the retries that did not succeed stay within the rule.
func TestBudgetHoldsOverAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		health := rapid.Float64Range(0, 1).Draw(t, "health")
		g, now := newBudgetGate(), time.Unix(1_700_000_000, 0)
		type event struct {
			at              time.Time
			futile, success int
		}
		var events []event
		for range 600 {
			now = now.Add(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
			e := event{at: now}
			attempt := func(d *Delivery) {
				if random.Float64() < health {
					g.Report(now, d, succeeded())
					e.success++
					return
				}
				g.Report(now, d, failed())
				if d.Lane == LaneRetry {
					e.futile++
				}
			}
			grant := g.Reserve(now, retryAsk(random.IntN(20)))
			for range grant.N {
				attempt(retried)
			}
			for range random.IntN(20) {
				attempt(fresh)
			}
			events = append(events, e)
		}
		for i := range events {
			futile, successes := 0, 0
			for j := i; j < len(events) && events[j].at.Sub(events[i].at) < budgetWindow-time.Second; j++ {
				futile += events[j].futile
				successes += events[j].success
			}
			for j := i - 1; j >= 0 && events[i].at.Sub(events[j].at) <= budgetWindow; j-- {
				successes += events[j].success // those paid for what followed
			}
			if limit := budgetFloor + successes/successesPerRetry; futile > limit+1 {
				t.Fatalf("%d futile retries within %s, at most %d are allowed", futile, budgetWindow, limit)
			}
		}
	})
}

// drain simulates a queue in steps of a millisecond: fresh messages that succeed at a
// rate, and retries in at most 13 slots (their share of 64) that take 5 ms each. It
// returns how long it takes until all retries have succeeded, or the limit.
func drain(retries, freshRate int, healthy func(at time.Duration) bool, limit time.Duration) (took time.Duration, futile int) {
	const slots, handling = 13, 5
	g, start := newBudgetGate(), time.Unix(1_700_000_000, 0)
	var ends [handling]int
	busy := 0
	for ms := 0; ; ms++ {
		at := time.Duration(ms) * time.Millisecond
		if retries == 0 && busy == 0 || at >= limit {
			return at, futile
		}
		now := start.Add(at)
		for n := ends[ms%handling]; n > 0; n-- {
			busy--
			if healthy(at) {
				g.Report(now, retried, succeeded())
				continue
			}
			g.Report(now, retried, failed())
			futile++
			retries++
		}
		for n := freshRate*(ms+1)/1000 - freshRate*ms/1000; n > 0 && healthy(at); n-- {
			g.Report(now, fresh, succeeded())
		}
		ends[ms%handling] = 0
		if free := min(slots-busy, retries); free > 0 {
			n := g.Reserve(now, retryAsk(free)).N
			busy += n
			retries -= n
			ends[ms%handling] = n
		}
	}
}

// A backlog of messages that each failed once must not take hours: what succeeds costs
// nothing.
func TestBudgetDrainsWhatOnlyNeededASecondTry(t *testing.T) {
	always := func(time.Duration) bool { return true }
	for _, c := range []struct {
		name string
		rate int
		want time.Duration
	}{
		{"beside 2,000 fresh messages a second", 2000, 10 * time.Second},
		{"with nothing else to do", 0, 10 * time.Second},
	} {
		took, _ := drain(10_000, c.rate, always, time.Hour)
		t.Logf("10,000 retries that succeed, %s: %s (slots alone would allow %s)", c.name, took, 10_000*5*time.Millisecond/13)
		if took > c.want {
			t.Errorf("%s it took %s", c.name, took)
		}
	}
	outage := func(at time.Duration) bool { return at >= time.Minute }
	took, futile := drain(10_000, 2000, outage, time.Hour)
	t.Logf("10,000 retries after an outage of 1 min: %s, %d of them in vain", took, futile)
	if took > 80*time.Second || futile > 80 {
		t.Errorf("after an outage of a minute it took %s and %d retries in vain", took, futile)
	}
}

func TestBudgetAllocatesNothing(t *testing.T) {
	g, now := newBudgetGate(), time.Unix(1_700_000_000, 0)
	s := succeeded()
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		g.Return(now, g.Reserve(now, retryAsk(4)), 2)
		g.Report(now, retried, s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestBudgetOfTwoLanes gives a grant of another lane back while one of retries is out.
func TestBudgetOfTwoLanes(t *testing.T) {
	var s gateSet
	s.init("q", BreakerOptions{}, "")
	now := time.Unix(1_700_000_000, 0)
	var fresh, retry grants
	s.reserve(&fresh, &noGates, now, LaneFresh, 3)
	s.reserve(&retry, &noGates, now, LaneRetry, budgetFloor)
	s.giveBack(&fresh, now, 3)
	if got := s.retriesLeft(now); got != 0 {
		t.Errorf("%d retries are left, though none was given back", got)
	}
	s.giveBack(&retry, now, 4)
	if got := s.retriesLeft(now); got != 4 {
		t.Errorf("%d retries are left of 4 given back", got)
	}
}
