package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/wire"
)

// TestAnotherDaemonEndsAPlan kills the daemon that began a plan. The other one on the same
// store carries it to its end. Nobody consumes what is redriven, so that each message shows
// how often that happened.
func TestAnotherDaemonEndsAPlan(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, nil)
	const n, yaml = 600, "queues:\n  q: {}\n"
	// What has expired dies as soon as somebody looks at the queue.
	one := newDaemonOn(t, s.URL(), fmt.Sprintf("queues:\n  q: {deliver: {url: %q, allow_private: true}}\n", newReceiver(t)+"/hook"))
	one.publishMany("q", "k", n, func(i int) string { return fmt.Sprintf(`"expires_at":"2020-01-01T00:00:00Z","body":%d`, i) })
	until(t, "all are dead", time.Minute, func() bool { return one.queue("q").Dead == n })
	one.restartWith(yaml)
	plan := decode[wire.Plan](t, one.redrive("dead", "redrive", "--all", "--rate", "100/s", "--yes", "--json").ok(t))
	state := func(d *daemon) wire.Plan { return get[wire.Plan](t, d.url+"/v1/plans/"+plan.ID+"?progress=true") }
	// The other comes when the plan is under way, so it is the first that carries it out.
	until(t, "the plan is under way", time.Minute, func() bool { return state(one).Done > 0 })
	other := newDaemonOn(t, s.URL(), yaml)
	one.kill()
	if p := state(other); p.Ended() || p.Done == 0 || p.Done == n {
		t.Fatalf("it was not killed in the middle: %+v", p)
	}
	until(t, "the other daemon ends the plan", 2*time.Minute, func() bool { p := state(other); return p.Ended() })
	if p := state(other); p.State != wire.PlanDone || p.Done != n || p.Failed != 0 || p.Progress.Waiting != n {
		t.Errorf("%+v, %+v", p, p.Progress)
	}
	list := decode[wire.List[wire.Message]](t, other.redrive("messages", "list", "--queue", "q", "--limit", "0", "--json").ok(t))
	ids := make(map[string]bool)
	for i := range list.Items {
		m := &list.Items[i]
		ids[m.ID] = true
		if m.Redrives != 1 || m.Generation != 1 || m.State != "waiting" || m.Plan != plan.ID {
			t.Errorf("%s is %s, redriven %d times, generation %d", m.ID, m.State, m.Redrives, m.Generation)
		}
	}
	results := decode[wire.List[wire.PlanResult]](t, other.redrive("plans", "results", plan.ID, "--limit", "0", "--json").ok(t))
	seen := make(map[string]bool)
	for _, r := range results.Items {
		seen[r.ID] = true
	}
	if len(list.Items) != n || len(ids) != n || len(results.Items) != n || len(seen) != n {
		t.Errorf("%d messages with %d ids, %d results of %d; want %d", len(list.Items), len(ids), len(results.Items), len(seen), n)
	}
	other.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
}
