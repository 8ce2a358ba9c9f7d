package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// pullRig is a rig with a puller of one policy.
func pullRig(t *testing.T, p redrive.Policy, test func(t *testing.T, r *rig, pull *engine.Puller)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		choose := engine.Policies{Default: p}
		pull := engine.NewPuller(r.engine, engine.PullOptions{Policies: func(string) *engine.Policies { return &choose }})
		r.start()
		test(t, r, pull)
		pull.Drain()
	})
}

func claimed(t *testing.T, pull *engine.Puller, r engine.PullRequest) []redrive.Delivery {
	t.Helper()
	ds, err := pull.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func settled(t *testing.T, pull *engine.Puller, results ...engine.PullResult) []engine.Pulled {
	t.Helper()
	return pull.Settle(t.Context(), results)
}

func done(ds ...redrive.Delivery) (all []engine.PullResult) {
	for i := range ds {
		all = append(all, engine.PullResult{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone})
	}
	return all
}

func TestPullWaits(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		began := time.Now()
		if ds := claimed(t, pull, engine.PullRequest{Queue: "q", Wait: 3 * time.Second}); len(ds) != 0 || time.Since(began) != 3*time.Second {
			t.Errorf("%d messages of none after %s", len(ds), time.Since(began))
		}
		got := make(chan []redrive.Delivery)
		go func() {
			ds, _ := pull.Claim(t.Context(), engine.PullRequest{Queue: "q", Kinds: []string{"a"}, Max: 10, Wait: time.Minute})
			got <- ds
		}()
		pass(time.Second)
		r.publishAll(redrive.Message{Queue: "q", ID: "other", Kind: "b"})
		pass(time.Second)
		r.publishAll(redrive.Message{Queue: "q", ID: "mine", Kind: "a"})
		ds := <-got
		if len(ds) != 1 || ds[0].ID != "mine" || ds[0].Attempt != 1 {
			t.Fatalf("%+v", ds)
		}
		if out := settled(t, pull, done(ds...)...); out[0].Err != nil || out[0].Outcome != redrive.OutcomeDone {
			t.Errorf("%+v", out)
		}
		// What becomes due while a claim waits wakes it, too.
		r.publishAll(redrive.Message{Queue: "q", ID: "later", Kind: "a", Delay: 7 * time.Second})
		began = time.Now()
		ds = claimed(t, pull, engine.PullRequest{Queue: "q", Kinds: []string{"a"}, Wait: time.Minute})
		if took := time.Since(began); len(ds) != 1 || took < 7*time.Second || took > 8*time.Second {
			t.Errorf("%d messages after %s", len(ds), took)
		}
	})
}

func TestPullCountsByThePolicy(t *testing.T) {
	table := &redrive.Table{Permanent: []string{"type:ValueError"}}
	policy := redrive.Policy{Name: "strict", MaxAttempts: 2, Backoff: redrive.Fixed{Interval: 5 * time.Second}, Classifier: table}
	pullRig(t, policy, func(t *testing.T, r *rig, pull *engine.Puller) {
		one := func(attempt int) redrive.Receipt {
			t.Helper()
			ds := claimed(t, pull, engine.PullRequest{Queue: "q", Wait: 30 * time.Second})
			if len(ds) != 1 || ds[0].Attempt != attempt {
				t.Fatalf("%+v, want attempt %d", ds, attempt)
			}
			return ds[0].Receipt
		}
		fail := func(o redrive.Outcome, f *redrive.Failure, after time.Duration) engine.PullResult {
			return engine.PullResult{Receipt: one(1), Outcome: o, Failure: f, After: after}
		}
		timeout := &redrive.Failure{Types: []string{"TimeoutError"}, Message: "too slow", Host: "worker-7"}

		r.publishAll(redrive.Message{Queue: "q", ID: "m"})
		if out := settled(t, pull, fail(redrive.OutcomeRelease, nil, 0)); out[0].Err != nil || out[0].Outcome != redrive.OutcomeRelease {
			t.Errorf("%+v", out)
		}
		out := settled(t, pull, fail(redrive.OutcomeRetry, timeout, 0)) // a released attempt was not counted
		if out[0].Outcome != redrive.OutcomeRetry || out[0].After != 5*time.Second {
			t.Errorf("%+v", out)
		}
		began := time.Now()
		second := one(2)
		if waited := time.Since(began); waited < 5*time.Second {
			t.Errorf("it came back after %s", waited)
		}
		out = settled(t, pull, engine.PullResult{Receipt: second, Outcome: redrive.OutcomeRetry, Failure: timeout})
		if out[0].Outcome != redrive.OutcomeDead || out[0].Reason != redrive.ReasonExhausted {
			t.Errorf("%+v", out)
		}
		e, err := r.store.Get(t.Context(), []redrive.Ref{{Queue: "q", ID: "m"}})
		if err != nil || e[0] == nil || e[0].History.Count != 2 {
			t.Fatal(e, err)
		}
		if f := e[0].History.Latest(); f.Host != "worker-7" || f.Message != "too slow" || f.Types[0] != "TimeoutError" || f.Config.Policy != "strict" || f.Signature == "" || f.Attempt != 2 {
			t.Errorf("%+v", f)
		}

		r.publishAll(redrive.Message{Queue: "q", ID: "v"})
		if out := settled(t, pull, fail(redrive.OutcomeRetry, &redrive.Failure{Types: []string{"ValueError"}}, 0)); out[0].Reason != redrive.ReasonPermanent {
			t.Errorf("%+v", out)
		}
		r.publishAll(redrive.Message{Queue: "q", ID: "u"})
		result := fail(redrive.OutcomeDead, nil, 0)
		result.Reason = redrive.ReasonUndecodable
		if out := settled(t, pull, result); out[0].Reason != redrive.ReasonUndecodable {
			t.Errorf("%+v", out)
		}
		r.publishAll(redrive.Message{Queue: "q", ID: "again"})
		if out := settled(t, pull, fail(redrive.OutcomeRepeat, nil, time.Hour)); out[0].Outcome != redrive.OutcomeRepeat || out[0].After != time.Hour {
			t.Errorf("%+v", out)
		}
	})
}

func TestPullEmitsWithItsSuccess(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publishAll(redrive.Message{Queue: "q", ID: "m", ReplyTo: "results"}, redrive.Message{Queue: "q", ID: "n", ReplyTo: "No queue"})
		ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 2})
		results := done(ds...)
		for i := range results {
			results[i].Emit = []redrive.Message{{Queue: "next", Body: []byte("from " + ds[i].ID)}}
			results[i].Reply = &redrive.Message{Body: []byte("42")}
		}
		for _, out := range settled(t, pull, results...) {
			if out.Err != nil {
				t.Error(out.Err)
			}
		}
		for queue, want := range map[string]int{"next": 2, "results": 1} { // the result that has nowhere to go is left out
			page, err := r.store.Find(t.Context(), redrive.Query{Queue: queue, Bodies: true})
			if err != nil || len(page.Entries) != want {
				t.Errorf("%s: %d messages, %v", queue, len(page.Entries), err)
			}
			if queue == "results" && string(page.Entries[0].Body) != "42" {
				t.Errorf("result %q", page.Entries[0].Body)
			}
		}
		bad := done(ds[0])
		bad[0].Outcome, bad[0].Emit = redrive.OutcomeRetry, []redrive.Message{{Queue: "next"}}
		if out := settled(t, pull, bad...); !errors.Is(out[0].Err, redrive.ErrInvalid) {
			t.Errorf("%+v", out)
		}
		if out := settled(t, pull, done(ds...)...); out[0].Err == nil || out[1].Err == nil {
			t.Errorf("what is settled is settled again: %+v", out)
		}
	})
}

// A worker that died does not hold anything beyond its lease, so that nobody waits for it
// at a shutdown.
func TestPullHoldsNothingForTheDead(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 2)
		claimed(t, pull, engine.PullRequest{Queue: "q", Lease: time.Second})
		claimed(t, pull, engine.PullRequest{Queue: "q", Lease: time.Hour})
		pull.Drain()
		if n := pull.Holding(); n != 2 {
			t.Errorf("%d in flight", n)
		}
		pass(2 * time.Second)
		if n := pull.Holding(); n != 1 {
			t.Errorf("%d in flight after a lease ran out", n)
		}
		if err := pull.ReleaseAll(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A worker that dies leaves suspects, which are delivered in isolation, and never beside
// what the worker holds already; only deaths of a worker that is isolated with one count.
func TestPullSuspectsAreIsolated(t *testing.T) {
	pullRig(t, redrive.Policy{MaxCrashes: 1}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 3)
		first := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 3, Lease: time.Second, Worker: "a"})
		if len(first) != 3 || pull.Holding() != 3 {
			t.Fatalf("%+v", first)
		}
		pass(3 * time.Second) // the worker is dead
		r.publishAll(redrive.Message{Queue: "q", ID: "new"})
		var seen []string
		worker := func(name string, lease time.Duration) []redrive.Delivery {
			return claimed(t, pull, engine.PullRequest{Queue: "q", Max: 10, Lease: lease, Worker: name, Wait: 2 * time.Second})
		}
		for range 4 {
			ds := worker("b", time.Minute)
			if len(ds) != 1 {
				t.Fatalf("%d messages at once", len(ds))
			}
			if ds[0].Suspect {
				if more := worker("b", time.Minute); len(more) != 0 {
					t.Errorf("beside a suspect: %+v", more)
				}
			}
			seen = append(seen, ds[0].ID)
			if ds[0].ID == "q-1" { // dies of it
				pass(time.Minute + 2*time.Second)
				continue
			}
			if out := settled(t, pull, done(ds...)...); out[0].Err != nil {
				t.Error(out[0].Err)
			}
		}
		slices.Sort(seen)
		if fmt.Sprint(seen) != "[new q-0 q-1 q-2]" {
			t.Errorf("%v", seen)
		}
		if out := settled(t, pull, done(first[0])...); out[0].Err == nil {
			t.Error("a stale receipt settles")
		}
		ds := worker("c", time.Second)
		if len(ds) != 1 || ds[0].Crashes != 1 {
			t.Fatalf("%+v", ds)
		}
		pass(5 * time.Second)
		if ds := worker("d", time.Second); len(ds) != 0 {
			t.Errorf("it is delivered after too many deaths: %+v", ds)
		}
		e, err := r.store.Get(t.Context(), []redrive.Ref{{Queue: "q", ID: "q-1"}})
		if err != nil || e[0] == nil || e[0].Reason != redrive.ReasonCrashed {
			t.Errorf("%+v %v", e, err)
		}
	})
}

func TestPullExtends(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 1)
		ds := claimed(t, pull, engine.PullRequest{Queue: "q", Lease: 2 * time.Second, Worker: "a"})
		for range 3 {
			pass(time.Second)
			if err := driver.FirstError(pull.Extend(t.Context(), []redrive.Receipt{ds[0].Receipt}, 2*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		pass(3 * time.Second)
		if err := driver.FirstError(pull.Extend(t.Context(), []redrive.Receipt{ds[0].Receipt}, time.Second)); !errors.Is(err, redrive.ErrLeaseLost) {
			t.Error(err)
		}
		// Nobody has claimed it since: the late result counts.
		if out := settled(t, pull, done(ds...)...); out[0].Err != nil {
			t.Error(out[0].Err)
		}
	})
}

func TestPullIsHeldBackByGates(t *testing.T) {
	policy := redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}}
	pullRig(t, policy, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 60)
		handed := 0
		for range 60 {
			ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 1})
			if len(ds) == 0 {
				break
			}
			handed++
			settled(t, pull, engine.PullResult{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Message: "down"}})
		}
		if s := pull.Status(); handed > 40 || len(s) != 1 || len(s[0].Breakers) != 1 || s[0].Breakers[0].State == engine.BreakerClosed {
			t.Errorf("%d delivered: %+v", handed, pull.Status())
		}
		ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 100, Wait: 10 * time.Second})
		if len(ds) != 1 {
			t.Fatalf("%d probes", len(ds))
		}
		settled(t, pull, done(ds...)...)
		pull.Pause("q", "", "maintenance", 0)
		if ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 100}); len(ds) != 0 {
			t.Errorf("a paused queue delivers %d", len(ds))
		}
		pull.Resume("q", "")
		if ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 100}); len(ds) == 0 {
			t.Error("a closed breaker delivers nothing")
		}
	})
}

func TestPullDrains(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 1)
		ds := claimed(t, pull, engine.PullRequest{Queue: "q", Lease: time.Hour})
		ended := make(chan error)
		go func() {
			_, err := pull.Claim(context.Background(), engine.PullRequest{Queue: "q", Wait: time.Minute})
			ended <- err
		}()
		synctest.Wait()
		pull.Drain()
		if err := <-ended; !errors.Is(err, redrive.ErrClosed) {
			t.Error(err)
		}
		if err := pull.ReleaseAll(t.Context()); err != nil || pull.Holding() != 0 {
			t.Error(err, pull.Holding())
		}
		e, err := r.store.Get(t.Context(), []redrive.Ref{ds[0].Ref()})
		if err != nil || e[0].Attempts != 0 || e[0].Suspect || e[0].State != redrive.StateWaiting {
			t.Errorf("%+v %v", e[0], err)
		}
	})
}

func TestPullRefusesNonsense(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, _ *rig, pull *engine.Puller) {
		for _, r := range []engine.PullRequest{
			{Queue: "Q"}, {Queue: "q", Max: -1}, {Queue: "q", Max: 1001}, {Queue: "q", Lease: time.Millisecond}, {Queue: "q", Lease: 13 * time.Hour},
			{Queue: "q", Wait: -1}, {Queue: "q", Wait: time.Hour}, {Queue: "q", Worker: "\x00"}, {Queue: "q", Kinds: make([]string, 300)},
		} {
			if _, err := pull.Claim(t.Context(), r); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

// TestPullOfKinds has workers that name their kinds. What nobody asks for is failed by the
// policy, visibly; what another process's workers ask for, or hold, is left to them.
func TestPullOfKinds(t *testing.T) {
	var warned tally
	bubble(t, func(t *testing.T, r *rig) {
		choose := engine.Policies{Default: redrive.Policy{MaxAttempts: 3, Backoff: redrive.Fixed{Interval: 2 * time.Minute}}}
		options := engine.PullOptions{Policies: func(string) *engine.Policies { return &choose }}
		pull := engine.NewPuller(r.engine, options)
		r.start()
		other := engine.New(r.store, engine.Options{Instance: "other"})
		elsewhere := engine.NewPuller(other, options)
		elsewhere.Pause("q", "", "its target is down", 0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx) }()
		ask := func(p *engine.Puller, kind string) []redrive.Delivery {
			return claimed(t, p, engine.PullRequest{Queue: "q", Kinds: []string{kind}, Wait: 30 * time.Second, Lease: time.Hour})
		}
		failures := func(id string) int {
			if e := r.entry("q", id); e != nil {
				return e.History.Count
			}
			return -1
		}
		r.publishAll(redrive.Message{Queue: "q", ID: "suspect", Kind: "nobodys"})
		if ds, err := r.store.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Second, Instance: "dead"}); err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		for _, id := range []string{"others", "nobodys", "held", "long"} {
			r.publishAll(redrive.Message{Queue: "q", ID: id, Kind: strings.Replace(id, "held", "long", 1)})
		}
		if ds := ask(pull, "long"); len(ds) != 1 || ds[0].ID != "held" {
			t.Fatalf("%+v", ds)
		}
		ask(elsewhere, "others")
		if n := failures("nobodys"); n != 0 {
			t.Errorf("failed %d times before another worker could ask for it", n)
		}
		for range 60 { // half an hour and more
			if ds := ask(pull, "mine"); len(ds) != 0 {
				t.Fatalf("%+v", ds)
			}
			ask(elsewhere, "others")
		}
		for _, id := range []string{"nobodys", "suspect"} {
			if e := r.dead("q", id); e.Reason != redrive.ReasonUnroutable || e.History.Count != 3 || e.History.Latest().Message != `no handler for kind "nobodys"` {
				t.Errorf("%+v", e)
			}
		}
		if list := pull.Status()[0].Unhandled; len(list) != 1 || list[0].Kind != "nobodys" || list[0].Attempts != 6 {
			t.Errorf("the status says %+v", list)
		}
		if n := r.seen.of(engine.OnUnhandled); n != 6 || warned.of("no handler for kind") < 3 {
			t.Errorf("observed %d times, %d warnings", n, warned.of("no handler for kind"))
		}
		if a, b := failures("others"), failures("long"); a != 0 || b != 0 {
			t.Errorf("what another asks for failed %d times, what one holds %d times", a, b)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for range 60 {
			ask(pull, "mine")
		}
		if failures("others") == 0 {
			t.Error("the other is gone, and what it asked for waits unseen")
		}
		claimed(t, pull, engine.PullRequest{Queue: "q"}) // any
		if list := pull.Status()[0].Unhandled; len(list) != 0 {
			t.Errorf("a worker takes any kind, and the status still says %+v", list)
		}
	}, engine.Options{Logger: slog.New(eachLine(func(rec slog.Record) {
		if rec.Level == slog.LevelWarn {
			warned.add(rec.Message)
		}
	}))})
}
