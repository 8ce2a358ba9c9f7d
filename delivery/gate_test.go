package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrive/redrive/driver"
)

var start = time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)

func TestRateGate(t *testing.T) {
	g := NewRateGate(10, 2)
	if got := g.Reserve(start, driver.Ask{Max: 5}); got.N != 2 || got.Until != start.Add(100*time.Millisecond) || got.Reason == "" {
		t.Fatalf("a full bucket: %+v", got)
	}
	if got := g.Reserve(start.Add(50*time.Millisecond), driver.Ask{Max: 5}); got.N != 0 || got.Until != start.Add(100*time.Millisecond) {
		t.Errorf("an empty bucket: %+v", got)
	}
	if got := g.Reserve(start.Add(100*time.Millisecond), driver.Ask{Max: 1}); got.N != 1 || !got.Until.IsZero() {
		t.Errorf("one more: %+v", got)
	}
	g.Return(start, driver.Grant{N: 1}, 1)
	if got := g.Reserve(start.Add(100*time.Millisecond), driver.Ask{Max: 1}); got.N != 1 {
		t.Errorf("what was given back: %+v", got)
	}
	if got := g.Reserve(start.Add(time.Hour), driver.Ask{Max: 100}); got.N != 2 {
		t.Errorf("after a long rest: %+v", got)
	}
}

func TestRateGateBurst(t *testing.T) {
	for rate, want := range map[float64]int{0.1: 1, 1: 1, 10: 1, 11: 2, 3000: 300} {
		if got := NewRateGate(rate, 0).Reserve(start, driver.Ask{Max: 1 << 20}).N; got != want {
			t.Errorf("%g/s: a burst of %d, want %d", rate, got, want)
		}
	}
}

// Whatever is asked, granted and given back: never more than the rate and one burst,
// and whoever asks again at Until gets something.
func TestRateGateKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.5, 5000).Draw(t, "rate")
		burst := rapid.IntRange(1, 100).Draw(t, "burst")
		g := NewRateGate(rate, burst)
		now, used := start, 0
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			ask := driver.Ask{Max: rapid.IntRange(1, 200).Draw(t, "max")}
			grant := g.Reserve(now, ask)
			if grant.N < 0 || grant.N > ask.Max {
				t.Fatalf("asked for %d, granted %d", ask.Max, grant.N)
			}
			unused := rapid.IntRange(0, grant.N).Draw(t, "unused")
			g.Return(now, grant, unused)
			used += grant.N - unused
			if most := float64(burst) + rate*now.Sub(start).Seconds() + 1e-3; float64(used) > most {
				t.Fatalf("%d begun in %s, at most %g", used, now.Sub(start), most)
			}
			if grant.N < ask.Max && !grant.Until.After(now) {
				t.Fatalf("ask again at %s, which is not after now", grant.Until.Sub(now))
			}
			if grant.N == 0 && rapid.Bool().Draw(t, "wait") {
				now = grant.Until.Add(time.Microsecond)
				again := g.Reserve(now, driver.Ask{Max: 1})
				if again.N != 1 {
					t.Fatalf("nothing at the promised time")
				}
				used++
				continue
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
		}
	})
}

func TestConcurrencyGate(t *testing.T) {
	g := NewConcurrencyGate(3)
	first := g.Reserve(start, driver.Ask{Max: 5})
	if first.N != 3 || !first.Until.IsZero() || first.Reason == "" {
		t.Fatalf("%+v", first)
	}
	if got := g.Reserve(start, driver.Ask{Max: 1}); got.N != 0 {
		t.Errorf("a fourth: %+v", got)
	}
	g.Return(start, first, 1)
	g.Report(start, message("x"), nil)
	if got := g.Reserve(start, driver.Ask{Max: 5}); got.N != 2 {
		t.Errorf("after one was given back and one ended: %+v", got)
	}
}

func TestHoldGate(t *testing.T) {
	g := new(holdGate)
	g.hold(start, 10*time.Second)
	g.hold(start, time.Second) // a shorter one does not shorten it
	if got := g.Reserve(start.Add(9*time.Second), driver.Ask{Max: 2}); got.N != 0 || got.Until != start.Add(10*time.Second) {
		t.Errorf("%+v", got)
	}
	if got := g.Reserve(start.Add(10*time.Second), driver.Ask{Max: 2}); got.N != 2 {
		t.Errorf("%+v", got)
	}
	g.hold(start, time.Hour)
	if got := g.Reserve(start, driver.Ask{Max: 2}); got.Until != start.Add(maxHold) {
		t.Errorf("an hour holds until %s", got.Until)
	}
}

func TestGatesOfATarget(t *testing.T) {
	for _, c := range []struct {
		target Target
		want   int
	}{{Target{}, 1}, {Target{Rate: 5}, 2}, {Target{Rate: 5, Concurrency: 2}, 3}} {
		c.target.URL = "https://example.com/"
		if got := len(mustNew(t, c.target, Options{}).Gates()); got != c.want {
			t.Errorf("%+v: %d gates, want %d", c.target, got, c.want)
		}
	}
}
