package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

func inFlight(d *rig, query string) wire.List[wire.Message] {
	d.t.Helper()
	return get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/queues/sms/processing"+query, "")
}

func TestProcessingOfTheStore(t *testing.T) {
	d := start(t, parse(t, "{queues: {sms: {}}, grace: 1ms}"), newStore(t))
	if l := inFlight(d, ""); len(l.Items) != 0 || !l.Complete {
		t.Errorf("of nothing: %+v", l)
	}
	for i := range 3 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", fmt.Sprintf("m-%d", i))
	}
	late := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/sms/claims", `{"max":1,"lease":"10m","worker":"a"}`)
	soon := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/sms/claims", `{"max":1,"lease":"1m","worker":"b"}`)
	l := inFlight(d, "")
	if len(l.Items) != 2 || !l.Complete || l.Items[0].ID != soon.Items[0].ID || l.Items[1].ID != late.Items[0].ID || l.Items[0].LeasedUntil == nil || l.Items[0].Instance == "" {
		t.Errorf("%+v", l)
	}
	if l := inFlight(d, "?limit=1"); len(l.Items) != 1 || l.Complete {
		t.Errorf("one: %+v", l)
	}
	d.refused(404, "queue-not-found", http.MethodGet, "/v1/queues/none/processing", "")
	d.refused(404, "no-monitor", http.MethodGet, "/v1/queues/sms/monitor", "")
}

func TestProcessingOfARedisList(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	gate, arrived := make(chan struct{}), make(chan struct{}, 8)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-gate }))
	defer target.Close()
	address, _ := json.Marshal("redislist" + r.URL()[len("redis"):])
	d := start(t, parse(t, fmt.Sprintf(`{queues: {sms: {source: %s, deliver: {url: %q, allow_private: true, concurrency: 2}}}}`, address, target.URL)), newStore(t))
	defer close(gate)
	for range 2 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x")
	}
	<-arrived
	<-arrived
	l := inFlight(d, "")
	if len(l.Items) != 2 || l.Items[0].State != "leased" || l.Items[0].LeasedUntil == nil || l.Items[0].Instance == "" {
		t.Errorf("%+v", l)
	}
}

// TestNativeDeadLettersOfARedisList leaves a dead letter beside the list, and parks none.
func TestNativeDeadLettersOfARedisList(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer target.Close()
	address, _ := json.Marshal("redislist" + r.URL()[len("redis"):])
	d := start(t, parse(t, fmt.Sprintf(`{queues: {sms: {source: %s, dead_letters: native, policy: {max_attempts: 1}, deliver: {url: %q, allow_private: true}}}}`, address, target.URL)), newStore(t))
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x")
	list, err := redislist.Open(t.Context(), r.URL(), redislist.Options{KeepDead: true})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	deadline := time.Now().Add(time.Minute)
	for {
		dead, err := list.DeadLetters(t.Context(), "sms", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(dead) == 1 {
			if e := dead[0]; e.State != redrive.StateDead || string(e.Body) != "x" || e.History.Latest() == nil {
				t.Errorf("%+v", e)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d dead letters beside the list", len(dead))
		}
		<-time.After(5 * time.Millisecond)
	}
	if parked := get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/dead-letters?queue=sms", ""); len(parked.Items) != 0 {
		t.Errorf("parked: %+v", parked.Items)
	}
}

func TestMonitorOfARedisStream(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	d := start(t, parse(t, fmt.Sprintf("{store: %q, queues: {sms: {}}, grace: 1ms}", r.URL())), nil)
	for range 3 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x")
	}
	get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/sms/claims", `{"max":1,"lease":"1m","worker":"a"}`)
	m := get[wire.Monitor](d, 200, http.MethodGet, "/v1/queues/sms/monitor", "")
	if m.Entries != 3 || m.Unclaimed != 2 || m.Attempts[1] != 1 || len(m.Consumers) != 1 || m.Consumers[0].Leased != 1 || !m.Complete || m.Stream == "" || m.Dead.Stream == "" {
		t.Errorf("%+v", m)
	}
	if l := inFlight(d, ""); len(l.Items) != 1 || l.Items[0].State != "leased" {
		t.Errorf("in flight %+v", l)
	}
}
