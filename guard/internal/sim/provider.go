package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// Mode is how a simulated provider behaves for a while.
type Mode uint8

// The modes.
const (
	OK       Mode = iota // as ever
	Errors               // answers with an error at once
	Hang                 // does not answer
	Slow                 // answers rightly, twenty times slower
	Quota                // takes Phase.Rate calls in each second and refuses the others
	Reset                // closes the connection at once
	Flaky                // fails in Phase.Rate of the calls
	ColdBoot             // bears a tenth at first, all after twenty seconds; calls stand in line
	ColdShed             // the same, but what is too much is refused, which costs work too
)

// Timings of the model.
const (
	clientTimeout = 5 * time.Second
	fastAnswer    = 2 * time.Millisecond
	median        = 40 * time.Millisecond
	sigma         = 0.5
	slowFactor    = 20
	warmUp        = 20 * time.Second
	coldShare     = 0.1
	spare         = 1.6 // capacity of a warm provider in units of the normal rate
	longestLine   = 250 * time.Millisecond
	refusalCost   = 0.3 // work of a refusal in units of a call's
)

// Phase is a mode from a time to a time.
type Phase struct {
	From, To time.Duration
	Mode     Mode
	Rate     float64
}

// provider answers calls by its script.
type provider struct {
	script []Phase
	normal float64
	rng    *rand.Rand
	tail   float64 // share of the calls that take ten times as long

	second int64   // of the quota
	used   int     // of the quota in that second
	queued float64 // calls that a cold provider has not worked off
	at     time.Duration
}

func (p *provider) phase(now time.Duration) Phase {
	for _, ph := range p.script {
		if now >= ph.From && now < ph.To {
			return ph
		}
	}
	return Phase{}
}

// call returns how a call that begins now ends, and after what time.
func (p *provider) call(now time.Duration) (time.Duration, machine.Outcome) {
	ph := p.phase(now)
	took := time.Duration(float64(median) * math.Exp(sigma*p.rng.NormFloat64()))
	if p.rng.Float64() < p.tail {
		took *= 10
	}
	ok := machine.Outcome{Class: machine.ClassSuccess}
	failed := machine.Outcome{Class: machine.ClassTransient}
	switch ph.Mode {
	case Errors:
		return fastAnswer, failed
	case Hang:
		return clientTimeout, failed
	case Slow:
		took *= slowFactor
	case Reset:
		return fastAnswer, machine.Outcome{Class: machine.ClassNetwork}
	case Flaky:
		if p.rng.Float64() < ph.Rate {
			return fastAnswer, failed
		}
	case Quota:
		if s := int64(now / time.Second); s != p.second {
			p.second, p.used = s, 0
		}
		if p.used++; float64(p.used) > ph.Rate {
			return fastAnswer, machine.Outcome{Class: machine.ClassLimited, RetryAfter: time.Second}
		}
	case ColdBoot:
		line, _ := p.wait(now, ph)
		took += line
	case ColdShed:
		line, shed := p.wait(now, ph)
		if shed {
			return fastAnswer, failed
		}
		took += line
	}
	if took >= clientTimeout {
		return clientTimeout, failed
	}
	return took, ok
}

// wait is the time in the line of a cold provider, which works also for callers that
// have left: that is what makes an overload feed itself. shed reports that one which
// sheds load refused the call.
func (p *provider) wait(now time.Duration, ph Phase) (line time.Duration, shed bool) {
	warm := min((now-ph.From).Seconds()/warmUp.Seconds(), 1)
	capacity := p.normal * spare * (coldShare + (1-coldShare)*warm)
	p.at = max(p.at, ph.From)
	p.queued = max(p.queued-capacity*(now-p.at).Seconds(), 0)
	p.at = now
	if ph.Mode == ColdShed && p.queued > capacity*longestLine.Seconds() {
		p.queued += refusalCost
		return 0, true
	}
	p.queued++
	return time.Duration(p.queued / capacity * float64(time.Second)), false
}
