package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// crashed claims everything that is due in a queue as another process, which then
// dies. Alone claims one suspect.
func (r *rig) crashed(queue string, alone bool) (n int) {
	r.t.Helper()
	most := 1000
	if alone {
		most = 1
	}
	ds, err := r.store.Claim(r.t.Context(), driver.ClaimRequest{Queue: queue, Max: most, Isolated: alone, Lease: time.Minute, Instance: "victim"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store.Crash("victim")
	return len(ds)
}

func TestRule01_AttemptsCountedAtClaim(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var story []string
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			story = append(story, fmt.Sprintf("attempt %d, failures %d, crashes %d, suspect %t", d.Attempt, d.Failures, d.Crashes, d.Suspect))
			switch len(story) {
			case 1:
				return redrive.Uncounted(errSick, time.Second)
			case 2:
				return errSick
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{})})
		r.publish("sms", 1)
		if r.crashed("sms", false) != 1 {
			t.Fatal("the victim claimed nothing")
		}
		r.start()
		r.ended(time.Minute, "sms")
		want := []string{
			"attempt 2, failures 0, crashes 0, suspect true", // the crash counts as an attempt, not against the message
			"attempt 2, failures 0, crashes 0, suspect true", // the release gave its attempt back
			"attempt 3, failures 1, crashes 0, suspect false",
		}
		if fmt.Sprint(story) != fmt.Sprint(want) {
			t.Errorf("story:\n%q\nwant:\n%q", story, want)
		}
	})
}

func TestRule01_SuspectsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var running, suspects, together atomic.Int32
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			<-time.After(20 * time.Millisecond)
			if d.Suspect {
				suspects.Add(1)
				if n != 1 || running.Load() != 1 {
					together.Add(1)
				}
			}
			return nil
		})
		r.publish("sms", 100)
		r.crashed("sms", false)
		for i := range 300 {
			r.publishAll(redrive.Message{Queue: "sms", Body: []byte{byte(i)}})
		}
		r.start()
		r.ended(time.Minute, "sms")
		if suspects.Load() != 100 || together.Load() != 0 {
			t.Errorf("%d suspects, %d of them not alone; want 100 and 0", suspects.Load(), together.Load())
		}
	})
}

func TestRule01_SuspectsAloneAcrossEngines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var running, together, suspects atomic.Int32
		h := func(_ context.Context, d *redrive.Delivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			<-time.After(10 * time.Millisecond)
			if d.Suspect {
				suspects.Add(1)
				if n != 1 || running.Load() != 1 {
					together.Add(1)
				}
			}
			return nil
		}
		other := newRig(t, engine.Options{Instance: "neighbour"})
		other.engine.ShareProcess(r.engine)
		r.handle("sms", h)
		r.handle("mail", h)
		other.handle("sms", h)
		r.publish("sms", 50)
		r.publish("mail", 50)
		other.publish("sms", 50)
		r.crashed("sms", false)
		r.crashed("mail", false)
		other.crashed("sms", false)
		for range 100 {
			r.publishAll(redrive.Message{Queue: "mail"})
		}
		r.start()
		other.start()
		r.ended(time.Minute, "sms")
		r.ended(time.Minute, "mail")
		other.ended(time.Minute, "sms")
		if suspects.Load() != 150 || together.Load() != 0 {
			t.Errorf("%d suspects, %d of them not alone; want 150 and 0", suspects.Load(), together.Load())
		}
		if err := other.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRule01_CrashesCountOnlyAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			handled.add(d.ID)
			return nil
		})
		r.publish("sms", 5)
		r.crashed("sms", false) // nobody's fault
		pass(time.Millisecond)
		for range 4 * 5 { // suspects rotate, so each of five is alone once in five deaths
			if r.crashed("sms", true) != 1 {
				t.Fatal("no suspect was due")
			}
			pass(time.Millisecond)
		}
		r.publishAll(redrive.Message{Queue: "sms", ID: "neighbour"})
		r.crashed("sms", false)
		r.start()
		r.ended(time.Minute, "sms")
		for i := range 5 {
			id := fmt.Sprintf("sms-%d", i)
			e := r.dead("sms", id)
			if e.Reason != redrive.ReasonCrashed || e.Crashes != redrive.DefaultMaxCrashes+1 || handled.of(id) != 0 {
				t.Errorf("%s: dead as %s after %d crashes, handled %d times", id, e.Reason, e.Crashes, handled.of(id))
			}
			if f := e.History.Latest(); f == nil || f.Message == "" || f.Reason != redrive.ReasonCrashed {
				t.Errorf("%s: story %+v", id, f)
			}
		}
		if handled.of("neighbour") != 1 {
			t.Errorf("the neighbour of a crash was handled %d times, want once", handled.of("neighbour"))
		}
	})
}

func TestRule01_SuspectGivesWayToLongHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var slowest atomic.Int64
		suspectAt := make(chan time.Time, 1)
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			switch {
			case d.Suspect:
				suspectAt <- time.Now()
			case d.ID == "long":
				<-time.After(3 * time.Minute)
			default:
				slowest.Store(max(slowest.Load(), int64(time.Since(d.PublishedAt))))
			}
			return nil
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: 5 * time.Minute})})
		r.start()
		r.publishAll(redrive.Message{Queue: "sms", ID: "long"})
		pass(time.Second)
		r.publishAll(redrive.Message{Queue: "sms", ID: "suspect", Kind: "other"})
		ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 1, Lease: time.Minute, Instance: "victim"})
		if err != nil || len(ds) != 1 {
			t.Skipf("the engine was faster: %v %v", ds, err)
		}
		r.store.Crash("victim")
		from := time.Now()
		for range 120 {
			pass(time.Second)
			r.publishAll(redrive.Message{Queue: "sms"})
		}
		select {
		case at := <-suspectAt:
			if waited := at.Sub(from); waited > 75*time.Second {
				t.Errorf("the suspect waited %s for a handler that does not end", waited)
			}
		default:
			t.Error("the suspect was not handled within two minutes")
		}
		if d := time.Duration(slowest.Load()); d > 15*time.Second {
			t.Errorf("a message waited %s while a suspect wanted to be alone", d)
		}
		r.ended(5*time.Minute, "sms")
	})
}

func TestRule02_LateSettleCountsUntilClaimedAgain(t *testing.T) {
	for _, reclaimed := range []bool{false, true} {
		t.Run(fmt.Sprintf("reclaimed=%t", reclaimed), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.fail.extend = func(_ context.Context, rs []redrive.Receipt, _ time.Duration) []error {
					return all(len(rs), errors.New("the network is gone"))
				}
				r.handle("sms", func(context.Context, *redrive.Delivery) error {
					<-time.After(35 * time.Second)
					return nil
				}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour})})
				r.start()
				r.publish("sms", 1)
				pass(32 * time.Second)
				if !reclaimed {
					pass(4 * time.Second)
					if n := r.counts("sms").Ledger.Done; n != 1 {
						t.Errorf("%d done, want 1: the lease ran out, but nobody had claimed the message again", n)
					}
					return
				}
				ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Isolated: true, Max: 1, Lease: time.Minute, Instance: "other"})
				if err != nil || len(ds) != 1 {
					t.Fatalf("the suspect could not be claimed: %v, %v", ds, err)
				}
				pass(10 * time.Second)
				if n := r.counts("sms").Ledger.Done; n != 0 {
					t.Errorf("%d done: a stale settlement counted", n)
				}
				if r.seen.of(engine.OnLeaseLost) == 0 {
					t.Error("the lost lease was not observed")
				}
				if err := driver.FirstError(r.store.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
					t.Errorf("the new holder's settlement: %v", err)
				}
			})
		})
	}
}

func TestRule03_ShutdownReleases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		cause := make(chan error, 1)
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			switch d.ID {
			case "sms-0": // ends in time
				<-time.After(3 * time.Second)
				return nil
			case "sms-1": // heeds its context
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return fmt.Errorf("cancelled: %w", ctx.Err())
			}
			<-time.After(2 * time.Minute) // does not
			return errSick
		}, engine.QueueOptions{Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour, MaxAttempts: 1})})
		r.publish("sms", 3)
		r.start()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if got := <-cause; !errors.Is(got, engine.ErrShutdown) {
			t.Errorf("cause of the cancelled context: %v", got)
		}
		if n := r.counts("sms").Ledger.Done; n != 1 {
			t.Errorf("%d done, want 1", n)
		}
		pass(3 * time.Minute) // the last handler ends, too late
		for _, id := range []string{"sms-1", "sms-2"} {
			e := r.entry("sms", id)
			if e == nil || e.State != redrive.StateWaiting || e.Attempts != 0 || e.Suspect || e.History.Count != 0 {
				t.Errorf("%s after the shutdown: %+v", id, e)
			}
		}
	}, engine.Options{Grace: 5 * time.Second})
}

func TestRule03_UnhandledKindWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var claims atomic.Int32
		r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
			claims.Add(1)
			return r.store.Claim(ctx, req)
		}
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("known"))
		r.handleWith("sms", mux)
		r.publishAll(
			redrive.Message{Queue: "sms", ID: "a", Kind: "unknown", Body: []byte(`"x"`)},
			redrive.Message{Queue: "sms", ID: "b", Kind: "known", Body: []byte(`"x"`)})
		r.start()
		pass(time.Minute)
		if e := r.entry("sms", "a"); e == nil || e.State != redrive.StateWaiting || e.Attempts != 0 {
			t.Errorf("the message that nobody handles: %+v", e)
		}
		if r.entry("sms", "b") != nil {
			t.Error("the message behind it was held up")
		}
		if !r.status("sms").Unhandled {
			t.Error("the status does not say that messages wait without a handler")
		}
		if n := claims.Load(); n > 100 {
			t.Errorf("%d claims in a minute: it spins", n)
		}
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("unknown"))
		r.ended(3*time.Second, "sms")
		pass(3 * time.Second)
		if r.status("sms").Unhandled {
			t.Error("the status still says that messages wait without a handler")
		}
	})
}

func TestRule03_UnhandledSuspectDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var claims, handled atomic.Int32
		r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
			claims.Add(1)
			return r.store.Claim(ctx, req)
		}
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, string) error { handled.Add(1); return nil }, redrive.ForKind("known"))
		r.handleWith("sms", mux)
		r.publishAll(redrive.Message{Queue: "sms", ID: "a", Kind: "unknown", Body: []byte(`"x"`)})
		r.crashed("sms", false)
		r.start()
		for range 60 {
			pass(time.Second)
			r.publishAll(redrive.Message{Queue: "sms", Kind: "known", Body: []byte(`"x"`)})
		}
		pass(2 * time.Second)
		if n := claims.Load(); n > 400 {
			t.Errorf("%d claims in a minute: it spins", n)
		}
		if handled.Load() != 60 {
			t.Errorf("%d of 60 messages handled beside a suspect that nobody handles", handled.Load())
		}
	})
}

func TestRule03_ErrNoHandlerPutsOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n atomic.Int32
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			n.Add(1)
			return redrive.ErrNoHandler
		})
		r.publish("sms", 1)
		r.start()
		pass(10*time.Minute + time.Second)
		if got := n.Load(); got < 10 || got > 11 {
			t.Errorf("handed out %d times in ten minutes, want once a minute", got)
		}
		if e := r.entry("sms", "sms-0"); e.Attempts != 0 || e.History.Count != 0 {
			t.Errorf("it was counted: %+v", e)
		}
	})
}
