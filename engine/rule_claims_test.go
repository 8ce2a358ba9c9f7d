package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// crashed claims everything that is due in a queue as another process, which then
// dies. Isolated claims one suspect.
func (r *rig) crashed(queue string, isolated bool) (n int) {
	r.t.Helper()
	most := 1000
	if isolated {
		most = 1
	}
	ds, err := r.store.Claim(r.t.Context(), driver.ClaimRequest{Queue: queue, Max: most, Isolated: isolated, Lease: time.Minute, Instance: "victim"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store.Crash("victim")
	return len(ds)
}

func TestRule01_AttemptsCountedAtClaim(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var history []string
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			history = append(history, fmt.Sprintf("attempt %d, failures %d, crashes %d, suspect %t", d.Attempt, d.Failures, d.Crashes, d.Suspect))
			switch len(history) {
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
		if fmt.Sprint(history) != fmt.Sprint(want) {
			t.Errorf("history:\n%q\nwant:\n%q", history, want)
		}
	})
}

func TestRule01_SuspectsIsolated(t *testing.T) {
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
			t.Errorf("%d suspects, %d of them not isolated; want 100 and 0", suspects.Load(), together.Load())
		}
	})
}

func TestRule01_SuspectsIsolatedAcrossEngines(t *testing.T) {
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
			t.Errorf("%d suspects, %d of them not isolated; want 150 and 0", suspects.Load(), together.Load())
		}
		if err := other.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRule01_CrashesCountOnlyIsolated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled tally
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			handled.add(d.ID)
			return nil
		})
		r.publish("sms", 5)
		r.crashed("sms", false) // nobody's fault
		pass(time.Millisecond)
		for range 4 * 5 { // suspects rotate, so each of five is isolated once in five deaths
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
				t.Errorf("%s: history %+v", id, f)
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
			t.Errorf("a message waited %s while a suspect wanted to be isolated", d)
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
			case "sms-1": // respects its context
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

// A message whose kind nobody handles does not hold up others, is retried by its policy
// and shown, and is delivered once a deploy brought its handler.
func TestRule03_UnhandledKindIsRetried(t *testing.T) {
	var warned tally
	bubble(t, func(t *testing.T, r *rig) {
		var claims atomic.Int32
		r.fail.claim = func(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
			claims.Add(1)
			return r.store.Claim(ctx, req)
		}
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("known"))
		r.handleWith("sms", mux, engine.QueueOptions{Policies: fixed(10*time.Minute, redrive.Policy{})})
		r.publishAll(
			redrive.Message{Queue: "sms", ID: "a", Kind: "unknown", Body: []byte(`"x"`)},
			redrive.Message{Queue: "sms", ID: "b", Kind: "known", Body: []byte(`"x"`)})
		r.start()
		pass(50 * time.Second)
		if e := r.entry("sms", "a"); e == nil || e.State != redrive.StateWaiting || e.Attempts != 0 {
			t.Errorf("before another instance could say that it handles it: %+v", e)
		}
		if r.entry("sms", "b") != nil {
			t.Error("the message behind it was held up")
		}
		if n := claims.Load(); n > 100 {
			t.Errorf("%d claims in a minute: it spins", n)
		}
		pass(20 * time.Second)
		e := r.entry("sms", "a")
		if e == nil || e.Attempts != 1 || e.History.Count != 1 || e.History.Latest().Message != `no handler for kind "unknown"` {
			t.Fatalf("%+v", e)
		}
		if list := r.status("sms").Unhandled; len(list) != 1 || list[0].Kind != "unknown" || list[0].Attempts != 1 || list[0].Last.IsZero() {
			t.Errorf("the status says %+v", list)
		}
		if n := r.seen.of(engine.OnUnhandled); n != 1 || warned.of("no handler for kind") != 1 {
			t.Errorf("observed %d times, %d warnings", n, warned.of("no handler for kind"))
		}
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("unknown"))
		r.ended(10*time.Minute, "sms")
		if list := r.status("sms").Unhandled; len(list) != 0 {
			t.Errorf("the status still says %+v", list)
		}
	}, engine.Options{Logger: slog.New(eachLine(func(rec slog.Record) {
		if rec.Level == slog.LevelWarn {
			warned.add(rec.Message)
		}
	}))})
}

// At the end of its policy it is dead as unroutable, and a suspect is no exception.
func TestRule03_UnhandledKindDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("known"))
		r.handleWith("sms", mux, engine.QueueOptions{Policies: fixed(time.Minute, redrive.Policy{MaxAttempts: 3, Inline: 5})})
		r.publishAll(redrive.Message{Queue: "sms", ID: "suspect", Kind: "unknown"})
		if ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 1, Lease: time.Second, Instance: "dead"}); err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		r.publishAll(redrive.Message{Queue: "sms", ID: "a", Kind: "unknown"})
		r.start()
		pass(10 * time.Minute)
		for _, id := range []string{"a", "suspect"} {
			if e := r.dead("sms", id); e.Reason != redrive.ReasonUnroutable || e.History.Count != 3 || e.History.Latest().Reason != redrive.ReasonUnroutable {
				t.Errorf("%+v", e)
			}
		}
		if breakers := r.status("sms").Breakers; len(breakers) != 0 {
			t.Errorf("a breaker took it for an outage: %+v", breakers)
		}
	})
}

// What another instance handles is left to it, however long that takes; when that one is
// gone for good, it is retried here.
func TestRule03_KindsOfOtherInstancesWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, string) error { return nil }, redrive.ForKind("known"))
		r.handleWith("sms", mux)
		special := redrive.NewMux()
		redrive.Handle(special, func(context.Context, string) error { return nil }, redrive.ForKind("special"))
		other := engine.New(r.store, engine.Options{Instance: "other"})
		if err := other.Handle("sms", special, engine.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		other.Pause("sms", "", "its target is down", 0)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx) }()
		r.publishAll(redrive.Message{Queue: "sms", ID: "a", Kind: "special"}, redrive.Message{Queue: "sms", ID: "b", Kind: "nobodys"})
		r.start()
		pass(3 * time.Hour)
		if e := r.entry("sms", "a"); e == nil || e.History.Count != 0 {
			t.Errorf("it is the other's: %+v", e)
		}
		if e := r.entry("sms", "b"); e == nil || e.History.Count == 0 {
			t.Errorf("it is nobody's: %+v", e)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		pass(10 * time.Minute)
		if e := r.entry("sms", "a"); e == nil || e.History.Count != 0 {
			t.Errorf("the other may come back: %+v", e)
		}
		pass(10 * time.Minute)
		if e := r.entry("sms", "a"); e == nil || e.History.Count == 0 {
			t.Errorf("the other is gone: %+v", e)
		}
	})
}

// Many kinds neither flood the log nor the status.
func TestRule03_ManyUnhandledKinds(t *testing.T) {
	var warned tally
	bubble(t, func(t *testing.T, r *rig) {
		r.handleWith("sms", redrive.NewMux(), engine.QueueOptions{Policies: fixed(time.Hour, redrive.Policy{})})
		for i := range 500 {
			r.publishAll(redrive.Message{Queue: "sms", Kind: "k" + strconv.Itoa(i)})
		}
		r.start()
		pass(70 * time.Second)
		if n := r.seen.of(engine.OnUnhandled); n != 500 {
			t.Errorf("%d of 500 were tried", n)
		}
		if n, list := warned.sum(), r.status("sms").Unhandled; n != 20 || len(list) != 20 {
			t.Errorf("%d warnings, %d kinds in the status, want 20", n, len(list))
		}
	}, engine.Options{Logger: slog.New(eachLine(func(rec slog.Record) {
		if rec.Level == slog.LevelWarn {
			warned.add(rec.Message)
		}
	}))})
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

func TestRule03_ErrNoHandlerOfAnyHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n atomic.Int32
		r.handle("sms", func(context.Context, *redrive.Delivery) error {
			n.Add(1)
			return redrive.ErrNoHandler
		}, engine.QueueOptions{Policies: fixed(time.Minute, redrive.Policy{MaxAttempts: 3})})
		r.publish("sms", 1)
		r.start()
		pass(10 * time.Minute)
		if e := r.dead("sms", "sms-0"); n.Load() != 3 || e.Reason != redrive.ReasonUnroutable {
			t.Errorf("%d attempts: %+v", n.Load(), e)
		}
	})
}
