package sim

import (
	"slices"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// Figures are what a run is judged by.
type Figures struct {
	Detect      float64 // seconds from the outage until a second with less than a fifth of the normal rate begins; -1: never
	DetectCalls int     // calls to the sick provider until then
	After       int     // calls to the sick provider from then to the end of the outage
	Sync        float64 // share of the requests that were answered at once
	Undelivered int
	Recovery    float64 // seconds from the end of the outage until 3 s of at least 95 % synchronous answers begin; -1: never
	Drain       float64 // seconds from the end of the outage until the last delivery
	Peak        float64 // calls in any one second after the outage, in units of the normal rate
	P99         float64 // seconds until the caller had an answer
	Rejected    float64 // share of all calls to the provider that it refused for its quota
}

// Figures judges a run by an outage of the first provider.
func (res *Result) Figures(sc *Scenario, from, to time.Duration) Figures {
	f := Figures{Detect: -1, Recovery: -1, Undelivered: res.Pending}
	f.Sync = float64(res.Sync) / float64(max(res.Sent, 1))
	calls := res.Binned[0]
	sum := func(b []int, at, n int) (s int) {
		for i := at; i < min(at+n, len(b)); i++ {
			s += b[i]
		}
		return s
	}
	second := int(time.Second / bin)
	begin, end := int(from/bin), int(to/bin)
	for i := begin; i+second <= end; i++ {
		if float64(sum(calls, i, second)) < sc.Rate/5 {
			f.Detect = float64(i-begin) * bin.Seconds()
			f.DetectCalls = sum(calls, begin, i-begin)
			f.After = sum(calls, i, end-i)
			break
		}
	}
	live := int(sc.Live / bin)
	for i := end; i+3*second <= live; i++ {
		if asked := sum(res.asked, i, 3*second); float64(sum(res.answered, i, 3*second)) >= 0.95*float64(asked) {
			f.Recovery = float64(i-end) * bin.Seconds()
			break
		}
	}
	for i := end; i+second < len(calls); i++ {
		f.Peak = max(f.Peak, float64(sum(calls, i, second))/sc.Rate)
	}
	f.Drain = max(res.LastDelivery-to, 0).Seconds()
	slices.Sort(res.Latencies)
	if n := len(res.Latencies); n > 0 {
		f.P99 = res.Latencies[n*99/100]
	}
	f.Rejected = float64(res.Rejected[0]) / float64(max(res.Calls[0], 1))
	return f
}

// Until returns how many calls to a provider began from a time on and before another.
func (res *Result) Until(provider int, from, to time.Duration) (n int) {
	for _, at := range res.Begun[provider] {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// Guard is a machine as a strategy.
type Guard struct {
	M *machine.Machine
}

// Begin implements Strategy.
func (g *Guard) Begin(now time.Duration, background bool) (func(time.Duration, machine.Outcome), bool) {
	p, ok := g.M.Acquire(now, background)
	if !ok {
		return nil, false
	}
	return func(now time.Duration, v machine.Outcome) { g.M.Release(p, now, v) }, true
}

// Reserve implements Strategy.
func (g *Guard) Reserve(now time.Duration, n int) (int, time.Duration) { return g.M.Reserve(now, n) }
