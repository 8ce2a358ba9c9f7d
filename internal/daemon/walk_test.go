package daemon_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/internal/wire"
)

// TestWalk is the product in short: messages go in, some fail for good and end dead,
// the receiver is healed, a plan empties the dead letters, the ledger balances.
func TestWalk(t *testing.T) {
	target := newReceiver(t, func(body string) int {
		if strings.Contains(body, `"bad"`) {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	})
	cfg := parse(t, fmt.Sprintf("store: sqlite:%s\nqueues:\n  hooks: {deliver: {url: \"%s/hook?key=1\", allow_private: true}}\n", filepath.Join(t.TempDir(), "data"), target.URL))
	d := start(t, cfg, nil)

	var lines strings.Builder
	for i := 1; i <= 20; i++ {
		body := "good"
		if i%4 == 0 {
			body = "bad"
		}
		fmt.Fprintf(&lines, `{"id":"m-%d","kind":"test","body":"%s"}`+"\n", i, body)
	}
	resp, answer := d.send(http.MethodPost, "/v1/queues/hooks/messages", lines.String(), "Content-Type", "application/x-ndjson")
	if resp.StatusCode != http.StatusOK || strings.Count(string(answer), `"status":"accepted"`) != 20 {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	queue := func() wire.Queue { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "") }
	d.eventually("15 done, 5 dead", func() bool { q := queue(); return q.Ledger.Done == 15 && q.Dead == 5 })

	// The failure history of one.
	m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/hooks/dead-letters/m-4", "")
	f := m.History.First
	if m.State != "dead" || *m.Reason != redrive.ReasonPermanent || *m.Body != `"bad"` || f == nil || f.Details["status"] == "" && len(f.Details) == 0 ||
		f.Host == "" || f.PID == 0 || f.Version != "test" || f.Service != "redrive" || f.Environment != "production" || f.Config.Target == "" || f.TraceID == "" {
		t.Errorf("%+v, failure %+v", m, f)
	}
	if strings.Contains(fmt.Sprint(f), "key=1") {
		t.Error("the target's query, which may hold a secret, is shown")
	}
	if done := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/hooks/messages/m-1", ""); done.State != "done" || done.EndedAt == nil {
		t.Errorf("what was delivered is remembered as %+v", done)
	}

	causes := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=hooks", "")
	if len(causes.Items) != 1 || causes.Items[0].Count != 5 || !causes.Complete {
		t.Errorf("causes %+v", causes)
	}
	byGroup := fmt.Sprintf(`{"action":"redrive","filter":{"queue":"hooks","signature":%q},"rate":"1000/s"`, causes.Items[0].Signature)
	dry := get[wire.DryRun](d, 200, http.MethodPost, "/v1/plans", byGroup+`,"dry_run":true}`)
	if !dry.DryRun || dry.Total != 5 || dry.Reason["permanent"] != 5 || queue().Dead != 5 {
		t.Errorf("dry run %+v", dry)
	}

	target.heal()
	plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", byGroup+"}")
	d.eventually("the plan is done", func() bool {
		p := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+plan.ID, "")
		return p.State == wire.PlanDone && p.Done == 5 && p.Failed == 0
	})
	d.eventually("all are delivered", func() bool { q := queue(); return q.Ledger.Done == 20 && q.Dead == 0 && q.Waiting.All == 0 })
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced || len(v.Queues) != 1 || v.Queues[0].Ledger.Done != 20 {
		t.Errorf("verify %+v", v)
	}
	var metrics []byte
	d.eventually("the metrics tell of the redrive", func() bool { // they are updated after the store
		_, metrics = d.send(http.MethodGet, "/metrics", "")
		return strings.Contains(string(metrics), `redrive_redriven_total{outcome="done",queue="hooks"} 5`)
	})
	for _, want := range []string{
		`redrive_accepted_total{ingress="http"} 20`, `redrive_ledger_imbalance_messages 0`,
		`redrive_dead_lettered_total{queue="hooks",reason="permanent"} 5`, `redrive_redriven_total{outcome="done",queue="hooks"} 5`,
		`redrive_ledger_messages_total{entry="done",queue="hooks"} 20`,
	} {
		if !slices.Contains(strings.Split(string(metrics), "\n"), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	log := d.log.String()
	for _, line := range []string{"accepted", "dead", "redriven", "done"} {
		if !slices.ContainsFunc(strings.Split(log, "\n"), func(l string) bool { return strings.Contains(l, "msg="+line) && strings.Contains(l, "id=m-4") }) {
			t.Errorf("the log does not tell that m-4 was %s", line)
		}
	}

	// What was accepted is there after a restart.
	d.shutdown()
	store, err := sqlite.Open(cfg.StoreDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	audits, err := store.Verify(t.Context(), "hooks")
	if err != nil || audits[0].Imbalance() != 0 || audits[0].Ledger.Done != 20 {
		t.Errorf("after a restart: %+v, %v", audits, err)
	}
}
