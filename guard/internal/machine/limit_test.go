package machine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLimitIsGivenBack checks that a call which may not begin takes nothing of the
// limit, wherever it is refused.
func TestLimitIsGivenBack(t *testing.T) {
	success := Outcome{Class: ClassSuccess}
	tests := []struct {
		name string
		play func(m *Machine, now time.Duration) (begun int)
	}{
		{"returned", func(m *Machine, now time.Duration) int {
			n, _ := m.Reserve(now, 3)
			m.Return(now, n)
			return 0
		}},
		{"as many in flight as may be", func(m *Machine, now time.Duration) int {
			m.Reserve(now, 1)
			p, _ := m.Acquire(now, false)
			q, _ := m.Acquire(now, false)
			if _, ok := m.Acquire(now, true); ok {
				return -1
			}
			m.Release(p, now, success)
			m.Release(q, now, success)
			return 2
		}},
		{"booked and not called", func(m *Machine, now time.Duration) int {
			m.Book(now)
			m.Unbook()
			return 0
		}},
		{"booked and refused", func(m *Machine, now time.Duration) int {
			m.Book(now)
			p, _ := m.Acquire(now, false)
			q, _ := m.Acquire(now, false)
			if _, ok := m.AcquireBooked(now); ok {
				return -1
			}
			m.Release(p, now, success)
			m.Release(q, now, success)
			return 2
		}},
		{"reserved before it went down", func(m *Machine, now time.Duration) int {
			m.Reserve(now, 1)
			m.Force(now, Down, time.Second, "forced")
			return 0
		}},
		{"a probe that was not made", func(m *Machine, now time.Duration) int {
			m.Force(now, Down, 0, "forced")
			m.Reserve(now, 1)
			m.Return(now, 1)
			m.Reserve(now, 1)
			m.Force(now, Healthy, 0, "forced")
			return 0
		}},
		{"refused by the share", func(m *Machine, now time.Duration) int {
			m.Force(now, Recovering, 0, "forced")
			begun := 0
			for range 5 {
				if p, ok := m.Acquire(now, false); ok {
					m.Release(p, now, success)
					begun++
				}
			}
			return begun
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const now, burst = time.Second, 10
			m := New(Config{MaxInUse: 2}, half)
			m.SetLimit(0, 100, burst, 0)
			begun := tt.play(m, now)
			if left := m.limit.left(now); left != m.limit.burst-float64(begun) {
				t.Errorf("%g of %g left after %d calls", left, m.limit.burst, begun)
			}
			if m.Reserved() != 0 || m.inUse != 0 {
				t.Errorf("%d reserved, %d in use", m.Reserved(), m.inUse)
			}
		})
	}
}

// player makes random use of a machine under a limit.
type player struct {
	m       *Machine
	now     time.Duration
	permits []Permit
	booked  []time.Duration // when the turns come
	granted int             // claims that have neither begun nor been given back
	begun   int
}

func (p *player) keep(permit Permit, ok bool) {
	if ok {
		p.permits = append(p.permits, permit)
		p.begun++
	}
}

func (p *player) step(t *rapid.T) {
	p.now += time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond
	switch rapid.IntRange(0, 6).Draw(t, "step") {
	case 0:
		p.keep(p.m.Acquire(p.now, false))
	case 1:
		p.keep(p.m.Acquire(p.now, true))
		p.granted = max(p.granted-1, 0)
	case 2:
		n, wait := p.m.Reserve(p.now, 5)
		if n < 5 && wait <= 0 {
			t.Fatalf("granted %d of 5 and no time to ask again", n)
		}
		p.granted += n
	case 3:
		p.m.Return(p.now, 1)
		p.granted = max(p.granted-1, 0)
	case 4:
		if wait, ok := p.m.Book(p.now); ok {
			p.booked = append(p.booked, p.now+wait)
		}
	case 5:
		if len(p.booked) > 0 {
			p.now = max(p.now, p.booked[0])
			p.booked = p.booked[1:]
			if rapid.Bool().Draw(t, "stays") {
				p.keep(p.m.AcquireBooked(p.now))
			} else {
				p.m.Unbook()
			}
		}
	default:
		if len(p.permits) > 0 {
			class := rapid.SampledFrom([]Class{ClassSuccess, ClassSuccess, ClassTransient, ClassNetwork, ClassLimited, ClassIgnored}).Draw(t, "class")
			p.m.Release(p.permits[0], p.now, Outcome{Class: class})
			p.permits = p.permits[1:]
		}
	}
}

// TestLimit plays random calls under a limit: it is kept, a machine reserves no more
// than was claimed for, and when all has ended nothing is taken.
func TestLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := slowConfig()
		c.MaxInUse = rapid.SampledFrom([]int{0, 3}).Draw(t, "in use")
		rate, burst := rapid.Float64Range(1, 200).Draw(t, "rate"), rapid.Float64Range(1, 20).Draw(t, "burst")
		p := &player{m: New(c, half)}
		p.m.SetLimit(0, rate, burst, 0)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			p.step(t)
			if most := burst + rate*p.now.Seconds() + 1 + 1e-6; float64(p.begun) > most {
				t.Fatalf("%d calls in %s, at most %g", p.begun, p.now, most)
			}
			if p.m.Reserved() > p.granted {
				t.Fatalf("%d reserved of %d granted", p.m.Reserved(), p.granted)
			}
		}
		p.m.Return(p.now, p.granted)
		for range p.booked {
			p.m.Unbook()
		}
		for _, one := range p.permits {
			p.m.Release(one, p.now, Outcome{Class: ClassIgnored})
		}
		p.now += time.Hour
		if left := p.m.limit.left(p.now); p.m.Reserved() != 0 || p.m.inUse != 0 || left != p.m.limit.burst {
			t.Fatalf("%d reserved, %d in use, %g of %g left after all has ended", p.m.Reserved(), p.m.inUse, left, burst)
		}
	})
}

// A backlog that asks a little later than it was allowed to, as timers do, uses up at least 95 % of a
// small rate, whatever the burst.
func TestBurstWastesLittleOfASmallRate(t *testing.T) {
	const length = time.Minute
	for _, rate := range []float64{0.5, 1, 2, 5, 10, 20, 49} {
		for _, burst := range []float64{0, 1, 2, 5, 20} {
			for _, late := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
				m := New(Config{}, half)
				m.SetLimit(0, rate, burst, 0)
				begun := 0
				const warm = 20 * time.Second
				for now := time.Duration(0); now < warm+length; {
					n, wait := m.Reserve(now, 64)
					for range n {
						p, _ := m.Acquire(now, true)
						m.Release(p, now, Outcome{Class: ClassSuccess})
						if now >= warm {
							begun++
						}
					}
					now += wait + late
				}
				used, most := float64(begun)/(rate*length.Seconds()), 1+(max(burst, 1)+1)/(rate*length.Seconds())
				if used < 0.95 || used > most {
					t.Errorf("%g a second, burst %g, %s late: %.3f of it are used, at most %.3f", rate, burst, late, used, most)
				}
			}
		}
	}
}
