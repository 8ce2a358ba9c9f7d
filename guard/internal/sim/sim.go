// Package sim plays scripted outages of providers against a strategy that admits
// calls, with live callers and a queue behind them, in virtual time. Everything
// follows from the seed.
package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redrive/redrive/guard/internal/machine"
)

// Strategy admits calls to one provider.
type Strategy interface {
	// Begin asks for a call. end is called when it ended.
	Begin(now time.Duration, background bool) (end func(now time.Duration, v machine.Outcome), ok bool)
	// Reserve grants up to n calls of the backlog before they are claimed, and says
	// when to ask again if it grants less.
	Reserve(now time.Duration, n int) (granted int, wait time.Duration)
}

// Scenario is what is played.
type Scenario struct {
	Seed      uint64
	Rate      float64       // live calls a second
	Live      time.Duration // how long there are live calls
	After     time.Duration // how long the queue may be worked off then
	Providers [][]Phase     // scripts, in order of preference
	Tail      float64       // share of the calls that take ten times as long
	Workers   int           // of the queue; 0: 50
	// Tick is called before each event with the time that has passed since the one
	// before, so that strategies that read a clock see it move.
	Tick func(d time.Duration)
}

// retryDelay is how long a message that failed waits.
const retryDelay = time.Second

// bin is the resolution of what is counted over time.
const bin = 100 * time.Millisecond

// Run is a scenario in progress.
type Run struct {
	sc         Scenario
	rng        *rand.Rand
	strategies []Strategy
	providers  []*provider
	now        time.Duration
	events     events
	seq        int

	ready    []request // due in the queue
	delayed  int
	busy     int
	asking   bool
	failover bucket

	res Result
}

type request struct{ sent time.Duration }

// Result is what came of a run.
type Result struct {
	Sent, Sync, Delivered, Pending int
	Calls                          []int             // by provider
	Rejected                       []int             // calls that a provider refused for its quota, by provider
	Binned                         [][]int           // calls begun in each bin, by provider
	Begun                          [][]time.Duration // when they began
	asked, answered                []int             // live, by bin
	Latencies                      []float64         // seconds until the caller had an answer
	LastDelivery                   time.Duration
}

// Play runs a scenario to its end. It returns an error if a request vanished.
func Play(sc Scenario, strategies ...Strategy) (*Result, error) {
	if sc.Workers == 0 {
		sc.Workers = 50
	}
	r := &Run{sc: sc, rng: rand.New(rand.NewPCG(sc.Seed, 1)), strategies: strategies}
	bins := int((sc.Live+sc.After)/bin) + 2
	for i, script := range sc.Providers {
		r.providers = append(r.providers, &provider{script: script, normal: sc.Rate, tail: sc.Tail,
			rng: rand.New(rand.NewPCG(sc.Seed, uint64(i)+2))})
		r.res.Binned = append(r.res.Binned, make([]int, bins))
	}
	r.res.Calls = make([]int, len(sc.Providers))
	r.res.Rejected = make([]int, len(sc.Providers))
	r.res.Begun = make([][]time.Duration, len(sc.Providers))
	r.res.asked, r.res.answered = make([]int, bins), make([]int, bins)
	r.at(r.gap(), r.arrive)
	for len(r.events) > 0 {
		e := heap.Pop(&r.events).(event)
		if e.at > sc.Live+sc.After {
			break
		}
		if sc.Tick != nil && e.at > r.now {
			sc.Tick(e.at - r.now)
		}
		r.now = e.at
		e.f()
	}
	r.res.Pending = len(r.ready) + r.delayed + r.busy
	if lost := r.res.Sent - r.res.Sync - r.res.Delivered - r.res.Pending; lost != 0 {
		return &r.res, fmt.Errorf("seed %d: %d of %d requests vanished", sc.Seed, lost, r.res.Sent)
	}
	return &r.res, nil
}

func (r *Run) gap() time.Duration {
	return time.Duration(r.rng.ExpFloat64() / r.sc.Rate * float64(time.Second))
}

// arrive is a live call.
func (r *Run) arrive() {
	if next := r.now + r.gap(); next < r.sc.Live {
		r.at(next-r.now, r.arrive)
	}
	r.res.Sent++
	r.res.asked[r.now/bin]++
	r.try(request{sent: r.now}, 0, r.now)
}

// try makes a live call with the first provider from i on that admits it.
func (r *Run) try(q request, i int, began time.Duration) {
	for ; i < len(r.strategies); i++ {
		end, ok := r.strategies[i].Begin(r.now, false)
		if !ok {
			continue
		}
		r.call(i, func(v machine.Outcome) {
			end(r.now, v)
			switch {
			case v.Class == machine.ClassSuccess:
				r.res.Sync++
				r.res.answered[began/bin]++
				r.res.Latencies = append(r.res.Latencies, (r.now - began).Seconds())
			case i+1 < len(r.strategies) && r.failover.take(r.now):
				r.try(q, i+1, began)
			default:
				r.put(q, began)
			}
		})
		return
	}
	r.put(q, began)
}

func (r *Run) put(q request, began time.Duration) {
	r.res.Latencies = append(r.res.Latencies, (r.now - began).Seconds())
	r.ready = append(r.ready, q)
	r.work()
}

func (r *Run) call(i int, end func(machine.Outcome)) {
	took, v := r.providers[i].call(r.now)
	r.res.Calls[i]++
	r.res.Binned[i][r.now/bin]++
	r.res.Begun[i] = append(r.res.Begun[i], r.now)
	if v.Class == machine.ClassLimited {
		r.res.Rejected[i]++
	}
	r.at(took, func() { end(v) })
}

// work claims from the queue what the strategies grant.
func (r *Run) work() {
	if r.asking {
		return
	}
	wait := time.Duration(0)
	for i, s := range r.strategies {
		n := min(len(r.ready), r.sc.Workers-r.busy)
		if n == 0 {
			return
		}
		granted, again := s.Reserve(r.now, n)
		for range granted {
			q := r.ready[0]
			r.ready = r.ready[1:]
			r.deliver(i, q)
		}
		if granted < n && (wait == 0 || again < wait) {
			wait = again
		}
	}
	if wait > 0 {
		r.asking = true
		r.at(wait, func() {
			r.asking = false
			r.work()
		})
	}
}

func (r *Run) deliver(i int, q request) {
	end, ok := r.strategies[i].Begin(r.now, true)
	if !ok {
		r.later(q)
		return
	}
	r.busy++
	r.call(i, func(v machine.Outcome) {
		end(r.now, v)
		r.busy--
		if v.Class == machine.ClassSuccess {
			r.res.Delivered++
			r.res.LastDelivery = r.now
		} else {
			r.later(q)
		}
		r.work()
	})
}

func (r *Run) later(q request) {
	r.delayed++
	r.at(retryDelay, func() {
		r.delayed--
		r.ready = append(r.ready, q)
		r.work()
	})
}

// bucket is the budget of failovers: 20 % of the live calls, or 10 a second.
type bucket struct {
	tokens float64
	at     time.Duration
}

func (b *bucket) take(now time.Duration) bool {
	const rate, burst = 40, 40
	b.tokens = min(b.tokens+rate*(now-b.at).Seconds(), burst)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (r *Run) at(d time.Duration, f func()) {
	r.seq++
	heap.Push(&r.events, event{at: r.now + d, seq: r.seq, f: f})
}

type event struct {
	at  time.Duration
	seq int
	f   func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = slices.Delete(old, len(old)-1, len(old))
	return last
}
