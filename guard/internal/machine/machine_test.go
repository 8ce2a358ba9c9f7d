package machine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func half() float64 { return 0.5 }

func slowConfig() Config {
	return Config{Health: Health{SlowAfter: 500 * time.Millisecond}}
}

// down returns a machine that was taken down at one second.
func down(t *testing.T) *Machine {
	t.Helper()
	m := New(slowConfig(), half)
	for range 8 {
		p, ok := m.Acquire(time.Second, false)
		if !ok {
			t.Fatal("refused while healthy")
		}
		m.Release(p, time.Second, Outcome{Class: ClassTransient})
	}
	if m.State() != Down {
		t.Fatalf("after 8 failures in a row it is %s", m.State())
	}
	return m
}

func TestRules(t *testing.T) {
	fail := func(n int, class Class) func(m *Machine) {
		return func(m *Machine) {
			for range n {
				if p, ok := m.Acquire(time.Second, false); ok {
					m.Release(p, time.Second, Outcome{Class: class})
				}
			}
		}
	}
	tests := []struct {
		name  string
		play  func(m *Machine)
		state State
	}{
		{"7 failures in a row", fail(7, ClassTransient), Healthy},
		{"8 failures in a row", fail(8, ClassTransient), Down},
		{"4 network errors", fail(4, ClassNetwork), Healthy},
		{"5 network errors", fail(5, ClassNetwork), Down},
		{"refused for good", fail(100, ClassPermanent), Healthy},
		{"callers that leave", fail(100, ClassIgnored), Healthy},
		{"one 429", fail(1, ClassLimited), Limited},
		{"half of 20 calls", func(m *Machine) {
			for range 10 {
				fail(1, ClassSuccess)(m)
				fail(1, ClassTransient)(m)
			}
		}, Down},
		{"10 hung calls", func(m *Machine) {
			for range 10 {
				m.Acquire(time.Second, false)
			}
			m.Acquire(1700*time.Millisecond, false)
		}, Down},
		{"9 hung calls", func(m *Machine) {
			for range 9 {
				m.Acquire(time.Second, false)
			}
			m.Acquire(1700*time.Millisecond, false)
		}, Healthy},
		{"10 slow answers in a row", func(m *Machine) {
			for i := range 10 {
				at := time.Duration(i+1) * time.Second
				p, _ := m.Acquire(at, false)
				m.Release(p, at+600*time.Millisecond, Outcome{Class: ClassSuccess})
			}
		}, Down},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New(slowConfig(), half)
			tt.play(m)
			if m.State() != tt.state {
				t.Errorf("it is %s (%s), want %s", m.State(), m.reason, tt.state)
			}
		})
	}
}

func TestTrend(t *testing.T) {
	for _, literal := range []bool{false, true} {
		c := Config{Health: Health{TrendFactor: 2, TrendLast: literal}}
		m := New(c, half)
		tripped := time.Duration(0)
		var open []Permit
		for at := time.Duration(0); at < 20*time.Second && tripped == 0; at += 10 * time.Millisecond {
			took := 60 * time.Millisecond
			if at >= 10*time.Second {
				took = 200 * time.Millisecond
			}
			for len(open) > 0 && at-open[0].began >= took {
				m.Release(open[0], at, Outcome{Class: ClassSuccess})
				open = open[1:]
			}
			if p, ok := m.Acquire(at, false); ok {
				open = append(open, p)
			}
			if m.State() == Down {
				tripped = m.since
			}
		}
		if tripped < 10*time.Second || tripped > 13*time.Second {
			t.Errorf("literal %v: tripped at %s, want soon after 10 s", literal, tripped)
		}
	}
}

func TestResultsFromBeforeAreDropped(t *testing.T) {
	m := New(slowConfig(), half)
	var old []Permit
	for range 5 {
		p, _ := m.Acquire(time.Second, false)
		old = append(old, p)
	}
	for range 8 {
		p, _ := m.Acquire(time.Second, false)
		m.Release(p, time.Second, Outcome{Class: ClassTransient})
	}
	probe, ok := m.Acquire(3*time.Second, false)
	if !ok || !probe.Canary() {
		t.Fatal("no probe after the hold")
	}
	for _, p := range old {
		m.Release(p, 3*time.Second, Outcome{Class: ClassSuccess})
	}
	if m.State() != Down {
		t.Errorf("results from before the outage closed it: %s", m.State())
	}
	m.Release(probe, 3*time.Second+time.Millisecond, Outcome{Class: ClassSuccess})
	if p, ok := m.Acquire(3*time.Second+time.Millisecond, false); !ok || !p.Canary() {
		t.Error("no second probe")
	}
}

func TestProbesComeFromTheBacklogFirst(t *testing.T) {
	m := down(t)
	if n, wait := m.Reserve(time.Second, 5); n != 0 || wait <= 0 {
		t.Fatalf("granted %d in the hold", n)
	}
	if _, ok := m.Acquire(2*time.Second, false); ok {
		t.Error("a live call was the probe while there is a backlog")
	}
	if n, _ := m.Reserve(2*time.Second, 5); n != 1 {
		t.Fatalf("granted %d after the hold, want 1", n)
	}
	if n, _ := m.Reserve(2*time.Second, 5); n != 0 {
		t.Fatal("two probes at once")
	}
	p, ok := m.Acquire(2*time.Second, true)
	if !ok || !p.Canary() {
		t.Fatal("the reserved probe was refused")
	}
	m.Release(p, 2*time.Second+10*time.Millisecond, Outcome{Class: ClassTransient})
	if got := m.hold.length; got != 2*time.Second {
		t.Errorf("the hold is %s after a failed probe, want 2 s", got)
	}
}

func TestProbeThatHangsHasFailed(t *testing.T) {
	m := down(t)
	p, ok := m.Acquire(3*time.Second, false)
	if !ok {
		t.Fatal("no probe")
	}
	m.advance(3*time.Second + 500*time.Millisecond)
	if m.hold.length != 2*time.Second || m.hold.probing {
		t.Errorf("a probe past the threshold is still waited for: %+v", m.hold)
	}
	m.Release(p, 4*time.Second, Outcome{Class: ClassSuccess})
	if m.hold.good != 0 {
		t.Error("a probe that came too late was counted")
	}
}

func TestFixedExit(t *testing.T) {
	m := New(Config{After: time.Minute}, half)
	m.Force(time.Second, Down, time.Minute, "test")
	if _, ok := m.Acquire(60*time.Second, false); ok {
		t.Error("let through before the time")
	}
	if _, ok := m.Acquire(62*time.Second, false); !ok {
		t.Error("refused after the time")
	}
}

func TestIsolation(t *testing.T) {
	m := New(Config{}, half)
	m.Force(0, Isolated, time.Minute, "maintenance")
	for at := time.Duration(0); at < time.Minute; at += time.Second {
		if _, ok := m.Acquire(at, false); ok {
			t.Fatalf("let through at %s", at)
		}
		if n, _ := m.Reserve(at, 1); n > 0 {
			t.Fatalf("granted at %s", at)
		}
	}
	if p, ok := m.Acquire(time.Minute+backlogFirst+time.Second, false); !ok || !p.Canary() {
		t.Error("no probe after the isolation")
	}
}

func TestSaved(t *testing.T) {
	m := down(t)
	s := m.Save(time.Second)
	n := New(slowConfig(), half)
	n.Restore(0, s, 300*time.Millisecond)
	if n.State() != Down || n.hold.until != s.Left-300*time.Millisecond {
		t.Errorf("restored %s until %s, want down until %s", n.State(), n.hold.until, s.Left-300*time.Millisecond)
	}
}

// TestMachine plays random calls, and checks what must hold whatever happens.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := slowConfig()
		if rapid.Bool().Draw(t, "limited") {
			c.MaxInUse = 5
		}
		m := New(c, half)
		now, inUse := time.Duration(0), 0
		var permits, probes []Permit
		share := 0.0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				p, ok := m.Acquire(now, rapid.Bool().Draw(t, "background"))
				if !ok {
					break
				}
				inUse++
				permits = append(permits, p)
				if p.canary {
					live := 0
					for _, q := range probes {
						if q.gen == m.gen {
							live++
						}
					}
					if live > 0 {
						t.Fatal("two probes at once")
					}
					probes = append(probes, p)
				}
			case 2:
				n, wait := m.Reserve(now, 3)
				if n < 3 && wait <= 0 {
					t.Fatalf("granted %d of 3 and no time to ask again", n)
				}
				m.Return(now, rapid.IntRange(0, n).Draw(t, "unused"))
			default:
				if len(permits) == 0 {
					break
				}
				i := rapid.IntRange(0, len(permits)-1).Draw(t, "which")
				p := permits[i]
				permits = append(permits[:i], permits[i+1:]...)
				for j, q := range probes {
					if q == p {
						probes = append(probes[:j], probes[j+1:]...)
						break
					}
				}
				class := rapid.SampledFrom([]Class{ClassSuccess, ClassSuccess, ClassTransient, ClassNetwork, ClassLimited, ClassPermanent, ClassIgnored}).Draw(t, "class")
				before, was := m.gen, m.State()
				m.Release(p, now, Outcome{Class: class})
				inUse--
				if p.gen != before && m.State() != was {
					// Only time may have done that, or the rule of hung calls.
					if cs := m.Changes(); len(cs) == 0 || cs[len(cs)-1].From != was {
						t.Fatalf("a result of an older generation changed %s to %s", was, m.State())
					}
				}
				if m.State() == Recovering && was == Recovering && m.ramp.share > share && share > 0 && class != ClassSuccess && class != ClassPermanent && m.ramp.bad > 1 {
					t.Fatalf("the share rose to %g after failures", m.ramp.share)
				}
			}
			share = 0
			if m.State() == Recovering {
				share = m.ramp.share
			}
			if m.inUse != inUse {
				t.Fatalf("%d in use, want %d", m.inUse, inUse)
			}
			if c.MaxInUse > 0 && m.inUse > c.MaxInUse {
				t.Fatalf("%d in use, more than %d", m.inUse, c.MaxInUse)
			}
		}
		// Every state has an exit: with a provider that answers it gets healthy.
		for _, p := range permits {
			m.Release(p, now, Outcome{Class: ClassIgnored})
		}
		for range 30_000 {
			now += 50 * time.Millisecond
			if p, ok := m.Acquire(now, false); ok {
				m.Release(p, now+time.Millisecond, Outcome{Class: ClassSuccess})
			}
			if m.State() == Healthy {
				return
			}
		}
		t.Fatalf("still %s (%s) after 25 minutes of success", m.State(), m.reason)
	})
}

func BenchmarkMachine(b *testing.B) {
	m := New(slowConfig(), half)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		p, _ := m.Acquire(now, false)
		m.Release(p, now+time.Microsecond, Outcome{Class: ClassSuccess})
	}
}

// TestPace counts how many calls of the backlog a healthy provider gets in its tenth
// second, beside 100 live calls a second.
func TestPace(t *testing.T) {
	tests := []struct {
		name     string
		cfg      Config
		min, max int
	}{
		{"adapted", Config{}, 50, 62},
		{"a quarter", Config{Preset: Preset{MaxShare: 0.25}}, 22, 28},
		{"fixed", Config{Fixed: 7}, 6, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New(tt.cfg, half)
			n := 0
			for at := time.Duration(0); at < 10*time.Second; at += 10 * time.Millisecond {
				if p, ok := m.Acquire(at, false); ok {
					m.Release(p, at, Outcome{Class: ClassSuccess})
				}
				granted, _ := m.Reserve(at, 100)
				for range granted {
					p, ok := m.Acquire(at, true)
					if !ok {
						t.Fatal("what was reserved was refused")
					}
					m.Release(p, at, Outcome{Class: ClassSuccess})
				}
				if at >= 9*time.Second {
					n += granted
				}
			}
			if n < tt.min || n > tt.max {
				t.Errorf("%d calls of the backlog in a second, want %d to %d", n, tt.min, tt.max)
			}
		})
	}
}
