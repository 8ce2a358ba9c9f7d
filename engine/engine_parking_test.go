package engine_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// broker is a source that can do next to nothing: it delivers, takes Done and gives
// back at once. It cannot be looked into.
type broker struct {
	t      *testing.T
	store  *memory.Store
	caps   driver.Caps
	settle func(ctx context.Context, s []driver.Settlement) []error
}

func newBroker(t *testing.T, identity redrive.Identity) *broker {
	return &broker{t: t, store: memory.New(),
		caps: driver.Caps{Name: "broker", Fenced: true, MaxBatch: 7, Identity: identity}}
}

func (b *broker) Caps() driver.Caps                      { return b.caps }
func (b *broker) Probe(context.Context) []driver.Finding { return nil }
func (b *broker) Close() error                           { return b.store.Close() }

func (b *broker) Wait(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
	return b.store.Wait(ctx, w)
}

func (b *broker) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if req.Isolated || req.Dead || req.Expired || req.Max > b.caps.MaxBatch {
		b.t.Errorf("the broker was asked for what it cannot do: %+v", req)
	}
	req.Kinds, req.ExceptKinds, req.ExceptIDs = nil, nil, nil
	ds, err := b.store.Claim(ctx, req)
	for i := range ds {
		// A broker that redelivers knows nothing of attempts and suspects.
		ds[i].Attempt, ds[i].Failures, ds[i].Crashes, ds[i].Suspect = 1, 0, 0, false
	}
	return ds, err
}

func (b *broker) Settle(ctx context.Context, batch []driver.Settlement) []error {
	if len(batch) > b.caps.MaxBatch {
		b.t.Errorf("%d settlements in one call, the broker takes %d", len(batch), b.caps.MaxBatch)
	}
	for i := range batch {
		s := &batch[i]
		if (s.Outcome != redrive.OutcomeDone && s.Outcome != redrive.OutcomeDrop && s.Outcome != redrive.OutcomeRelease) || s.After > 0 || len(s.Emit) > 0 {
			b.t.Errorf("the broker was given what it cannot do: %+v", s)
		}
	}
	if b.settle != nil {
		return b.settle(ctx, batch)
	}
	return b.store.Settle(ctx, batch)
}

func (b *broker) Extend(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error {
	if len(r) > b.caps.MaxBatch {
		b.t.Errorf("%d extensions in one call, the broker takes %d", len(r), b.caps.MaxBatch)
	}
	return b.store.Extend(ctx, r, lease)
}

// sends puts messages with the ids b-0, b-1 and so on into the broker.
func (b *broker) sends(queue string, n int) {
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: queue, ID: "b-" + strconv.Itoa(i), Body: []byte("body " + strconv.Itoa(i))}
	}
	if err := driver.FirstError(b.store.Publish(b.t.Context(), msgs)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) left(queue string) int64 {
	all, err := b.store.Counts(context.Background(), queue)
	if err != nil || len(all) != 1 {
		b.t.Fatalf("%v, %v", all, err)
	}
	return all[0].AllWaiting()
}

func TestParking_RetryDeadEmitRepeat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		var history sync.Map
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			history.Store(d.ID+"/"+strconv.Itoa(d.Attempt)+"/"+strconv.Itoa(d.Generation), d.Failures)
			switch d.ID {
			case "b-0":
				if d.Attempt < 3 {
					return errSick
				}
			case "b-1":
				return redrive.Permanent(errSick)
			case "b-2":
				return redrive.Emit(ctx, redrive.Message{Queue: "out", Body: []byte("from a broker")})
			case "b-3":
				if d.Generation == 0 {
					return redrive.RepeatAfter(time.Minute)
				}
			case "b-4":
				if d.Lane == redrive.LaneFresh && time.Since(d.PublishedAt) < 30*time.Second {
					return redrive.Uncounted(errSick, time.Minute)
				}
			}
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{b}, Policies: fixed(10*time.Second, redrive.Policy{})})
		b.sends("sms", 50)
		r.publish("sms", 20) // both feed the same handler
		r.start()
		r.within(time.Second, "the broker is empty", func() bool { return b.left("sms") == 0 })
		if c := r.counts("sms"); c.Ledger.Parked != 4 || c.Dead[redrive.ReasonPermanent] != 1 {
			t.Errorf("parked: %+v", c)
		}
		r.ended(5*time.Minute, "sms")
		for _, step := range []string{"b-0/1/0", "b-0/2/0", "b-0/3/0", "b-1/1/0", "b-2/1/0", "b-3/1/0", "b-3/1/1", "b-4/1/0"} {
			if _, ok := history.Load(step); !ok {
				t.Errorf("there was no id/attempt/generation %s", step)
			}
		}
		if f, _ := history.Load("b-0/3/0"); f != 2 {
			t.Errorf("b-0 had %v failures before its third attempt", f)
		}
		if e := r.dead("sms", "b-1"); string(e.Body) != "body 1" || e.History.Count != 1 || e.History.Latest().Message != errSick.Error() {
			t.Errorf("the parked dead letter: %+v", e)
		}
		if c := r.counts("out"); c.AllWaiting() != 1 {
			t.Errorf("%d emitted, want 1", c.AllWaiting())
		}
	})
}

func TestParking_CrashBetweenParkingAndSettling(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		var lost atomic.Bool
		b.settle = func(ctx context.Context, s []driver.Settlement) []error {
			if lost.CompareAndSwap(false, true) { // the broker forgets that we had it, after it was parked
				b.store.Crash("rig")
				return all(len(s), redrive.ErrLeaseLost)
			}
			return b.store.Settle(ctx, s)
		}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			return redrive.Permanent(errSick)
		}, engine.QueueOptions{Sources: []driver.Source{alwaysFresh{b}}})
		b.sends("sms", 1)
		r.start()
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		if c := r.counts("sms"); c.Ledger.Parked != 1 || c.Dead[redrive.ReasonPermanent] != 1 {
			t.Errorf("parked twice: %+v", c)
		}
	})
}

// alwaysFresh delivers suspects of the store beneath as a broker redelivers: like
// anything else.
type alwaysFresh struct{ *broker }

func (a alwaysFresh) Wait(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
	events, err := a.broker.Wait(ctx, w)
	for i := range events {
		if events[i].Suspects {
			events[i].Suspects, events[i].Lanes = false, events[i].Lanes.With(redrive.LaneFresh)
		}
	}
	return events, err
}

func (a alwaysFresh) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := a.broker.Claim(ctx, req)
	if err != nil || len(ds) > 0 || req.Lane != redrive.LaneFresh {
		return ds, err
	}
	req.Isolated = true
	ds, err = a.store.Claim(ctx, req)
	for i := range ds {
		ds[i].Attempt, ds[i].Crashes, ds[i].Suspect = 1, 0, false
	}
	return ds, err
}

func TestParking_WithoutIdentityIsADuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityNone)
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return redrive.Permanent(errSick) },
			engine.QueueOptions{Sources: []driver.Source{b}})
		b.sends("sms", 1)
		r.start()
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		e := r.dead("sms", "b-0")
		if v, _ := e.Headers.Get(redrive.HeaderPossibleDuplicate); v != "true" {
			t.Errorf("headers: %v", e.Headers)
		}
	})
}

func TestParking_ConflictingIdentityIsParkedUnderAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		r.engine.Pause("other", "", "", 0)
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			return redrive.Permanent(errors.New(string(d.Body)))
		},
			engine.QueueOptions{Sources: []driver.Source{b}})
		r.publishAll(redrive.Message{Queue: "sms", ID: "b-0", Body: []byte("another message")})
		b.sends("sms", 1)
		r.start()
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		synctest.Wait()
		if c := r.counts("sms"); c.Dead[redrive.ReasonPermanent] != 2 {
			t.Errorf("two messages of one id: %+v", c)
		}
	})
}

func TestParking_StoreAwayKeepsTheBrokersMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		var away atomic.Bool
		away.Store(true)
		r.fail.apply = func(ctx context.Context, batch driver.Batch) ([]error, error) {
			if away.Load() {
				return nil, errors.New("the store is away")
			}
			return r.store.Apply(ctx, batch)
		}
		r.handle("sms", func(context.Context, *redrive.Delivery) error { return redrive.Permanent(errSick) },
			engine.QueueOptions{Sources: []driver.Source{b}, Breaker: engine.BreakerOptions{Off: true}})
		b.sends("sms", 20)
		r.start()
		pass(10 * time.Minute)
		if n := b.left("sms"); n != 20 {
			t.Errorf("%d left at the broker, want 20: nothing was parked", n)
		}
		away.Store(false)
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		if c := r.counts("sms"); c.Dead[redrive.ReasonPermanent] != 20 {
			t.Errorf("dead letters: %+v", c.Dead)
		}
	})
}

func TestParking_ShutdownReleasesNatively(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}, engine.QueueOptions{Sources: []driver.Source{b}, Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour})})
		b.sends("sms", 5)
		r.start()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if n := b.left("sms"); n != 5 {
			t.Errorf("%d left at the broker, want 5", n)
		}
	}, engine.Options{Grace: time.Second})
}

// again delivers everything as a broker does that redelivers after a crash.
type again struct{ *broker }

func (a again) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := a.broker.Claim(ctx, req)
	for i := range ds {
		ds[i].Suspect = true
	}
	return ds, err
}

// claimRecord writes what an instance that died left behind.
func (r *rig) claimRecord(queue, instance, ids string) {
	r.t.Helper()
	_, err := r.store.Apply(r.t.Context(), driver.Batch{Records: []driver.RecordWrite{
		{Space: "claims", Key: queue + "/" + instance + "/0", Value: []byte(ids), Version: driver.AnyVersion}}})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestParking_ClaimsAreRecordedBeforeTheHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		r.handle("sms", func(ctx context.Context, d *redrive.Delivery) error {
			records, err := r.store.ListRecords(ctx, "claims", "", 1000)
			if err != nil {
				return err
			}
			for _, m := range records {
				if slices.Contains(strings.Split(string(m.Value), "\n"), d.ID) {
					return nil
				}
			}
			t.Errorf("%s runs and stands in no claim record", d.ID)
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{b}})
		b.sends("sms", 500)
		r.start()
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		records, err := r.store.ListRecords(t.Context(), "claims", "", 1000)
		if err != nil || len(records) > engine.DefaultConcurrency*8 {
			t.Errorf("%d claim records, %v: they are not used again", len(records), err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if records, err = r.store.ListRecords(t.Context(), "claims", "", 1000); err != nil || len(records) != 0 {
			t.Errorf("%d claim records are left after an orderly end, %v", len(records), err)
		}
	})
}

func TestParking_WhatWasInFlightAtACrashIsASuspect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		var isolated sync.Map
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			isolated.Store(d.ID, d.Suspect)
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{again{b}}})
		r.claimRecord("sms", "another", "b-1\nb-3\nb-gone")
		r.claimRecord("smss", "another", "b-2")
		r.claimRecord("sms", "rig", "b-4") // our own: we did not crash
		b.sends("sms", 6)
		r.start()
		r.within(time.Minute, "all are handled", func() bool { c := r.counts("sms"); return b.left("sms") == 0 && c.AllWaiting() == 0 })
		for i := range 6 {
			id := "b-" + strconv.Itoa(i)
			got, ok := isolated.Load(id)
			if want := i == 1 || i == 3; !ok || got != want {
				t.Errorf("%s: suspect %v, want %t", id, got, want)
			}
		}
		if c := r.counts("sms"); c.Ledger.Parked != 2 {
			t.Errorf("%d parked, want the 2 suspects", c.Ledger.Parked)
		}
	})
}

func TestParking_WithoutIdentityWhateverComesAgainIsASuspect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityNone)
		var suspects atomic.Int64
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if d.Suspect {
				suspects.Add(1)
			}
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{again{b}}})
		b.sends("sms", 3)
		r.start()
		r.within(time.Minute, "all are handled", func() bool { c := r.counts("sms"); return b.left("sms") == 0 && c.AllWaiting() == 0 })
		if suspects.Load() != 3 {
			t.Errorf("%d ran as suspects, want 3", suspects.Load())
		}
	})
}

func TestParking_ReleasedMessagesLeaveTheirRecord(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		b.settle = func(ctx context.Context, s []driver.Settlement) []error {
			for i := range s {
				if s[i].Outcome != redrive.OutcomeRelease {
					continue
				}
				records, err := r.store.ListRecords(ctx, "claims", "", 100)
				if err != nil {
					t.Error(err)
				}
				for _, m := range records {
					if slices.Contains(strings.Split(string(m.Value), "\n"), s[i].Receipt.ID) {
						t.Errorf("%s is given back and still recorded", s[i].Receipt.ID)
					}
				}
			}
			return b.store.Settle(ctx, s)
		}
		r.handle("sms", func(ctx context.Context, _ *redrive.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}, engine.QueueOptions{Sources: []driver.Source{b}, Policies: fixed(time.Second, redrive.Policy{Timeout: time.Hour})})
		b.sends("sms", 5)
		r.start()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}, engine.Options{Grace: time.Second})
}

func TestParking_NothingIsClaimedThatCannotBeRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		var away atomic.Bool
		away.Store(true)
		r.fail.apply = func(ctx context.Context, batch driver.Batch) ([]error, error) {
			if away.Load() {
				return nil, errors.New("the store is away")
			}
			return r.store.Apply(ctx, batch)
		}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			if away.Load() {
				t.Errorf("%s is handled without a claim record", d.ID)
			}
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{b}})
		b.sends("sms", 20)
		r.start()
		pass(10 * time.Minute)
		if n := b.left("sms"); n != 20 {
			t.Errorf("%d left at the broker, want 20", n)
		}
		away.Store(false)
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
	})
}

// telling is a broker that keeps a history, finds some messages unfit, and delivers
// suspects isolated.
type telling struct{ *broker }

func (b telling) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := b.store.Claim(ctx, req)
	for i := range ds {
		switch d := &ds[i]; d.ID {
		case "b-0":
			d.Failures = 2
			d.History = &redrive.History{Count: 2, First: &redrive.Failure{Message: "the first"}, Last: &redrive.Failure{Message: "the second"}}
		case "b-1":
			d.Unfit = redrive.ReasonUndecodable
		}
	}
	return ds, err
}

func TestParking_HistoryUnfitAndSuspectsOfASource(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := newBroker(t, redrive.IdentityMessage)
		b.caps.RecordsClaims = true
		var isolated atomic.Bool
		var tried sync.Map
		b.sends("sms", 3)
		ds, err := b.store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 3, Lease: time.Second, Instance: "dead"})
		if err != nil || len(ds) != 3 {
			t.Fatal(len(ds), err)
		}
		for i := range ds {
			if ds[i].ID == "b-2" { // its holder died
				continue
			}
			if err := driver.FirstError(b.store.Settle(t.Context(), []driver.Settlement{{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeRelease}})); err != nil {
				t.Fatal(err)
			}
		}
		r.handle("sms", func(_ context.Context, d *redrive.Delivery) error {
			tried.Store(d.ID, true)
			if d.ID == "b-2" {
				isolated.Store(d.Suspect)
				return nil
			}
			return redrive.Permanent(errSick)
		}, engine.QueueOptions{Sources: []driver.Source{telling{b}}})
		r.start()
		r.within(time.Minute, "the broker is empty", func() bool { return b.left("sms") == 0 })
		if h := r.dead("sms", "b-0").History; h.Count != 3 || h.First == nil || h.First.Message != "the first" || h.Latest().Message != errSick.Error() {
			t.Errorf("the parked history: %+v", h)
		}
		if e := r.dead("sms", "b-1"); e.Reason != redrive.ReasonUndecodable || string(e.Body) != "body 1" {
			t.Errorf("what could not be read: %+v", e)
		}
		if _, ok := tried.Load("b-1"); ok {
			t.Error("a handler saw what could not be read")
		}
		if !isolated.Load() {
			t.Error("what a dead process had claimed was not delivered as a suspect")
		}
	})
}
