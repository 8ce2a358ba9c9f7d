package plan_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/plan"
)

// retain runs the retention until the returned function is called.
func (m *morgue) retain(o plan.RetentionOptions) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plan.NewRetention(m.store, o).Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			m.T.Error(err)
		}
	}
}

func (m *morgue) ledger(queue string) (dead int64, b driver.Ledger) {
	m.T.Helper()
	counts, err := m.store.Counts(context.Background(), queue)
	if err != nil {
		m.T.Fatal(err)
	}
	return counts[0].AllDead(), counts[0].Ledger
}

func TestRetention(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("old", 50, nil)
		m.Kill("many", 100, nil)
		m.Kill("discarded", 100, nil)
		m.Kill("kept", 100, nil)
		deadtest.Pass(time.Hour)
		m.Kill("old", 5, nil)
		archive := &deadtest.Archive{}
		rules := map[string]plan.RetentionRule{
			"old": {Age: 30 * time.Minute}, "many": {Keep: 40}, "discarded": {Age: time.Minute, Keep: 10, Discard: true},
		}
		stop := m.retain(plan.RetentionOptions{Rule: func(queue string) plan.RetentionRule { return rules[queue] }, Archive: archive})
		defer m.retain(plan.RetentionOptions{Instance: "another process", Archive: archive})()
		deadtest.Pass(2 * time.Minute)
		stop()
		for queue, want := range map[string][3]int64{"old": {5, 50, 0}, "many": {40, 60, 0}, "discarded": {0, 0, 100}, "kept": {100, 0, 0}} {
			if dead, b := m.ledger(queue); dead != want[0] || b.Archived != want[1] || b.Dropped != want[2] {
				t.Errorf("%s: %d dead, %d archived, %d dropped; want %v", queue, dead, b.Archived, b.Dropped, want)
			}
		}
		if len(archive.Entries()) != 110 {
			t.Errorf("%d are in the archive", len(archive.Entries()))
		}
		audits, err := m.store.Verify(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range audits {
			if a.Imbalance() != 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}

// What cannot be archived is not removed.
func TestRetentionWithoutAnArchive(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 20, nil)
		rule := func(string) plan.RetentionRule { return plan.RetentionRule{Age: time.Second} }
		broken := &deadtest.Archive{}
		broken.Fail(errors.New("the disk is full"))
		for _, archive := range []deadletter.Archiver{nil, broken} {
			stop := m.retain(plan.RetentionOptions{Rule: rule, Archive: archive})
			deadtest.Pass(3 * time.Minute)
			stop()
			if dead, b := m.ledger("q"); dead != 20 || b.Left() != 0 {
				t.Errorf("%d are left, ledger %+v", dead, b)
			}
		}
	})
}
