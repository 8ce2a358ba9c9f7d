package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// breakerRig drives a breaker through time.
type breakerRig struct {
	t    testing.TB
	g    *breakerGate
	now  time.Time
	seen []string // states announced
}

func newBreakerRig(t testing.TB, o BreakerOptions, target string) *breakerRig {
	r := &breakerRig{t: t, g: newBreakerGate(o, target), now: time.Unix(1_700_000_000, 0)}
	r.g.onChange = func(s BreakerStatus) {
		r.seen = append(r.seen, s.State)
		_ = r.g.states() // the gate is not locked
	}
	return r
}

func (r *breakerRig) wait(d time.Duration) { r.now = r.now.Add(d) }

func (r *breakerRig) delivery(kind string, id int) *redrive.Delivery {
	return &redrive.Delivery{Message: redrive.Message{ID: fmt.Sprintf("m%d", id), Queue: "q", Kind: kind}}
}

func failed() *driver.Settlement {
	return &driver.Settlement{Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Signature: "s"}}
}

// answered is a failure with an answer of a status that is not tried again, or without one.
func answered(status string) *driver.Settlement {
	f := &redrive.Failure{Signature: "s"}
	if status != "" {
		f.Details = map[string]string{driver.DetailStatus: status}
	}
	return &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: f}
}

func succeeded() *driver.Settlement { return &driver.Settlement{Outcome: redrive.OutcomeDone} }

func (r *breakerRig) report(kind string, id int, s *driver.Settlement) {
	r.g.Report(r.now, r.delivery(kind, id), s)
}

// open lets messages fail until the breaker of a kind is open.
func (r *breakerRig) open(kind string) {
	r.t.Helper()
	for i := range 20 {
		r.report(kind, 1000+i, failed())
	}
	if r.state(kind) != BreakerOpen {
		r.t.Fatalf("20 failures of 20 messages left it %s", r.state(kind))
	}
}

func (r *breakerRig) state(key string) string {
	if r.g.target != "" {
		key = r.g.target
	}
	for _, s := range r.g.states() {
		if s.Key == key {
			return s.State
		}
	}
	return BreakerClosed
}

func (r *breakerRig) ask() driver.Grant { return r.g.Reserve(r.now, driver.Ask{Queue: "q", Max: 10}) }

func (r *breakerRig) claim(g driver.Grant, kind string, id int) *redrive.Delivery {
	d := r.delivery(kind, id)
	r.g.claimed(g, []redrive.Delivery{*d})
	return d
}

func TestBreakerOpens(t *testing.T) {
	outage := func(r *breakerRig) {
		for i := range 20 {
			r.report("k", i, failed())
		}
	}
	for _, c := range []struct {
		name string
		run  func(r *breakerRig)
		want string
	}{
		{"on twenty failures of twenty messages", outage, BreakerOpen},
		{"not on nineteen", func(r *breakerRig) {
			for i := range 19 {
				r.report("k", i, failed())
			}
		}, BreakerClosed},
		{"not on a hundred failures of nine messages", func(r *breakerRig) {
			for i := range 100 {
				r.report("k", i%9, failed())
			}
		}, BreakerClosed},
		{"on failures of ten messages", func(r *breakerRig) {
			for i := range 20 {
				r.report("k", i%10, failed())
			}
		}, BreakerOpen},
		{"on ninety percent", func(r *breakerRig) {
			for i := range 2 {
				r.report("k", i, succeeded())
			}
			for i := range 18 {
				r.report("k", 2+i, failed())
			}
		}, BreakerOpen},
		{"not on less", func(r *breakerRig) {
			for i := range 3 {
				r.report("k", i, succeeded())
			}
			for i := range 18 {
				r.report("k", 3+i, failed())
			}
		}, BreakerClosed},
		{"not while one of the last ten succeeded", func(r *breakerRig) {
			for i := range 90 {
				r.report("k", i, failed())
				if i%9 == 8 {
					r.report("k", 100+i, succeeded())
				}
			}
		}, BreakerClosed},
		{"not on failures spread over more than the window", func(r *breakerRig) {
			for i := range 100 {
				r.report("k", i, failed())
				r.wait(time.Second)
			}
		}, BreakerClosed},
		{"not on messages seen before the window", func(r *breakerRig) {
			for i := range 10 {
				r.report("k", i, failed())
			}
			r.wait(11 * time.Second)
			for range 30 {
				r.report("k", 1, failed())
			}
		}, BreakerClosed},
		{"not on answers about the message", func(r *breakerRig) {
			for i := range 200 {
				r.report("k", i, answered([]string{"400", "413", "415", "422", ""}[i%5]))
			}
		}, BreakerClosed},
		{"not on those that are tried again", func(r *breakerRig) {
			for i := range 200 {
				s := answered("415")
				s.Outcome, s.Reason = redrive.OutcomeRetry, 0
				r.report("k", i, s)
			}
		}, BreakerClosed},
		{"on other answers that are not tried again", func(r *breakerRig) {
			for i := range 20 {
				r.report("k", i, answered([]string{"401", "403", "404", "410", "501"}[i%5]))
			}
		}, BreakerOpen},
		{"on an outage between answers about the message", func(r *breakerRig) {
			for i := range 20 {
				r.report("k", i, answered("422"))
				r.report("k", 100+i, failed())
			}
		}, BreakerOpen},
		{"not on releases, expiry, crashes and lost leases", func(r *breakerRig) {
			for i := range 100 {
				r.report("k", i, nil)
				r.report("k", i, &driver.Settlement{Outcome: redrive.OutcomeRelease})
				r.report("k", i, &driver.Settlement{Outcome: redrive.OutcomeDrop, Reason: redrive.ReasonExpired})
				r.report("k", i, &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonExpired, Failure: &redrive.Failure{}})
				r.report("k", i, &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonCrashed, Failure: &redrive.Failure{}})
			}
		}, BreakerClosed},
		{"on failures that were the last allowed", func(r *breakerRig) {
			for i := range 20 {
				r.report("k", i, &driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonExhausted, Failure: &redrive.Failure{}})
			}
		}, BreakerOpen},
		{"not for another kind", func(r *breakerRig) {
			for i := range 100 {
				r.report("other", i, failed())
			}
		}, BreakerClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newBreakerRig(t, BreakerOptions{}, "")
			c.run(r)
			if got := r.state("k"); got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
		})
	}
	t.Run("never when it is off", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{Off: true}, "")
		outage(r)
		if r.state("k") != BreakerClosed || r.ask().N != 10 {
			t.Error("it works")
		}
	})
	t.Run("and says why", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "")
		r.report("k", 999, succeeded())
		for i := range 24 {
			r.report("k", i, failed())
		}
		if s := r.g.states()[0]; s.Reason != "19 of 20 attempts failed within 10s" || !s.NextProbe.Equal(r.now.Add(time.Second)) {
			t.Errorf("%+v", s)
		}
		if !slices.Equal(r.seen, []string{BreakerOpen}) {
			t.Errorf("announced: %v", r.seen)
		}
	})
}

func TestBreakerWithATargetGrantsOnlyProbes(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "billing")
	r.open("k")
	if g := r.ask(); g.N != 0 || !g.Until.Equal(r.now.Add(time.Second)) || !strings.HasPrefix(g.Reason, "breaker open: 20 of 20") {
		t.Fatalf("right after it opened: %+v", g)
	}
	var gaps []time.Duration
	last := r.now
	for id := range 7 {
		at := r.g.states()[0].NextProbe
		gaps = append(gaps, at.Sub(last))
		r.now = at.Add(-time.Millisecond)
		if g := r.ask(); g.N != 0 {
			t.Fatalf("probe %d was granted too early", id)
		}
		r.now = at
		g := r.ask()
		if g.N != 1 || len(g.Kinds) != 0 {
			t.Fatalf("probe %d: %+v", id, g)
		}
		if again := r.ask(); again.N != 0 {
			t.Fatalf("two probes at once: %+v", again)
		}
		d := r.claim(g, "k", id)
		if r.state("k") != BreakerProbing || r.g.uncounted(d) {
			t.Fatalf("probe %d: %s, uncounted %v", id, r.state("k"), r.g.uncounted(d))
		}
		if !r.g.uncounted(r.delivery("k", 1000)) {
			t.Fatal("what was in flight when it opened is counted")
		}
		last = r.now
		r.report("k", id, failed())
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}; !slices.Equal(gaps, want) {
		t.Errorf("the probes came after %v, want %v", gaps, want)
	}
	r.wait(30 * time.Second)
	g := r.ask()
	r.claim(g, "k", 100)
	if !slices.Contains(g.ExceptIDs, "m6") {
		t.Errorf("the next probe may be the last one's message: %v", g.ExceptIDs)
	}
	r.report("k", 100, succeeded())
	if r.state("k") != BreakerClosed || r.ask().N != 10 || r.g.uncounted(r.delivery("k", 1000)) {
		t.Error("a probe that succeeded did not close it")
	}
	if !slices.Equal(r.seen, []string{BreakerOpen, BreakerClosed}) {
		t.Errorf("announced: %v", r.seen)
	}
}

func TestBreakerByKindLetsOthersFlow(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "")
	r.open("sick")
	if g := r.ask(); g.N != 10 || !slices.Equal(g.ExceptKinds, []string{"sick"}) {
		t.Fatalf("while it is open: %+v", g)
	}
	r.wait(time.Second)
	probe := r.ask()
	if probe.N != 1 || !slices.Equal(probe.Kinds, []string{"sick"}) || !probe.Until.Equal(r.now) {
		t.Fatalf("the probe: %+v", probe)
	}
	if g := r.ask(); g.N != 10 || !slices.Equal(g.ExceptKinds, []string{"sick"}) {
		t.Fatalf("while the probe is on its way: %+v", g)
	}
	r.claim(probe, "sick", 1)
	r.report("sick", 1, succeeded())
	if g := r.ask(); g.N != 10 || g.ExceptKinds != nil {
		t.Fatalf("after it closed: %+v", g)
	}
}

func TestBreakerProbesOneOfSeveralKinds(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "")
	r.open("a")
	r.open("b")
	r.wait(time.Second)
	probe := r.ask()
	if probe.N != 1 || !slices.Equal(probe.Kinds, []string{"a", "b"}) {
		t.Fatalf("the probe: %+v", probe)
	}
	r.claim(probe, "b", 1)
	if r.state("a") != BreakerOpen || r.state("b") != BreakerProbing {
		t.Fatalf("a is %s, b is %s", r.state("a"), r.state("b"))
	}
	if next := r.ask(); !slices.Equal(next.Kinds, []string{"a"}) {
		t.Errorf("the other kind is not probed next: %+v", next)
	}
}

func TestBreakerProbeThatFoundNothing(t *testing.T) {
	t.Run("does not use up its interval", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "billing")
		r.open("k")
		r.wait(time.Second)
		r.g.Return(r.now, r.ask(), 1)
		if g := r.ask(); g.N != 1 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("may then be a message that was probed before", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "billing")
		r.open("k")
		r.wait(time.Second)
		r.claim(r.ask(), "k", 1)
		r.report("k", 1, failed())
		r.wait(2 * time.Second)
		r.g.Return(r.now, r.ask(), 1)
		if g := r.ask(); g.N != 1 || len(g.ExceptIDs) != 0 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("does not keep other kinds waiting", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "")
		r.open("sick")
		r.wait(time.Second)
		r.g.Return(r.now, r.ask(), 1)
		if g := r.ask(); g.N != 10 {
			t.Errorf("the same lane: %+v", g)
		}
		if g := r.g.Reserve(r.now, driver.Ask{Queue: "q", Lane: redrive.LaneRetry, Max: 10}); g.N != 1 || len(g.Kinds) != 1 {
			t.Errorf("another lane may be probed at once: %+v", g)
		}
		r.wait(time.Second)
		r.g.Return(r.now, r.ask(), 1)
	})
}

func TestBreakerIsNotLockedByALostProbe(t *testing.T) {
	for _, c := range []struct {
		name   string
		report func(r *breakerRig)
		within time.Duration
	}{
		{"whose lease was lost", func(r *breakerRig) { r.report("k", 1, nil) }, time.Second},
		{"that was released", func(r *breakerRig) { r.report("k", 1, &driver.Settlement{Outcome: redrive.OutcomeRelease}) }, time.Second},
		{"that expired", func(r *breakerRig) {
			r.report("k", 1, &driver.Settlement{Outcome: redrive.OutcomeDrop, Reason: redrive.ReasonExpired})
		}, time.Second},
		{"that is never reported", func(*breakerRig) {}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newBreakerRig(t, BreakerOptions{}, "billing")
			r.open("k")
			r.wait(time.Second)
			r.claim(r.ask(), "k", 1)
			c.report(r)
			r.wait(c.within)
			g := r.ask()
			if g.N != 1 {
				t.Fatalf("no other probe: %+v", g)
			}
			r.claim(g, "k", 2)
			r.report("k", 2, succeeded())
			if r.state("k") != BreakerClosed {
				t.Error("it did not close")
			}
		})
	}
	t.Run("of which the gate heard nothing", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "billing")
		r.open("k")
		r.wait(time.Second)
		r.ask()
		r.report("k", 5, succeeded())
		if r.state("k") != BreakerClosed {
			t.Error("it did not close")
		}
	})
	t.Run("that succeeds after it was given up", func(t *testing.T) {
		r := newBreakerRig(t, BreakerOptions{}, "billing")
		r.open("k")
		r.wait(time.Second)
		r.claim(r.ask(), "k", 1)
		r.wait(time.Minute)
		r.claim(r.ask(), "k", 2)
		r.report("k", 1, succeeded())
		if r.state("k") != BreakerClosed {
			t.Error("it did not close")
		}
	})
}

func TestBreakerTakesALateSuccessForAHint(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "billing")
	r.open("k")
	r.report("k", 2000, succeeded()) // in flight when it opened
	if r.state("k") != BreakerOpen || r.ask().N != 1 {
		t.Error("the next probe did not come at once")
	}
}

// An answer about the message says that the target works.
func TestBreakerClosesWhenAProbeIsRefused(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "billing")
	r.open("k")
	for id, status := range []string{"503", "404", "422"} {
		r.wait(10 * time.Second)
		g := r.ask()
		if g.N != 1 {
			t.Fatalf("probe %d: %+v", id, g)
		}
		if want := []string{"m1019", "m0", "m1"}[:id+1]; !slices.Equal(g.ExceptIDs, want) { // m1019 opened it
			t.Errorf("probe %d may be one of those that failed: except %v, want %v", id, g.ExceptIDs, want)
		}
		r.claim(g, "k", id)
		r.report("k", id, answered(status))
	}
	if r.state("k") != BreakerClosed {
		t.Error("it did not close")
	}
}

// After a minute in which every delivery was refused for its message, somebody must know.
func TestEveryDeliveryIsRefused(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "billing")
	since := r.now
	refuse := func(n int, over time.Duration) {
		for i := range n {
			r.report("k", i, answered("422"))
			r.wait(over / time.Duration(n))
		}
	}
	refuse(20, 59*time.Second)
	if got := r.g.allRefusedSince(r.now); !got.IsZero() {
		t.Errorf("reported after 59 s: %v", got)
	}
	refuse(1, time.Second)
	if got := r.g.allRefusedSince(r.now); !got.Equal(since) {
		t.Errorf("since %v, want %v", got, since)
	}
	r.report("k", 1, succeeded())
	if got := r.g.allRefusedSince(r.now); !got.IsZero() {
		t.Errorf("reported after a success: %v", got)
	}
	refuse(9, 2*time.Minute)
	if got := r.g.allRefusedSince(r.now); !got.IsZero() {
		t.Errorf("reported of nine: %v", got)
	}
}

func TestBreakerWatchesABoundedNumberOfKinds(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "")
	r.open("sick")
	for i := range 10_000 {
		r.report(fmt.Sprint("kind", i), i, failed())
	}
	if n := len(r.g.keys); n > breakerKeys {
		t.Errorf("%d kinds are kept", n)
	}
	if r.state("sick") != BreakerOpen {
		t.Error("an open breaker was forgotten")
	}
}

func TestBreakerHealthyPathAllocatesNothing(t *testing.T) {
	r := newBreakerRig(t, BreakerOptions{}, "")
	d, s := r.delivery("k", 1), succeeded()
	if n := testing.AllocsPerRun(1000, func() {
		r.now = r.now.Add(time.Millisecond)
		g := r.ask()
		r.g.claimed(g, nil)
		r.g.Report(r.now, d, s)
		r.g.Return(r.now, g, 9)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever happens to probes, a breaker whose target has healed closes.
func TestBreakerAlwaysCloses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		target := rapid.SampledFrom([]string{"", "billing"}).Draw(rt, "target")
		r := newBreakerRig(t, BreakerOptions{}, target)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		kinds := []string{"a", "b", "c"}
		id := 0
		step := func(healed bool) {
			r.wait(time.Duration(random.Int64N(int64(2 * time.Second))))
			lane := redrive.Lane(random.IntN(driver.Lanes))
			g := r.g.Reserve(r.now, driver.Ask{Queue: "q", Lane: lane, Max: 1 + random.IntN(8)})
			for n := 0; n < g.N; n++ {
				kind := kinds[random.IntN(len(kinds))]
				if len(g.Kinds) > 0 {
					kind = g.Kinds[random.IntN(len(g.Kinds))]
				}
				if slices.Contains(g.ExceptKinds, kind) || !healed && random.IntN(4) == 0 {
					r.g.Return(r.now, g, 1)
					continue
				}
				id++
				d := r.delivery(kind, id)
				if random.IntN(10) > 0 {
					r.g.claimed(g, []redrive.Delivery{*d})
				}
				s := failed()
				switch {
				case healed:
					s = succeeded()
				case random.IntN(5) == 0:
					s = nil
				case random.IntN(5) == 0:
					s = &driver.Settlement{Outcome: redrive.OutcomeRelease}
				case random.IntN(20) == 0:
					continue // never reported
				}
				r.g.Report(r.now, d, s)
			}
		}
		for range 300 {
			step(false)
		}
		for range 200 {
			step(true)
		}
		for _, s := range r.g.states() {
			if s.State != BreakerClosed {
				rt.Fatalf("200 steps after the target healed: %+v", s)
			}
		}
		if len(r.g.open) != 0 {
			rt.Fatal("closed breakers are kept among the open ones")
		}
	})
}

func BenchmarkBreakerHealthy(b *testing.B) {
	r := newBreakerRig(b, BreakerOptions{}, "")
	ds := make([]*redrive.Delivery, 64)
	for i := range ds {
		ds[i] = r.delivery("k", i)
	}
	s := succeeded()
	b.ReportAllocs()
	for i := range b.N {
		r.now = r.now.Add(10 * time.Microsecond)
		r.g.Report(r.now, ds[i%len(ds)], s)
	}
}
