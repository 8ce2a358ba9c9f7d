package guard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// rated is a provider that bears a rate, and counts its calls by the second and by who
// made them.
type rated struct {
	mu    sync.Mutex
	began time.Time
	old   []int // calls of what was put off before, by second
	all   []int

	worked int // calls of what was put off before, since ever
}

const ratedTook = 20 * time.Millisecond

func (r *rated) call(_ context.Context, o order) (receipt, error) {
	r.mu.Lock()
	late := strings.HasPrefix(o.ID, "old")
	if late {
		r.worked++
	}
	if s := int(time.Since(r.began) / time.Second); !r.began.IsZero() {
		for len(r.all) <= s {
			r.all, r.old = append(r.all, 0), append(r.old, 0)
		}
		r.all[s]++
		if late {
			r.old[s]++
		}
	}
	r.mu.Unlock()
	pass(ratedTook)
	return receipt{}, nil
}

// count begins to count.
func (r *rated) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = time.Now()
}

func (r *rated) sum() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.old {
		n += c
	}
	return n
}

const (
	limit  = 100 // calls a second
	putOff = 4000
)

// ratedGuards returns guards under one limit whose usual rate is just below it, with a
// backlog and consumers for it.
func ratedGuards(t *testing.T, n int) (guards []*guard.Guard[order, receipt], r *rated, stop func()) {
	t.Helper()
	store := memory.New()
	r = &rated{}
	var stops []func()
	for range n {
		g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: store, Shared: n > 1, Deferral: deferral,
			Providers: []guard.Provider[order, receipt]{{Name: "a", Call: r.call, MaxRate: limit}}})
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g)
		stops = append(stops, run(t, g))
	}
	pass(5 * time.Second) // all know of each other
	live := liveCalls(t, 0.99*limit, time.Minute, guards...)
	if live.put > live.made/50 {
		t.Errorf("%d of %d calls were put off below the limit", live.put, live.made)
	}
	for _, g := range guards {
		if err := g.Force("a", guard.Isolated, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for i := range putOff {
		if res, err := guards[0].Do(t.Context(), order{ID: "old" + strconv.Itoa(i)}); err != nil || !res.Deferred() {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	for _, g := range guards {
		if err := g.Force("a", guard.Healthy, 0); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, consume(t, store, g))
	}
	pass(10 * time.Second) // the pace has grown
	r.count()
	return guards, r, func() {
		for i := range stops {
			stops[len(stops)-1-i]()
		}
	}
}

type liveCount struct{ made, put int }

// liveCalls makes live calls at a rate, by chance, and counts which were put off.
func liveCalls(t *testing.T, perSecond float64, d time.Duration, guards ...*guard.Guard[order, receipt]) (n liveCount) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var calls sync.WaitGroup
	var mu sync.Mutex
	for begin := time.Now(); time.Since(begin) < d; n.made++ {
		// Not quite by chance below the limit: a second has as many as any other.
		pass(time.Duration((0.5 + rng.Float64()) / perSecond * float64(time.Second)))
		g := guards[n.made%len(guards)]
		calls.Go(func() {
			res, err := g.Do(t.Context(), order{})
			if err != nil {
				t.Error(err)
			}
			if res.Deferred() {
				mu.Lock()
				defer mu.Unlock()
				n.put++
			}
		})
	}
	calls.Wait()
	return n
}

// TestRateBacklog works a backlog off under a limit that is below its pace: each second
// is used to the end, by one guard or by two that share the limit.
func TestRateBacklog(t *testing.T) {
	for name, n := range map[string]int{"one instance": 1, "two instances": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guards, r, stop := ratedGuards(t, n)
				pass(2 * putOff / limit * time.Second)
				stop()
				if r.worked != putOff {
					t.Errorf("%d of %d were worked off", r.worked, putOff)
				}
				last := len(r.all) - 1
				for s, calls := range r.all[:last] {
					if calls < limit*95/100 || calls > limit*105/100 {
						t.Errorf("second %d of %d: %d calls of the backlog, limit %d", s, last, calls, limit)
					}
				}
				if last < putOff/limit/2 {
					t.Errorf("the backlog was gone after %d seconds: %v", last, r.all)
				}
				for _, g := range guards {
					held(t, g)
				}
			})
		})
	}
}

// TestRateLiveFirst works a backlog off beside live calls: they are answered at once,
// and the backlog gets what they leave.
func TestRateLiveFirst(t *testing.T) {
	for _, n := range []int{1, 2} {
		for _, rate := range []float64{30, 80} {
			t.Run(strconv.Itoa(n)+" with "+strconv.Itoa(int(rate))+" live", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					guards, r, stop := ratedGuards(t, n)
					const length = 30
					live := liveCalls(t, rate, length*time.Second, guards...)
					drained := float64(r.sum()) / length
					stop()
					t.Logf("%d of %d live calls were put off, %.1f/s of the backlog", live.put, live.made, drained)
					if live.put > live.made/50 {
						t.Errorf("%d of %d live calls were put off", live.put, live.made)
					}
					if rest := limit - rate; drained < 0.9*rest {
						t.Errorf("%.1f/s of the backlog, want %.0f", drained, rest)
					}
					for s, calls := range r.all {
						if calls > limit*105/100 {
							t.Errorf("second %d: %d calls, limit %d", s, calls, limit)
						}
					}
				})
			})
		}
	}
}

// TestRateNotStarved checks that a backlog shrinks although live calls by themselves use the
// limit up.
func TestRateNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guards, r, stop := ratedGuards(t, 1)
		const length = 30
		live := liveCalls(t, 1.5*limit, length*time.Second, guards...)
		drained := float64(r.sum()) / length
		stop()
		if answered := float64(live.made-live.put) / length; answered < 0.7*limit || drained < 0.1*limit {
			t.Errorf("%.1f live calls and %.1f of the backlog a second, limit %d", answered, drained, limit)
		}
	})
}

// TestRateWaits checks how long a live call waits for its turn, and who ends that.
func TestRateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &third{name: "a"}, &third{name: "b"}
		newRated := func(parties ...*third) *guard.Guard[order, receipt] {
			c := guard.Config[order, receipt]{Store: memory.New()}
			for _, p := range parties {
				c.Providers = append(c.Providers, guard.Provider[order, receipt]{Name: p.name, Call: p.call, MaxRate: 10})
			}
			return newGuard(t, c)
		}
		do := func(ctx context.Context, g *guard.Guard[order, receipt]) (guard.Result[receipt], time.Duration, error) {
			begin := time.Now()
			res, err := g.Do(ctx, order{})
			return res, time.Since(begin), err
		}
		g := newRated(a)
		for i, want := range []time.Duration{0, 95 * time.Millisecond} { // a burst is one call and 5 ms
			if res, took, err := do(t.Context(), g); err != nil || res.Deferred() || took.Round(time.Millisecond) != want {
				t.Errorf("call %d: %+v, %v after %s, want an answer after %s", i, res, err, took, want)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if res, took, err := do(short, g); err != nil || !res.Deferred() || took != 0 {
			t.Errorf("a caller with less time: %+v, %v after %s, want a ticket at once", res, err, took)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, leave)
		if res, took, err := do(gone, g); !errors.Is(err, context.Canceled) || took != 30*time.Millisecond {
			t.Errorf("a caller that leaves: %+v, %v after %s", res, err, took)
		}
		if res, took, err := do(t.Context(), g); err != nil || res.Deferred() || took > 71*time.Millisecond {
			t.Errorf("the next one: %+v, %v after %s; its turn was taken", res, err, took)
		}
		// Where another provider has room nobody waits.
		g = newRated(a, b)
		for i, want := range []string{"a", "b", "a"} {
			res, took, err := do(t.Context(), g)
			if err != nil || res.Provider != want || (took > 0) != (i == 2) {
				t.Errorf("call %d: by %q, %v after %s", i, res.Provider, err, took)
			}
		}
		var refused int64
		for _, s := range g.Snapshot() {
			refused += s.Refused
		}
		if refused != 2 { // by a, then by b, while the other one took the call
			t.Errorf("%d refused", refused)
		}
	})
}

// held checks that nothing is taken any more.
func held(t *testing.T, g *guard.Guard[order, receipt]) {
	t.Helper()
	if reserved, inUse, begun := g.Held(); reserved+inUse+begun != 0 {
		t.Errorf("%d reserved, %d in flight, %d begun after all has ended", reserved, inUse, begun)
	}
}

var _ driver.SweepGate = (*guard.Guard[order, receipt])(nil).Gate().(driver.SweepGate)
