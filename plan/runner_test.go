package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// morgue is a store with dead letters, in a bubble of virtual time.
type morgue struct {
	*deadtest.Store
	store   *faultyStore
	plans   *plan.Plans
	archive deadtest.Archive
}

// inMorgue runs a test in a bubble.
func inMorgue(t *testing.T, test func(m *morgue)) {
	deadtest.Run(t, func(s *deadtest.Store) {
		m := &morgue{Store: s, store: &faultyStore{Store: s.Store}}
		m.plans = m.process("first")
		test(m)
	})
}

// process returns the plans as another process sees them.
func (m *morgue) process(name string) *plan.Plans {
	return plan.New(m.store, plan.Options{Instance: name, Archive: &m.archive})
}

// run carries out plans until the returned function is called.
func (m *morgue) run(p *plan.Plans) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			m.T.Error(err)
		}
	}
}

func (m *morgue) create(r plan.Request) string {
	m.T.Helper()
	r.All = r.Restore == "" && len(r.Refs) == 0 && r.Query == redrive.Query{State: r.Query.State}
	p, err := m.plans.Create(context.Background(), r)
	if err != nil {
		m.T.Fatal(err)
	}
	return p.ID
}

func (m *morgue) plan(id string) plan.Plan {
	m.T.Helper()
	p, err := m.plans.Get(context.Background(), id)
	if err != nil {
		m.T.Fatal(err)
	}
	return p
}

// ends waits until a plan has ended, and checks how.
func (m *morgue) ends(id string, within time.Duration, state plan.State, done, failed int64) plan.Plan {
	m.T.Helper()
	until := time.Now().Add(within)
	for !m.plan(id).State.Final() && time.Now().Before(until) {
		deadtest.Pass(within / 1000)
	}
	p := m.plan(id)
	if p.State != state || p.Done != done || p.Failed != failed {
		m.T.Errorf("after %s it is %s with %d done and %d failed (%v, %s), want %s with %d and %d", within, p.State, p.Done, p.Failed, p.Errors, p.Problem, state, done, failed)
	}
	return p
}

func TestPlanRedrivesWhatIsDead(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		stop := m.run(m.plans)
		defer stop()
		m.Kill("q", 250, nil)
		m.Kill("other", 10, nil)
		began := time.Now()
		id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Rate: 50, Actor: "me"})
		if p := m.plan(id); p.Total != 250 || p.TotalMore || p.State != plan.Running || p.Request.Actor != "me" {
			t.Errorf("%+v", p)
		}
		m.Kill("q", 5, nil) // died after the cutoff
		p := m.ends(id, time.Minute, plan.Done, 250, 0)
		if took := p.EndedAt.Sub(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("250 at 50/s took %s", took)
		}
		if dead, redrives := m.Left("q"); dead != 5 || redrives[1] != 250 {
			t.Errorf("%d are dead; redriven: %v", dead, redrives)
		}
		if dead, _ := m.Left("other"); dead != 10 {
			t.Errorf("of another queue %d are dead", dead)
		}
	})
}

// A plan over messages that die again at once ends, and touches each once.
func TestPlanTouchesEachMessageOnce(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 200, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive})
		for range 200 {
			deadtest.Pass(20 * time.Millisecond)
			m.FailAgain("q")
		}
		m.ends(id, time.Minute, plan.Done, 200, 0)
		m.FailAgain("q")
		if dead, redrives := m.Left("q"); dead != 200 || redrives[1] != 200 {
			t.Errorf("%d are dead; redriven: %v", dead, redrives)
		}
	})
}

func TestPlanRefusesWhatHasNoBody(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 4, nil)
		m.Kill("q", 3, deadtest.BodyGone)
		edited := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("mended")}}
		if _, err := m.store.Update(context.Background(), driver.Selection{Refs: []redrive.Ref{{Queue: "q", ID: "m00007"}}}, edited, 1); err != nil {
			t.Fatal(err)
		}
		named := plan.Request{Action: driver.ActRedrive, Refs: []redrive.Ref{{Queue: "q", ID: "m00001"}, {Queue: "q", ID: "m00005"}, {Queue: "q", ID: "m00007"}}}
		for want, r := range map[int64]plan.Request{1: named, 2: {Action: driver.ActRedrive}} {
			if dry, err := m.plans.DryRun(context.Background(), r); err != nil || dry.Refused["body-gone"] != want || len(dry.Refused) != 1 {
				t.Errorf("dry run: %+v, %v", dry, err)
			}
		}
		if p := m.ends(m.create(plan.Request{Action: driver.ActRedrive}), time.Minute, plan.Done, 5, 2); p.Errors["body-gone"] != 2 {
			t.Errorf("errors: %v", p.Errors)
		}
	})
}

func TestPlanRefusesWhatIsCorrupt(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 4, nil)
		m.Kill("q", 3, func(e *redrive.Entry) { e.Reason = redrive.ReasonCorrupt })
		r := plan.Request{Action: driver.ActRedrive}
		if dry, err := m.plans.DryRun(context.Background(), r); err != nil || dry.Refused["body-corrupt"] != 3 || len(dry.Refused) != 1 {
			t.Errorf("dry run: %+v, %v", dry, err)
		}
		if p := m.ends(m.create(r), time.Minute, plan.Done, 4, 3); p.Errors["body-corrupt"] != 3 {
			t.Errorf("errors: %v", p.Errors)
		}
		r.ConfirmCorrupt = true
		m.ends(m.create(r), time.Minute, plan.Done, 3, 0)
	})
}

func TestPlanGoesOnPastWhatIsRefused(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		for range 40 {
			m.Kill("q", 3, nil)
			m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
			m.Kill("q", 1, func(e *redrive.Entry) { e.Redrives = 3 })
		}
		m.Kill("q", 1, func(e *redrive.Entry) { e.Reason, e.Redrives = redrive.ReasonUncertain, 3 }) // counted once
		r := plan.Request{Action: driver.ActRedrive, MaxRedrives: 3, Rate: 40}
		dry, err := m.plans.DryRun(context.Background(), r)
		if err != nil || dry.Total != 201 || dry.More || dry.ByReason[redrive.ReasonExhausted] != 160 || dry.ByReason[redrive.ReasonUncertain] != 41 ||
			dry.Refused["uncertain"] != 41 || dry.Refused["loop"] != 40 || len(dry.Causes) != 2 || dry.Cutoff.IsZero() {
			t.Errorf("dry run: %+v, %v", dry, err)
		}
		if dead, _ := m.Left("q"); dead != 201 {
			t.Errorf("after the dry run %d are dead", dead)
		}
		p := m.ends(m.create(r), time.Minute, plan.Done, 120, 81)
		if p.Errors["uncertain"] < 40 || p.Errors["loop"] < 40 {
			t.Errorf("errors: %v", p.Errors)
		}
		r.ConfirmUncertain = true
		m.ends(m.create(r), time.Minute, plan.Done, 40, 41)
	})
}

// Totals are exact however many there are, unless a filter must look at the messages; then they
// say of how many.
func TestPlanTotals(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		const n = redrive.Examined + 500
		put := make([]redrive.Entry, n)
		for i := range put {
			e := redrive.Entry{Message: redrive.Message{Queue: "q", ID: fmt.Sprintf("n%d", i)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent}
			e.History.Record(&redrive.Failure{Message: "m", Signature: []string{"one", "two"}[i%2]}, true)
			put[i] = e
		}
		if _, err := m.store.Apply(context.Background(), driver.Batch{Put: put}); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(time.Second)
		before := time.Now()
		deadtest.Pass(time.Second)
		m.Kill("q", 7, nil)
		waiting := make([]redrive.Message, n)
		for i := range waiting {
			waiting[i] = redrive.Message{Queue: "q"}
		}
		if err := driver.FirstError(m.store.Publish(context.Background(), waiting)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name  string
			r     plan.Request
			total int64
			more  bool
		}{
			{"queue", plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}}, n + 7, false},
			{"signature", plan.Request{Action: driver.ActDrop, Query: redrive.Query{Signature: "two"}}, n / 2, false},
			{"cutoff", plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q", Until: before}}, n, false},
			{"reason", plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Reason: redrive.ReasonExhausted}}, 7, false},
			{"kind", plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Kind: "none"}}, 0, true},
			{"waiting", plan.Request{Action: driver.ActDrop, Query: redrive.Query{Queue: "q", State: redrive.StateWaiting}}, n, false},
		} {
			run, err := m.plans.DryRun(context.Background(), c.r)
			if err != nil || run.Total != c.total || run.More != c.more || (run.Examined == redrive.Examined) != c.more {
				t.Errorf("%s: total %d, more %t, %d examined, %v; want %d, %t", c.name, run.Total, run.More, run.Examined, err, c.total, c.more)
			}
			p, err := m.plans.Create(context.Background(), c.r)
			if err != nil || p.Total != run.Total || p.TotalMore != run.More || p.Examined != run.Examined {
				t.Errorf("%s: the plan has total %d, more %t, %d examined, %v", c.name, p.Total, p.TotalMore, p.Examined, err)
			}
		}
	})
}

func TestPlanActions(t *testing.T) {
	for _, c := range []struct {
		name  string
		r     plan.Request
		check func(c *driver.Counts) bool
	}{
		{"drop", plan.Request{Action: driver.ActDrop}, func(c *driver.Counts) bool { return c.Ledger.Dropped == 30 }},
		{"archive", plan.Request{Action: driver.ActArchive}, func(c *driver.Counts) bool { return c.Ledger.Archived == 30 }},
		{"to another queue", plan.Request{Action: driver.ActRedrive, To: "other"}, func(c *driver.Counts) bool { return c.Ledger.MovedOut == 30 }},
		{"under new ids", plan.Request{Action: driver.ActRedrive, NewID: true}, func(c *driver.Counts) bool { return c.AllWaiting() == 30 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 30, nil)
				m.ends(m.create(c.r), time.Minute, plan.Done, 30, 0)
				counts, err := m.store.Counts(context.Background(), "q")
				if archived := len(m.archive.Entries()); (c.name == "archive") != (archived == 30) {
					t.Errorf("%d were archived", archived)
				}
				if err != nil || !c.check(&counts[0]) || counts[0].AllDead() != 0 {
					t.Errorf("%+v, %v", counts, err)
				}
			})
		})
	}
	t.Run("drop what waits", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			for range 30 {
				if err := redrive.Publish(context.Background(), m.store, "q", "x"); err != nil {
					t.Fatal(err)
				}
			}
			m.Kill("q", 3, nil)
			r := plan.Request{Action: driver.ActDrop, Query: redrive.Query{State: redrive.StateWaiting}}
			if dry, err := m.plans.DryRun(context.Background(), r); err != nil || dry.Total != 30 {
				t.Errorf("%+v, %v", dry, err)
			}
			m.ends(m.create(r), time.Minute, plan.Done, 30, 0)
			if dead, redrives := m.Left("q"); dead != 3 || redrives[0] != 3 {
				t.Errorf("%d are dead of %v", dead, redrives)
			}
		})
	})
}

func TestPlanOverNames(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 100, nil)
		m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
		refs := []redrive.Ref{{Queue: "q", ID: "nobody"}, {Queue: "q", ID: "m00101"}}
		for i := 1; i <= 100; i += 2 {
			refs = append(refs, redrive.Ref{Queue: "q", ID: fmt.Sprintf("m%05d", i)})
		}
		r := plan.Request{Action: driver.ActRedrive, Refs: refs}
		dry, err := m.plans.DryRun(context.Background(), r)
		if err != nil || dry.Total != 52 || dry.Refused["not-found"] != 1 || dry.Refused["uncertain"] != 1 || dry.ByReason[redrive.ReasonExhausted] != 50 {
			t.Errorf("dry run: %+v, %v", dry, err)
		}
		p := m.ends(m.create(r), time.Minute, plan.Done, 50, 2)
		if p.Errors["not-found"] != 1 || p.Errors["uncertain"] != 1 || p.Total != 52 {
			t.Errorf("%+v", p)
		}
		if dead, redrives := m.Left("q"); dead != 51 || redrives[1] != 50 {
			t.Errorf("%d are dead; redriven: %v", dead, redrives)
		}
	})
}

func TestPlanRefusesMoreNamesThanARecordHolds(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		refs := make([]redrive.Ref, 3000)
		for i := range refs {
			refs[i] = redrive.Ref{Queue: "q", ID: redrive.NewID()}
		}
		_, err := m.plans.Create(context.Background(), plan.Request{Action: driver.ActRedrive, Refs: refs})
		if !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), "use a filter") {
			t.Errorf("3,000 names: %v", err)
		}
		if _, err := m.plans.Create(context.Background(), plan.Request{Action: driver.ActRedrive, Refs: refs[:1000]}); err != nil {
			t.Errorf("1,000 names: %v", err)
		}
	})
}

func TestPlanIsPausedResumedAndCancelled(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 100, nil)
		ctx, other := context.Background(), m.process("other")
		id := m.create(plan.Request{Action: driver.ActRedrive, Rate: 10})
		deadtest.Pass(2 * time.Second)
		if err := other.Pause(ctx, id); err != nil {
			t.Fatal(err)
		}
		paused := m.plan(id)
		deadtest.Pass(time.Minute)
		if p := m.plan(id); p.State != plan.Paused || p.Done > paused.Done+3 || p.Done == 0 || p.Done > 50 {
			t.Errorf("a minute after the pause: %+v", p)
		}
		if err := m.plans.Resume(ctx, id, plan.Pace{}); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(2 * time.Second)
		if p := m.plan(id); p.Done <= paused.Done+10 {
			t.Errorf("two seconds after it was resumed: %+v", p)
		}
		if err := other.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		deadtest.Pass(time.Second)
		p := m.plan(id)
		dead, redrives := m.Left("q")
		if p.State != plan.Cancelled || p.EndedAt.IsZero() || int64(redrives[1]) != p.Done || dead != 100-p.Done || dead == 0 {
			t.Errorf("cancelled: %+v; %d are dead; redriven: %v", p, dead, redrives)
		}
		if err := m.plans.Resume(ctx, id, plan.Pace{}); !errors.Is(err, redrive.ErrState) {
			t.Errorf("resumed after it ended: %v", err)
		}
		if err := m.plans.Cancel(ctx, id); err != nil {
			t.Errorf("cancelled again: %v", err)
		}
		if err := m.plans.Pause(ctx, "nobody"); !errors.Is(err, redrive.ErrNotFound) {
			t.Errorf("a plan that there is not: %v", err)
		}
	})
}

func TestPlanSurvivesRestarts(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 300, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Rate: 50})
		for i := range 5 {
			stop := m.run(m.process(fmt.Sprint("process", i)))
			deadtest.Pass(time.Second)
			stop()
			if p := m.plan(id); p.State != plan.Running || p.Done == 0 {
				t.Fatalf("after run %d: %+v", i, p)
			}
			m.FailAgain("q")
		}
		defer m.run(m.plans)()
		m.ends(id, time.Minute, plan.Done, 300, 0)
		if _, redrives := m.Left("q"); redrives[1] != 300 {
			t.Errorf("redriven: %v", redrives)
		}
	})
}

// Its runner dies after it changed messages and before it noted that.
func TestPlanRedrivesNothingTwiceWhenItsNotesAreLost(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("names ", named), func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				m.Kill("q", 100, nil)
				r := plan.Request{Action: driver.ActRedrive, Rate: 50}
				for i := 1; named && i <= 100; i++ {
					r.Refs = append(r.Refs, redrive.Ref{Queue: "q", ID: fmt.Sprintf("m%05d", i)})
				}
				id := m.create(r)
				defer m.run(m.plans)()
				for range 4 {
					deadtest.Pass(500 * time.Millisecond)
					m.store.passes.Store(1) // the step's intention is written
					m.store.writes.Store(2) // not its note, nor that of the trouble
					m.FailAgain("q")
				}
				m.store.writes.Store(0)
				until := time.Now().Add(time.Minute)
				for m.plan(id).State != plan.Done && time.Now().Before(until) {
					deadtest.Pass(time.Second)
					m.FailAgain("q")
				}
				p := m.plan(id)
				if p.State != plan.Done || p.Failed != 0 || p.Done != 100 || p.Problem != "" {
					t.Errorf("%+v", p)
				}
				if _, redrives := m.Left("q"); redrives[1] != 100 {
					t.Errorf("redriven: %v", redrives)
				}
			})
		})
	}
}

// A runner hangs in the middle of a batch for longer than its lease. Another does the batch
// and goes on; what the first notes then is not counted again.
func TestPlanCountsABatchOnceThatTwoRunnersDid(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 100, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive, Rate: 20})
		hung, goOn := make(chan struct{}), make(chan struct{})
		first := &faultyStore{Store: m.Store.Store}
		first.beforeUpdate(sync.OnceFunc(func() { close(hung); <-goOn }))
		stop := m.run(plan.New(first, plan.Options{Instance: "hangs", Archive: &m.archive}))
		<-hung
		defer m.run(m.process("other"))()
		m.ends(id, time.Minute, plan.Done, 100, 0)
		close(goOn)
		deadtest.Pass(time.Minute)
		stop()
		m.ends(id, time.Minute, plan.Done, 100, 0)
	})
}

// A runner dies before it dropped a batch that it has chosen. Until another does it again, one
// of the messages is redriven and handled: the plan does not claim to have dropped it.
func TestPlanClaimsOnlyWhatItDropped(t *testing.T) {
	for action, own := range map[driver.Action]plan.Outcome{driver.ActDrop: plan.Dropped, driver.ActArchive: plan.Archived} {
		t.Run(action.String(), func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				m.Kill("q", 3, nil)
				id := m.create(plan.Request{Action: action})
				hung, goOn := make(chan struct{}), make(chan struct{})
				first := &faultyStore{Store: m.Store.Store}
				first.beforeUpdate(sync.OnceFunc(func() { close(hung); <-goOn }))
				stop := m.run(plan.New(first, plan.Options{Instance: "hangs", Archive: &m.archive}))
				<-hung
				taken := redrive.Ref{Queue: "q", ID: "m00002"}
				if _, err := m.store.Update(context.Background(), driver.Selection{Refs: []redrive.Ref{taken}}, driver.Change{Action: driver.ActRedrive}, 1); err != nil {
					t.Fatal(err)
				}
				m.settleSome(t, "q", 1, redrive.OutcomeDone)
				defer m.run(m.process("other"))()
				m.ends(id, time.Minute, plan.Done, 3, 0)
				results, _, err := m.plans.Results(context.Background(), id, "", 10)
				if err != nil || len(results) != 3 {
					t.Fatal(results, err)
				}
				for _, r := range results {
					want := own
					if r.Ref == taken {
						want = plan.Gone
					}
					if r.Outcome != want {
						t.Errorf("%s is %s, want %s", r.ID, r.Outcome, want)
					}
				}
				close(goOn)
				stop()
			})
		})
	}
}

func TestPlanRunsInOneProcess(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 300, nil)
		began := time.Now()
		id := m.create(plan.Request{Action: driver.ActRedrive, Rate: 20})
		for i := range 4 {
			defer m.run(m.process(fmt.Sprint("process", i)))()
		}
		p := m.ends(id, time.Minute, plan.Done, 300, 0)
		if took := p.EndedAt.Sub(began); took < 14*time.Second {
			t.Errorf("300 at 20/s took only %s: several work on it", took)
		}
	})
}

func TestPlanIsTakenOverWhenItsRunnerDies(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 3, nil)
		// A process died and left its lease behind.
		if _, err := m.store.Apply(context.Background(), driver.Batch{Records: []driver.RecordWrite{
			{Space: "leases", Key: "plans", Value: []byte("dead process"), Expires: 15 * time.Second}}}); err != nil {
			t.Fatal(err)
		}
		defer m.run(m.plans)()
		id := m.create(plan.Request{Action: driver.ActRedrive})
		deadtest.Pass(14 * time.Second)
		if p := m.plan(id); p.Done != 0 {
			t.Errorf("the other's lease was not respected: %+v", p)
		}
		m.ends(id, 5*time.Second, plan.Done, 3, 0)
	})
}

func TestPlanIsTakenOverAtOnceInAnEmbeddedStore(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 3, nil)
		if _, err := m.store.Apply(context.Background(), driver.Batch{Records: []driver.RecordWrite{
			{Space: "leases", Key: "plans", Value: []byte("dead process"), Expires: 15 * time.Second}}}); err != nil {
			t.Fatal(err)
		}
		m.store.exclusive = true
		defer m.run(m.plans)()
		id := m.create(plan.Request{Action: driver.ActRedrive})
		m.ends(id, 11*time.Second, plan.Done, 3, 0)
	})
}

func TestPlanIsNoticed(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		stop := m.run(m.plans)
		deadtest.Pass(3 * time.Second)
		m.Kill("q", 3, nil)
		id := m.create(plan.Request{Action: driver.ActRedrive})
		synctest.Wait()
		if p := m.plan(id); p.State != plan.Done {
			t.Errorf("a plan of this process did not start at once: %+v", p)
		}
		m.Kill("q", 3, nil)
		p, err := m.process("other").Create(context.Background(), plan.Request{Action: driver.ActRedrive, All: true})
		if err != nil {
			t.Fatal(err)
		}
		m.ends(p.ID, 11*time.Second, plan.Done, 3, 0)
		found := m.store.found.Load()
		deadtest.Pass(time.Hour)
		if n := m.store.found.Load() - found; n != 0 {
			t.Errorf("while nothing was to be done the runner looked for messages %d times", n)
		}
		all, err := m.plans.List(context.Background())
		if err != nil || len(all) != 2 || all[0].ID != p.ID || all[1].ID != id {
			t.Errorf("the list: %+v, %v", all, err)
		}
		stop()
		deadtest.Pass(31 * 24 * time.Hour)
		if _, err := m.plans.Get(context.Background(), id); !errors.Is(err, redrive.ErrNotFound) {
			t.Errorf("a month later it is kept: %v", err)
		}
	})
}

func TestPlanInTrouble(t *testing.T) {
	t.Run("that passes", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			m.Kill("q", 3, nil)
			m.store.finds.Store(&errBroken)
			id := m.create(plan.Request{Action: driver.ActRedrive})
			deadtest.Pass(10 * time.Second)
			if p := m.plan(id); p.State != plan.Running || p.Problem != "broken" {
				t.Errorf("%+v", p)
			}
			m.store.finds.Store(nil)
			if p := m.ends(id, time.Minute, plan.Done, 3, 0); p.Problem != "" {
				t.Errorf("the problem remained: %+v", p)
			}
		})
	})
	t.Run("that lasts", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			m.Kill("q", 3, nil)
			err := fmt.Errorf("%w filter", redrive.ErrInvalid)
			m.store.finds.Store(&err)
			id := m.create(plan.Request{Action: driver.ActRedrive})
			if p := m.ends(id, time.Second, plan.Failed, 0, 0); p.Problem != "invalid filter" {
				t.Errorf("%+v", p)
			}
		})
	})
	t.Run("of one that cannot be read", func(t *testing.T) {
		inMorgue(t, func(m *morgue) {
			defer m.run(m.plans)()
			m.Kill("q", 3, nil)
			if _, err := m.store.Apply(context.Background(), driver.Batch{Records: []driver.RecordWrite{{Space: "plans", Key: "damaged", Value: []byte("{")}}}); err != nil {
				t.Fatal(err)
			}
			m.ends(m.create(plan.Request{Action: driver.ActRedrive}), time.Second, plan.Done, 3, 0)
			all, err := m.plans.List(context.Background())
			if err != nil || len(all) != 2 || all[1].ID != "damaged" || all[1].State != plan.Failed || all[1].Problem == "" {
				t.Errorf("%+v, %v", all, err)
			}
		})
	})
}
