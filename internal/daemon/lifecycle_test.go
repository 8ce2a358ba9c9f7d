package daemon_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

func TestShutdownWithWorkInFlight(t *testing.T) {
	began, finish := make(chan struct{}, 3), make(chan struct{}) // room for every message
	target := newReceiver(t, func(string) int {
		began <- struct{}{}
		<-finish
		return http.StatusOK
	})
	cfg := parse(t, fmt.Sprintf("store: sqlite:%s\nqueues: {hooks: {deliver: {url: %q, allow_private: true, concurrency: 1}}}", filepath.Join(t.TempDir(), "data"), target.URL))
	d := start(t, cfg, nil)
	for i := range 3 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", fmt.Sprint(i), "redrive-id", fmt.Sprintf("m-%d", i))
	}
	<-began // one is at the target
	d.stop()
	d.eventually("no new requests are taken", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.base+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	close(finish) // within the grace: it counts as delivered
	d.shutdown()
	store, err := sqlite.Open(cfg.StoreDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	counts, err := store.Counts(t.Context(), "hooks")
	if err != nil {
		t.Fatal(err)
	}
	c := counts[0]
	if c.Ledger.Done < 1 || c.Ledger.Done+c.AllWaiting() != 3 || c.AllDead() != 0 || c.Suspects != 0 || int(c.Ledger.Done) != target.received() {
		t.Errorf("after the shutdown: %+v; %d were received", c, target.received())
	}
}

func TestAStreamEndsWithTheDaemon(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	body, send := newPipe(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+"/v1/queues/sms/messages", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	go send("{\"id\":\"m-1\"}\n")
	resp, err := d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	d.stop()
	answer := readAll(t, resp.Body)
	if !strings.Contains(answer, `{"line":1,"id":"m-1","status":"accepted"}`) || !strings.Contains(answer, "shutting-down") {
		t.Errorf("got %s", answer)
	}
	d.shutdown()
}

func TestPauseAndResume(t *testing.T) {
	target := newReceiver(t, nil)
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}, idle: {}}", target.URL)), newStore(t))
	q := get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/hooks/pause", `{"reason":"maintenance","for":"1h"}`)
	if q.Engine == nil || len(q.Engine.Paused) != 1 || q.Engine.Paused[0].Reason != "maintenance" || q.Engine.Paused[0].Until == nil || q.Deliver != target.URL {
		t.Errorf("%+v", q)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x")
	d.eventually("the pause holds the message back", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "")
		return strings.Contains(q.Engine.Refused, "maintenance")
	})
	if target.received() != 0 {
		t.Error("a paused queue delivers")
	}
	get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/hooks/resume", "")
	d.eventually("it is delivered", func() bool { return target.received() == 1 })
	d.refused(404, "queue-not-found", http.MethodPost, "/v1/queues/none/pause", "")
	d.refused(400, "invalid-json", http.MethodPost, "/v1/queues/hooks/pause", `{"for":"soon"}`)
}

func TestALeasedMessageIsNotDropped(t *testing.T) {
	store := newStore(t)
	d := start(t, parse(t, "queues: {sms: {}}"), store)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", "m")
	ds, err := store.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 1, Lease: time.Minute, Instance: "test"})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	p := d.refused(409, "state", http.MethodDelete, "/v1/queues/sms/messages/m", "")
	if !strings.Contains(p.Hint, "when its attempt has ended") {
		t.Errorf("%+v", p)
	}
}

func TestReadiness(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	d.eventually("it is ready", func() bool {
		resp, _ := d.send(http.MethodGet, "/readyz", "")
		return resp.StatusCode == http.StatusOK
	})
	if err := d.store.Close(); err != nil {
		t.Fatal(err)
	}
	d.refused(503, "not-ready", http.MethodGet, "/readyz", "")
	resp, _ := d.send(http.MethodGet, "/healthz", "")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("healthz %d", resp.StatusCode)
	}
	d.refused(503, "shutting-down", http.MethodPost, "/v1/queues/sms/messages", "x")
	d.stop()
	<-d.ended // the engine complains of the store, as it should
	close(d.ended)
}

func TestAStoreInUseIsReportedPlainly(t *testing.T) {
	cfg := parse(t, "store: sqlite:"+filepath.Join(t.TempDir(), "data"))
	start(t, cfg, nil)
	_, err := daemon.New(cfg, daemon.Options{})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
}

func TestABadTargetIsReportedBeforeTheStart(t *testing.T) {
	cfg := config.Default()
	cfg.Queues["hooks"] = &config.Queue{Deliver: &config.Deliver{URL: "ftp://example.com"}}
	_, err := daemon.New(cfg, daemon.Options{Store: newStore(t)})
	if err == nil || !strings.Contains(err.Error(), "queue hooks") || !strings.Contains(err.Error(), "https://host/path") {
		t.Errorf("%v", err)
	}
}

func TestLocal(t *testing.T) {
	store := newStore(t)
	defer store.Close()
	deadLetters(t, store, 3)
	local := daemon.Local(store, nil, slog.Default())
	defer local.Close()
	s := httptest.NewServer(local)
	defer s.Close()
	d := &rig{t: t, base: s.URL, store: store, http: s.Client()}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/any/messages", "x")
	if list := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", ""); len(list.Items) != 2 || list.Items[0].Engine != nil {
		t.Errorf("%+v", list)
	}
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"sms"}}`)
	d.eventually("the plan is carried out", func() bool {
		return get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "").Done == 3
	})
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
	d.refused(501, "no-daemon", http.MethodGet, "/v1/config", "")
	d.refused(501, "no-daemon", http.MethodGet, "/metrics", "")
	d.refused(501, "no-daemon", http.MethodPost, "/v1/queues/sms/pause", "")
	d.refused(404, "queue-not-found", http.MethodGet, "/v1/queues/none", "")
}
