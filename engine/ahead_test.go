package engine_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// distant gives the store's claims a round trip, and counts them and what they brought.
type distant struct{ claims, claimed atomic.Int64 }

func newDistant(r *rig, takes time.Duration) *distant {
	d := new(distant)
	r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
		<-time.After(takes)
		ds, err := r.store.Claim(ctx, req)
		d.claims.Add(1)
		d.claimed.Add(int64(len(ds)))
		return ds, err
	}
	return d
}

// gauge is a handler that takes a while, and knows how often it ran and ran at once.
type gauge struct {
	mu               sync.Mutex
	ran, now, atOnce int
}

func (g *gauge) handle(takes func() time.Duration) redrive.HandlerFunc {
	return func(context.Context, *redrive.Delivery) error {
		g.mu.Lock()
		g.ran, g.now = g.ran+1, g.now+1
		g.atOnce = max(g.atOnce, g.now)
		g.mu.Unlock()
		<-time.After(takes())
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
		return nil
	}
}

func (g *gauge) count() (ran, atOnce int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ran, g.atOnce
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// Short handlers do not wait for claims: 8 slots and handlers of 1 ms end 8,000 a second although a claim
// takes 4 ms, where claims for free slots would let them end 1,600. No more than 8 run at once.
func TestClaimsRunAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		d, g := newDistant(r, 4*time.Millisecond), new(gauge)
		r.handle("sms", g.handle(always(time.Millisecond)), engine.QueueOptions{Concurrency: 8})
		r.publish("sms", 20_000)
		r.start()
		pass(200 * time.Millisecond)
		before, _ := g.count()
		claims := d.claims.Load()
		pass(time.Second)
		ran, atOnce := g.count()
		if ran -= before; ran < 7800 || atOnce != 8 {
			t.Errorf("%d handled in a second, %d at once; want 8000 and 8", ran, atOnce)
		}
		if n := d.claims.Load() - claims; n > 260 {
			t.Errorf("%d claims in a second", n)
		}
		if s := r.status("sms"); s.Busy > 8 {
			t.Errorf("%d of %d slots taken", s.Busy, s.Slots)
		}
	})
}

// Three processes share a queue: none starves while there is a backlog, nor where what arrives in bursts is
// less than they could handle.
func TestProcessesThatShareAQueueAllWork(t *testing.T) {
	for name, test := range map[string]struct{ backlog, burst int }{
		"a backlog": {backlog: 30_000},
		"bursts":    {burst: 120},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				newDistant(r, 4*time.Millisecond)
				const processes = 3
				var gauges [processes]gauge
				r.handle("sms", gauges[0].handle(always(time.Millisecond)), engine.QueueOptions{Concurrency: 8})
				r.publish("sms", test.backlog)
				r.start()
				for i := 1; i < processes; i++ {
					other := engine.New(r.fail, engine.Options{Instance: "other-" + strconv.Itoa(i)})
					other.IsolateProcess()
					if err := other.Handle("sms", gauges[i].handle(always(time.Millisecond)), engine.QueueOptions{Concurrency: 8}); err != nil {
						t.Fatal(err)
					}
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- other.Run(ctx) }()
					defer func() { stop(); <-ended }()
				}
				pass(100 * time.Millisecond)
				var before, after [processes]int
				count := func(into *[processes]int) (sum int) {
					for i := range into {
						into[i], _ = gauges[i].count()
						sum += into[i]
					}
					return sum
				}
				sum := -count(&before)
				for i := range 100 {
					for n := range test.burst {
						r.publishAll(redrive.Message{Queue: "sms", ID: strconv.Itoa(i) + "-" + strconv.Itoa(n)})
					}
					pass(10 * time.Millisecond)
				}
				sum += count(&after)
				for i := range after {
					if share := float64(after[i]-before[i]) / float64(sum); share < 0.25 {
						t.Errorf("process %d of %d handled %.0f %% of %d messages", i, processes, 100*share, sum)
					}
				}
				if want := 100 * test.burst; sum < want*98/100 || test.backlog > 0 && sum < 20_000 {
					t.Errorf("%d handled in a second", sum)
				}
			})
		})
	}
}

// Where the handler is slow nothing waits in line: another process may have it.
func TestClaimsForSlowHandlersDoNotRunAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		d, g := newDistant(r, 2*time.Millisecond), new(gauge)
		r.handle("sms", g.handle(always(100*time.Millisecond)), engine.QueueOptions{Concurrency: 8})
		r.publish("sms", 2000)
		r.start()
		pass(2 * time.Second)
		if ran, _ := g.count(); int(d.claimed.Load())-ran > 8 {
			t.Errorf("%d claimed, %d begun", d.claimed.Load(), ran)
		}
	})
}

// Handlers that hang from one moment to the next keep no more than their slots.
func TestWhatWaitsBehindHandlersThatHangIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		d, g := newDistant(r, 4*time.Millisecond), new(gauge)
		var hang atomic.Bool
		r.handle("sms", g.handle(func() time.Duration {
			if hang.Load() {
				return time.Minute
			}
			return time.Millisecond
		}), engine.QueueOptions{Concurrency: 8, Policies: fixed(time.Second, redrive.Policy{Timeout: 2 * time.Minute})})
		r.publish("sms", 5000)
		r.start()
		pass(200 * time.Millisecond)
		hang.Store(true)
		pass(2 * time.Second)
		before := d.claimed.Load()
		if c := r.counts("sms"); c.Leased != 8 {
			t.Errorf("%d in flight, want 8", c.Leased)
		}
		pass(10 * time.Second)
		if n := d.claimed.Load() - before; n != 0 {
			t.Errorf("%d more were claimed", n)
		}
		hang.Store(false)
		r.ended(5*time.Minute, "sms")
	})
}

// What was claimed ahead does not begin after a pause, and a stop does not wait for it.
func TestWhatIsAheadIsGivenBackAtAPause(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		newDistant(r, 4*time.Millisecond)
		g := new(gauge)
		r.handle("sms", g.handle(always(10*time.Millisecond)), engine.QueueOptions{Concurrency: 8})
		r.publish("sms", 5000)
		r.start()
		pass(500 * time.Millisecond)
		before, _ := g.count()
		r.engine.Pause("sms", "", "a person", 0)
		pass(time.Second)
		if ran, _ := g.count(); ran-before > 8 {
			t.Errorf("%d began after the pause", ran-before)
		}
		if c := r.counts("sms"); c.Leased != 0 {
			t.Errorf("%d in flight", c.Leased)
		}
		r.engine.Resume("sms", "")
		pass(500 * time.Millisecond)
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 30*time.Millisecond {
			t.Errorf("the stop took %s", took)
		}
	})
}
