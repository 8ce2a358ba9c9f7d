package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// A canary of what goes to a broker waits for what comes back from there, under other ids.
func TestPlanWatchesWhatComesBack(t *testing.T) {
	for _, c := range []struct {
		name, sign string
		after      time.Duration // of the delivery
		says       string
	}{
		{"nothing comes back", "", 0, ""},
		{"the same cause comes back", cause, 50 * time.Second, "2 of the canary's 5 died again of the same cause"},
		{"another cause comes back", "fedcba", time.Second, "2 of the canary's 5 died again of another cause"},
		{"too late for the canary", cause, 63 * time.Second, "2 messages died again of the same cause"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMorgue(t, func(m *morgue) {
				defer m.run(m.plans)()
				m.Kill("q", 1000, nil)
				id := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q"}, Canary: 5, Rate: 10, Watch: time.Minute})
				deadtest.Pass(3 * time.Second)
				m.settleAll("q", redrive.OutcomeDone, "")
				if c.sign != "" {
					deadtest.Pass(c.after)
					for i := range 2 {
						e := redrive.Entry{Message: redrive.Message{ID: fmt.Sprint("attached", i), Queue: "q", Body: []byte("x")}, State: redrive.StateDead, Reason: redrive.ReasonRejected}
						e.Plan = id
						e.History.Record(&redrive.Failure{Message: "no luck", Signature: c.sign}, true)
						if _, err := m.store.Apply(context.Background(), driver.Batch{Put: []redrive.Entry{e}}); err != nil {
							t.Fatal(err)
						}
					}
					deadtest.Pass(5 * time.Second)
					if p := m.plan(id); p.State != plan.Stopped || !strings.Contains(p.Problem, c.says) {
						t.Errorf("%s after %d: %s", p.State, p.Done, p.Problem)
					}
					return
				}
				deadtest.Pass(55 * time.Second)
				if p := m.plan(id); p.Done != 5 || p.Canary.Stage != plan.StageCanary || p.Canary.Seen.IsZero() {
					t.Errorf("within the minute: %d done, %+v", p.Done, p.Canary)
				}
				deadtest.Pass(10 * time.Second)
				if p := m.plan(id); p.Canary.Stage == plan.StageCanary || p.Done <= 5 {
					t.Errorf("after the minute: %d done, %+v", p.Done, p.Canary)
				}
			})
		})
	}
}

func TestWatchesThatAreNone(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		for _, r := range []plan.Request{{Action: driver.ActRedrive, Watch: -1}, {Action: driver.ActRedrive, Watch: 25 * time.Hour}, {Action: driver.ActDrop, Watch: time.Second}} {
			if _, err := m.plans.DryRun(context.Background(), r); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%s for %s: %v", r.Action, r.Watch, err)
			}
		}
	})
}
