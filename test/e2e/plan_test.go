package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// publishMany publishes n messages of a kind under ids of their own; rest is the rest
// of a line.
func (d *daemon) publishMany(queue, kind string, n int, rest func(i int) string) {
	d.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%s-%d\",\"kind\":%q,%s}\n", kind, i, kind, rest(i))
	}
	file := d.t.TempDir() + "/messages.ndjson"
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.redrive("publish", queue, "--ndjson", file).ok(d.t)
}

// restartWith starts the daemon again with other queues.
func (d *daemon) restartWith(yaml string) {
	d.t.Helper()
	d.kill()
	text, err := os.ReadFile(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	head := strings.SplitAfterN(string(text), "\n", 3)
	if err := os.WriteFile(d.config, []byte(head[0]+head[1]+yaml), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.start()
}

// TestKillInTheMiddleOfAPlan kills the daemon while it redrives. Nobody consumes what is
// redriven, so that each message shows how often that happened.
func TestKillInTheMiddleOfAPlan(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	const n = 900
	// What has expired dies as soon as somebody looks at the queue.
	d := newDaemon(t, fmt.Sprintf("queues:\n  q: {deliver: {url: %q, allow_private: true}}\n", newReceiver(t)+"/hook"))
	d.publishMany("q", "k", n, func(i int) string { return fmt.Sprintf(`"expires_at":"2020-01-01T00:00:00Z","body":%d`, i) })
	until(t, "all are dead", time.Minute, func() bool { return d.queue("q").Dead == n })
	d.restartWith("queues:\n  q: {}\n")
	plan := decode[wire.Plan](t, d.redrive("dead", "redrive", "--all", "--rate", "400/s", "--yes", "--json").ok(t))
	kills := 0
	for ; ; kills++ {
		<-time.After(time.Duration(100+random.IntN(500)) * time.Millisecond)
		p := get[wire.Plan](t, d.url+"/v1/plans/"+plan.ID)
		if p.Ended() {
			break
		}
		d.kill()
		d.start()
	}
	if kills == 0 {
		t.Error("the plan was done before anything was killed")
	}
	plan = get[wire.Plan](t, d.url+"/v1/plans/"+plan.ID+"?progress=true")
	if plan.State != wire.PlanDone || plan.Done != n || plan.Failed != 0 || plan.Progress.Waiting != n {
		t.Errorf("after kill -9, %d times: %+v, %+v", kills, plan, plan.Progress)
	}
	list := decode[wire.List[wire.Message]](t, d.redrive("messages", "list", "--queue", "q", "--limit", "0", "--json").ok(t))
	for i := range list.Items {
		if m := &list.Items[i]; m.Redrives != 1 || m.Generation != 1 || m.State != "waiting" || m.Plan != plan.ID {
			t.Errorf("%s is %s, redriven %d times, generation %d", m.ID, m.State, m.Redrives, m.Generation)
		}
	}
	results := decode[wire.List[wire.PlanResult]](t, d.redrive("plans", "results", plan.ID, "--limit", "0", "--json").ok(t))
	seen := make(map[string]bool)
	for _, r := range results.Items {
		seen[r.ID] = true
	}
	if len(list.Items) != n || len(results.Items) != n || len(seen) != n {
		t.Errorf("%d messages, %d results of %d messages; want %d", len(list.Items), len(results.Items), len(seen), n)
	}
	d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
}
