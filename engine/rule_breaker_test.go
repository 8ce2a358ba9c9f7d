package engine_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

func TestRule07_BreakerOpensAndProbes(t *testing.T) {
	for _, target := range []string{"", "provider"} {
		t.Run("target="+target, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var sick atomic.Bool
				var attempts atomic.Int32
				probed := make(map[string]bool)
				var mu sync.Mutex
				open := false
				r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
					attempts.Add(1)
					mu.Lock()
					if open {
						probed[d.ID] = true
					}
					mu.Unlock()
					if sick.Load() {
						return errSick
					}
					return nil
				}, engine.QueueOptions{Target: target, Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 3})})
				sick.Store(true)
				r.publish("sms", 500)
				r.start()
				r.within(time.Minute, "the breaker opens", func() bool { return slices.Contains(r.seen.textsOf(engine.OnBreaker), "open") })
				mu.Lock()
				open = true
				mu.Unlock()
				if b := r.status("sms").Breakers; len(b) != 1 || b[0].State != engine.BreakerOpen || !strings.Contains(b[0].Reason, "attempts failed") {
					t.Errorf("status: %+v", b)
				}
				before := attempts.Load()
				pass(5 * time.Minute)
				n := attempts.Load() - before
				if n < 8 || n > 30 {
					t.Errorf("%d probes in five minutes, want one each 1 to 30 s", n)
				}
				mu.Lock()
				if len(probed) < int(n)*2/3 {
					t.Errorf("%d probes were %d messages, want another each time", n, len(probed))
				}
				mu.Unlock()
				if c := r.counts("sms"); c.AllDead() != 0 {
					t.Errorf("%d died of an outage of five minutes", c.AllDead())
				}
				sick.Store(false)
				r.ended(5*time.Minute, "sms")
				if c := r.counts("sms"); c.Ledger.Done != 500 {
					t.Errorf("%d done, %d dead; want 500 and 0", c.Ledger.Done, c.AllDead())
				}
			})
		})
	}
}

func TestRule07_InFlightNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			n, _ := strconv.Atoi(strings.TrimPrefix(d.ID, "sms-"))
			if n >= 20 { // slow ones, in flight when the breaker opens
				<-time.After(5 * time.Second)
			}
			return errSick
		}, engine.QueueOptions{Target: "provider", Concurrency: 30, Policies: fixed(time.Hour, redrive.Policy{})})
		r.publish("sms", 30)
		r.start()
		pass(7 * time.Second)
		uncounted := 0
		for i := range 30 {
			if e := r.entry("sms", "sms-"+strconv.Itoa(i)); e.History.Count == 0 && e.History.First != nil {
				uncounted++
			}
		}
		if uncounted != 10 {
			t.Errorf("%d failures were recorded and not counted, want 10", uncounted)
		}
	})
}

// statusError is an answer of an HTTP target.
type statusError int

func (e statusError) Error() string   { return "the target answered " + strconv.Itoa(int(e)) }
func (e statusError) HTTPStatus() int { return int(e) }

// A target that refuses 200 messages for what they are takes the 200 behind them at once.
func TestRule07_RefusedMessagesHoldNobodyBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("hooks", func(_ context.Context, d *redrive.Delivery) error {
			if d.Kind == "poison" {
				return statusError(422)
			}
			return nil
		}, engine.QueueOptions{Target: "billing"})
		for i := range 400 {
			r.publishAll(redrive.Message{Queue: "hooks", ID: "m" + strconv.Itoa(i), Kind: map[bool]string{true: "poison", false: "good"}[i < 200]})
		}
		r.start()
		pass(time.Second)
		if c := r.counts("hooks"); c.Ledger.Done != 200 || c.Dead[redrive.ReasonPermanent] != 200 {
			t.Errorf("after a second %d of 200 are done, %d dead", c.Ledger.Done, c.AllDead())
		}
		if opened := r.seen.textsOf(engine.OnBreaker); len(opened) != 0 {
			t.Errorf("the breaker changed: %v", opened)
		}
	})
}

func TestRule07_OtherKindsGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var good atomic.Int32
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Kind == "sick" {
				return errSick
			}
			good.Add(1)
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		for i := range 200 {
			r.publishAll(redrive.Message{Queue: "sms", ID: "s" + strconv.Itoa(i), Kind: "sick"})
		}
		r.start()
		pass(10 * time.Second)
		if !slices.Contains(r.seen.textsOf(engine.OnBreaker), "open") {
			t.Fatal("the breaker did not open")
		}
		for i := range 300 {
			r.publishAll(redrive.Message{Queue: "sms", Kind: "well", ID: "w" + strconv.Itoa(i)})
			pass(100 * time.Millisecond)
			if int(good.Load()) < i-1 {
				t.Fatalf("%d of %d of the healthy kind were handled beside an open breaker", good.Load(), i+1)
			}
		}
		pass(time.Second)
		if good.Load() != 300 {
			t.Errorf("%d of 300 of the healthy kind were handled", good.Load())
		}
	})
}

// A probe is never the message that failed last: that one may be poison.
func TestRule07_ProbeIsAnotherMessage(t *testing.T) {
	for _, target := range []string{"", "provider"} {
		t.Run("target="+target, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var mu sync.Mutex
				var tried []string
				r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
					mu.Lock()
					tried = append(tried, d.ID)
					mu.Unlock()
					if d.ID != "sms-0" { // which is due before all others, again and again
						return redrive.RetryAfter(errSick, 900*time.Millisecond)
					}
					return errSick
				}, engine.QueueOptions{Target: target, Concurrency: 1, Policies: fixed(time.Millisecond, redrive.Policy{MaxAttempts: 1000})})
				r.publish("sms", 12)
				r.start()
				r.within(time.Minute, "the breaker opens", func() bool { return slices.Contains(r.seen.textsOf(engine.OnBreaker), "open") })
				synctest.Wait()
				mu.Lock()
				opened := len(tried)
				mu.Unlock()
				pass(5 * time.Minute)
				mu.Lock()
				defer mu.Unlock()
				for i := opened; i < len(tried); i++ {
					if tried[i] == tried[i-1] {
						t.Errorf("probe %d is the message that failed just before: %s", i-opened+1, tried[i])
					}
				}
				if len(tried)-opened < 8 {
					t.Errorf("%d probes in five minutes", len(tried)-opened)
				}
			})
		})
	}
}

// Another handler is tried at once: what the breaker knew, and the pause that was asked for, were
// about the one before. Attempts of that one which end later say nothing about the new one.
func TestRule07_AnotherHandlerIsTriedAtOnce(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run("paused="+strconv.FormatBool(paused), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				o := engine.QueueOptions{Target: "provider", Concurrency: 200, Policies: fixed(time.Second, redrive.Policy{MaxAttempts: 1000, Timeout: time.Hour})}
				hung := make(chan struct{})
				var attempts atomic.Int32
				r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
					attempts.Add(1)
					if n, _ := strconv.Atoi(strings.TrimPrefix(d.ID, "sms-")); n >= 12 && d.Attempt == 1 {
						<-hung
					}
					if paused {
						return redrive.TargetDown(errSick, 0)
					}
					return errSick
				}, o)
				r.publish("sms", 180)
				r.start()
				pass(10*time.Minute - 20*time.Second) // the next probe is 20 s away
				if s := r.status("sms"); (len(s.Paused) == 1) != paused || !paused && s.Breakers[0].State != engine.BreakerOpen {
					t.Fatalf("before: %+v", s)
				}
				if n := attempts.Load(); !paused && n < 168+20+12 {
					t.Errorf("%d attempts: those that hang keep probes from being made", n)
				}
				opened := len(r.seen.textsOf(engine.OnBreaker))
				r.handle("sms", func(context.Context, *redrive.Delivery) error { return nil }, o)
				close(hung)
				r.ended(2*time.Second, "sms") // a backoff
				if s := r.status("sms"); len(s.Paused) != 0 || len(r.seen.textsOf(engine.OnBreaker)) != opened {
					t.Errorf("after: %+v, breaker %v", s, r.seen.textsOf(engine.OnBreaker))
				}
			})
		})
	}
}
