package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

func TestRule07_OwnRefusalPauses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var attempts atomic.Int32
		var secret atomic.Bool
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			attempts.Add(1)
			if !secret.Load() {
				return redrive.TargetDown(errors.New("the secret SMS_SECRET is missing"), 0)
			}
			return nil
		}, engine.QueueOptions{Target: "provider", Concurrency: 5, Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 1})})
		r.publish("sms", 50)
		r.start()
		pass(10 * time.Minute)
		if n := attempts.Load(); n > 5 {
			t.Errorf("%d attempts against a paused target", n)
		}
		s := r.status("sms")
		if len(s.Paused) != 1 || s.Paused[0].Target != "provider" || !strings.Contains(s.Paused[0].Reason, "SMS_SECRET") || !strings.Contains(s.Refused, "SMS_SECRET") {
			t.Errorf("status: %+v", s)
		}
		if c := r.counts("sms"); c.AllDead() != 0 || c.AllWaiting() != 50 {
			t.Errorf("counts: %+v", c)
		}
		if e := r.entry("sms", "sms-0"); e.Attempts != 0 || e.History.Count != 0 {
			t.Errorf("a refusal of our own was counted: %+v", e)
		}
		secret.Store(true)
		r.engine.Resume("sms", "provider")
		r.ended(time.Second, "sms")
		if s := r.status("sms"); s.Refused != "" || len(s.Paused) != 0 {
			t.Errorf("nothing is held back any more: %+v", s)
		}
	})
}

func TestRule07_PauseForAWhileAndByKind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var a, b tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Kind == "a" {
				if a.add(d.ID); a.sum() == 1 {
					return redrive.TargetDown(errSick, time.Minute)
				}
				return nil
			}
			b.add(d.ID)
			return nil
		}, engine.QueueOptions{Concurrency: 1})
		for i := range 20 {
			r.publishAll(redrive.Message{Queue: "sms", ID: strconv.Itoa(i), Kind: []string{"a", "b"}[i%2]})
		}
		r.start()
		pass(59 * time.Second)
		if a.sum() != 1 || b.sum() != 10 {
			t.Errorf("%d of the paused kind and %d of the other, want 1 and 10", a.sum(), b.sum())
		}
		r.ended(3*time.Second, "sms")
	})
}

func TestRule07_PausedKindInAllLanesDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var claims atomic.Int32
		r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
			claims.Add(1)
			return r.store.Claim(ctx, req)
		}
		var entries []redrive.Entry
		for l := range driver.Lanes {
			entries = append(entries, redrive.Entry{Message: redrive.Message{Queue: "sms", Kind: "paused"}, State: redrive.StateWaiting, Lane: redrive.Lane(l)})
		}
		if _, err := r.store.Apply(t.Context(), driver.Batch{Put: entries}); err != nil {
			t.Fatal(err)
		}
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			handled.add(d.Kind)
			return nil
		})
		r.engine.Pause("sms", "paused", "maintenance", 0)
		r.start()
		pass(time.Minute)
		if n := claims.Load(); n > 300 {
			t.Errorf("%d claims in a minute: it spins", n)
		}
		if len(r.status("sms").Unhandled) > 0 {
			t.Error("the status says that nobody handles what is only paused")
		}
		r.publishAll(redrive.Message{Queue: "sms", Kind: "other"})
		pass(time.Millisecond)
		if handled.of("other") != 1 || handled.of("paused") != 0 {
			t.Errorf("handled: %v", handled.n)
		}
		r.engine.Resume("sms", "paused")
		r.ended(100*time.Millisecond, "sms")
	})
}

func TestRule07_ExpiryGoesOnWhileNothingIsClaimed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			t.Error("something was handled in a paused queue")
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{MaxAge: 2 * time.Minute})})
		r.start()
		r.engine.Pause("sms", "", "maintenance", 0)
		now := time.Now()
		for i := range 1000 {
			r.publishAll(redrive.Message{Queue: "sms", ID: "e" + strconv.Itoa(i), ExpiresAt: now.Add(30 * time.Second)})
		}
		r.publish("sms", 10)
		pass(20 * time.Second)
		if c := r.counts("sms"); c.AllWaiting() != 1010 {
			t.Errorf("counts before anything expired: %+v", c)
		}
		r.within(25*time.Second, "what expired is dead", func() bool { return r.counts("sms").Dead[redrive.ReasonExpired] == 1000 })
		r.within(90*time.Second, "what is too old is dead", func() bool { return r.counts("sms").Dead[redrive.ReasonExpired] == 1010 })
	})
}

func TestRule08_RetriesDoNotStarveFresh(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var fresh, retried atomic.Int32
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Attempt > 1 || d.Kind == "bad" {
				retried.Add(1)
				<-time.After(10 * time.Second) // slow failures
				return errSick
			}
			<-time.After(50 * time.Millisecond)
			fresh.Add(1)
			return nil
		}, engine.QueueOptions{Concurrency: 20, Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(time.Second, redrive.Policy{Timeout: time.Minute, MaxAttempts: 1000})})
		for i := range 500 {
			r.publishAll(redrive.Message{Queue: "sms", ID: "bad" + strconv.Itoa(i), Kind: "bad"})
		}
		r.start()
		r.within(20*time.Minute, "all bad ones have failed once", func() bool { return r.counts("sms").Waiting[redrive.LaneFresh] == 0 })
		fresh.Store(0)
		for range 60 {
			for range 50 {
				r.publishAll(redrive.Message{Queue: "sms", Kind: "good"})
			}
			pass(time.Second)
		}
		pass(10 * time.Second) // what is in flight at a handler is not taken back
		if n := fresh.Load(); n != 60*50 {
			t.Errorf("%d of 3000 fresh messages were handled beside 500 slow retries", n)
		}
	})
}

// A target that is half broken gets less than half as much again as what it gets when it is
// well, over any ten seconds: its slots bound the calls and the lanes the retries among them,
// and where a kind or a time fails as a whole the breaker lets nothing but probes through.
func TestRule08_HalfBrokenTarget(t *testing.T) {
	const (
		rate, slots = 60, 8 // slots for 80 calls a second
		call        = 100 * time.Millisecond
		second      = 10 // steps
		sick        = 3 * time.Minute
	)
	for _, c := range []struct {
		name  string
		fails func(r *rand.Rand, kind string, at time.Duration) bool
	}{
		{"each call by chance", func(r *rand.Rand, _ string, _ time.Duration) bool { return r.IntN(2) == 0 }},
		{"one of two kinds", func(_ *rand.Rand, kind string, _ time.Duration) bool { return kind == "a" }},
		{"half of each minute", func(_ *rand.Rand, _ string, at time.Duration) bool { return at%time.Minute < time.Minute/2 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				rnd := rand.New(rand.NewPCG(8, 8))
				began := time.Now()
				var mu sync.Mutex
				calls, late, published := make([]int, 600), 0, make(map[string]time.Time)
				r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
					at := time.Since(began)
					<-time.After(call)
					mu.Lock()
					defer mu.Unlock()
					calls[at/time.Second]++
					if d.Attempt == 1 && time.Since(published[d.ID]) > 2*time.Second && c.name == "each call by chance" {
						late++
					}
					if at < sick && c.fails(rnd, d.Kind, at) {
						return errSick
					}
					return nil
				}, engine.QueueOptions{Concurrency: slots, Policies: engine.Policies{Default: redrive.Policy{MaxAttempts: 1000}}})
				r.start()
				n := 0
				for time.Since(began) < sick {
					for range rate / second {
						m := redrive.Message{Queue: "sms", ID: strconv.Itoa(n), Kind: []string{"a", "b"}[n%2]}
						mu.Lock()
						published[m.ID] = time.Now()
						mu.Unlock()
						r.publishAll(m)
						n++
					}
					pass(time.Second / second)
				}
				mu.Lock()
				worst := 0
				for i := range int(sick/time.Second) - 10 {
					sum := 0
					for _, v := range calls[i : i+10] {
						sum += v
					}
					worst = max(worst, sum)
				}
				t.Logf("at most %.2f times the normal load; %d fresh messages late", float64(worst)/(10*rate), late)
				if worst >= 15*rate {
					t.Errorf("%d calls in 10 s, normal are %d", worst, 10*rate)
				}
				if late > 0 {
					t.Errorf("%d of %d fresh messages waited for longer than 2 s behind retries", late, n)
				}
				mu.Unlock()
				r.ended(30*time.Minute, "sms")
				if k := r.counts("sms"); k.Ledger.Done != int64(n) {
					t.Errorf("%d of %d are done", k.Ledger.Done, n)
				}
			})
		})
	}
}

// What the policy says, and the log repeats, is what happens: nothing else delays a retry
// while slots are free.
func TestRule08_BackoffIsWhatHappens(t *testing.T) {
	const bad, attempts, base = 40, 8, 400 * time.Millisecond
	var mu sync.Mutex
	again := make(map[string][]time.Duration) // as logged
	log := slog.New(eachLine(func(record slog.Record) {
		if record.Message != "attempt failed" {
			return
		}
		var id string
		var after time.Duration
		record.Attrs(func(a slog.Attr) bool {
			switch a.Key {
			case "id":
				id = a.Value.String()
			case "again_in":
				after = a.Value.Duration()
			}
			return true
		})
		mu.Lock()
		again[id] = append(again[id], after)
		mu.Unlock()
	}))
	bubble(t, func(t *testing.T, r *rig) {
		tried := make(map[string][]time.Time)
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if !strings.HasPrefix(d.ID, "sms-") {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			tried[d.ID] = append(tried[d.ID], time.Now())
			return errSick
		}, engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{MaxAttempts: attempts, Backoff: redrive.Exponential{Base: base}}}})
		r.start()
		for i := range 120 * 6 {
			if i == 10*6 {
				r.publish("sms", bad)
			}
			for range 10 { // 60 a second
				r.publishAll(redrive.Message{Queue: "sms"})
			}
			pass(time.Second / 6)
		}
		mu.Lock()
		defer mu.Unlock()
		for id, at := range tried {
			if len(at) != attempts || len(again[id]) != attempts-1 {
				t.Fatalf("%s: %d attempts, %d lines of retries", id, len(at), len(again[id]))
			}
			for i, after := range again[id] {
				if most := base << i; after < 0 || after > most {
					t.Errorf("%s waits %s after failure %d, at most %s were configured", id, after, i+1, most)
				}
				if waited := at[i+1].Sub(at[i]); waited < after.Truncate(time.Millisecond) || waited > after+50*time.Millisecond {
					t.Errorf("%s came back after %s, again_in was %s", id, waited, after)
				}
			}
		}
		if len(tried) != bad || r.counts("sms").Dead[redrive.ReasonExhausted] != bad {
			t.Errorf("%d messages failed, %+v", len(tried), r.counts("sms"))
		}
	}, engine.Options{Logger: log})
}

func TestRule08_LanesShareByWeight(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var lanes [driver.Lanes]atomic.Int32
		var measuring atomic.Bool
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			<-time.After(time.Second)
			if measuring.Load() {
				lanes[d.Lane].Add(1)
			}
			return nil
		}, engine.QueueOptions{Concurrency: 22})
		var entries []redrive.Entry
		for i := range 3000 {
			entries = append(entries, redrive.Entry{Message: redrive.Message{Queue: "sms", ID: strconv.Itoa(i)},
				State: redrive.StateWaiting, Lane: redrive.Lane(i % 3)})
		}
		if _, err := r.store.Apply(t.Context(), driver.Batch{Put: entries}); err != nil {
			t.Fatal(err)
		}
		r.start()
		pass(20 * time.Second)
		measuring.Store(true)
		pass(20 * time.Second)
		for l, want := range []int32{320, 80, 40} {
			if n := lanes[l].Load(); n < want*3/4 || n > want*5/4 {
				t.Errorf("lane %s: %d of 440 slots, want about %d", redrive.Lane(l), n, want)
			}
		}
		measuring.Store(false)
		r.ended(10*time.Minute, "sms")
	})
}

func TestRule10_LedgerBalancesAfterAMixedRun(t *testing.T) {
	const seed = 11
	bubble(t, func(t *testing.T, r *rig) {
		rnd := rand.New(rand.NewPCG(seed, seed))
		var mu sync.Mutex
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			mu.Lock()
			n := rnd.IntN(10)
			mu.Unlock()
			switch n {
			case 0:
				return errSick
			case 1:
				return redrive.Permanent(errSick)
			case 2:
				return redrive.Uncounted(errSick, time.Second)
			case 3:
				panic("mixed")
			case 4:
				return redrive.Emit(ctx, redrive.Message{Queue: "out", Body: d.Body})
			case 5:
				if d.Generation < 3 {
					return redrive.RepeatAfter(time.Second)
				}
			case 6:
				return redrive.PermanentAs(errSick, redrive.ReasonUncertain)
			}
			return nil
		}, engine.QueueOptions{Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 3})})
		r.publish("sms", 2000)
		r.start()
		r.ended(30*time.Minute, "sms")
		c := r.counts("sms")
		if got := c.Ledger.Done + c.AllDead() - c.Ledger.Repeated; got != 2000 {
			t.Errorf("%d done and dead, want 2000: %+v", got, c)
		}
		r.balanced()
	})
}

func TestRule11_EmitsPassTheBacklogLimits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		limiter := backlog.New(r.store, func(queue string) backlog.Limits {
			if queue == "out" {
				return backlog.Limits{Depth: 10}
			}
			return backlog.Limits{}
		}, backlog.Options{})
		e := engine.New(r.fail, engine.Options{Observer: r.seen, Backlog: limiter})
		e.IsolateProcess()
		r.engine = e
		var refused atomic.Int32
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			<-time.After(60 * time.Millisecond) // the counts are read each 100 ms
			err := redrive.Emit(ctx, redrive.Message{Queue: "out"})
			if errors.Is(err, redrive.ErrBacklogged) {
				refused.Add(1)
			}
			return err
		}, engine.QueueOptions{Concurrency: 2, Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 1000})})
		r.publish("sms", 50)
		r.start()
		pass(time.Minute)
		if c := r.counts("out"); c.AllWaiting() < 10 || c.AllWaiting() > 30 || refused.Load() == 0 {
			t.Errorf("%d emitted above a backlog limit of 10, %d refused", c.AllWaiting(), refused.Load())
		}
		r.handle("out", func(context.Context, *redrive.Delivery) error { return nil })
		r.ended(time.Hour, "sms")
		r.ended(time.Minute, "out")
		if n := r.counts("out").Ledger.Done; n != 50 {
			t.Errorf("%d emits arrived, want 50", n)
		}
	})
}

func TestRule12_OrderByKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		if err := r.store.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(5, 5))
		var mu sync.Mutex
		last := make(map[string]int)
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			mu.Lock()
			fails, pause := rnd.IntN(3) == 0, time.Duration(rnd.IntN(50))*time.Millisecond
			mu.Unlock()
			<-time.After(pause)
			if fails {
				return errSick
			}
			n, _ := strconv.Atoi(string(d.Body))
			mu.Lock()
			defer mu.Unlock()
			if last[d.Key]+1 != n {
				t.Errorf("key %s: %d was handled after %d", d.Key, n, last[d.Key])
			}
			last[d.Key] = n
			return nil
		}, engine.QueueOptions{Breaker: engine.BreakerOptions{Off: true}, Policies: fixed(200*time.Millisecond, redrive.Policy{MaxAttempts: 100})})
		r.start()
		for n := range 50 {
			for key := range 20 {
				r.publishAll(redrive.Message{Queue: "sms", Key: "k" + strconv.Itoa(key), Body: fmt.Append(nil, n+1)})
			}
		}
		r.ended(time.Hour, "sms")
		for key, n := range last {
			if n != 50 {
				t.Errorf("key %s ended at %d of 50", key, n)
			}
		}
		if len(last) != 20 {
			t.Errorf("%d keys", len(last))
		}
	})
}
