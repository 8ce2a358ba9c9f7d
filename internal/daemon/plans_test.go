package daemon_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// bury puts dead letters into a queue, m0 and so on.
func (d *rig) bury(queue string, n int) {
	d.t.Helper()
	for i := range n {
		get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", fmt.Sprintf(`{"queue":%q,"id":"m%d","state":"dead","reason":"permanent","size":1,"body":"x"}`, queue, i))
	}
}

// TestPlanStart: a start with an id may be repeated, also with a time before now, and says why.
func TestPlanStart(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "")
		admin := d.as("admin")
		admin.bury("cards", 3)
		const asked = `{"id":"inc-812","reason":"INC-812","action":"redrive","filter":{"queue":"cards","since":"1h"},"rate":"1/h"}`
		first := get[wire.Plan](admin, 201, http.MethodPost, "/v1/plans", asked)
		again := get[wire.Plan](admin, 200, http.MethodPost, "/v1/plans", asked)
		if first.ID != "inc-812" || again.ID != first.ID || !again.Cutoff.Equal(first.Cutoff) || first.Request.Reason != "INC-812" {
			t.Errorf("%+v, again %+v", first, again)
		}
		admin.refused(409, "conflict", http.MethodPost, "/v1/plans", `{"id":"inc-812","action":"redrive","filter":{"queue":"cards"}}`)
		if list := get[wire.List[wire.Plan]](admin, 200, http.MethodGet, "/v1/plans", ""); len(list.Items) != 1 {
			t.Errorf("%d plans", len(list.Items))
		}
		log := get[wire.List[wire.AuditEntry]](admin, 200, http.MethodGet, "/v1/audit?plan=inc-812&action=plan%20redrive", "")
		if len(log.Items) != 2 || log.Items[1].Note != "INC-812" || log.Items[0].Outcome != "done" {
			t.Errorf("%+v", log.Items)
		}
	})
}

// TestPlanPace: rate and canary are changed while a plan runs and when it is resumed, and the log says to what.
func TestPlanPace(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "")
		admin := d.as("admin")
		admin.bury("cards", 3)
		p := get[wire.Plan](admin, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"cards"},"rate":"1/h"}`)
		path := "/v1/plans/" + p.ID
		d.as("read").refused(403, "forbidden", http.MethodPatch, path, `{"rate":"1/s"}`)
		for _, body := range []string{`{}`, `{"rate":"fast"}`, `{"canary":201}`, `{"canary":5}`} {
			admin.refused(400, "invalid", http.MethodPatch, path, body)
		}
		if p := get[wire.Plan](admin, 200, http.MethodPost, path+"/pause", ""); p.State != "paused" {
			t.Errorf("%+v", p)
		}
		if p := get[wire.Plan](admin, 200, http.MethodPatch, path, `{"rate":"2/h"}`); p.State != "paused" || p.Request.Rate == "" {
			t.Errorf("%+v", p)
		}
		get[wire.Plan](admin, 200, http.MethodPost, path+"/resume", `{"rate":"1000/s"}`)
		d.eventually("the plan to end", func() bool {
			p = get[wire.Plan](admin, 200, http.MethodGet, path, "")
			return p.Ended()
		})
		log := get[wire.List[wire.AuditEntry]](admin, 200, http.MethodGet, "/v1/audit?plan="+p.ID, "")
		notes := make(map[string]string)
		for _, e := range log.Items {
			if e.Outcome == "done" {
				notes[e.Action] = e.Note
			}
		}
		if notes["plan changed"] != "rate 2/h" || notes["plan resumed"] != "rate 1000/s" || p.Done != 3 {
			t.Errorf("%v, %+v", notes, p)
		}
	})
}

// TestPlanWatchesABroker: of what goes to a broker, the canary is watched for what attach brings back.
func TestPlanWatchesABroker(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.XGroupCreateMkStream(t.Context(), "orders", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	d := start(t, parse(t, "queues: {orders: {deliver: {publish: redis://"+server.Addr+"/0, to: orders}}}"), newStore(t))
	d.bury("orders", 5)
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"orders"},"canary":2,"rate":"1000/s"}`)
	if p.Request.Watch.Std() != time.Minute {
		t.Errorf("it is watched for %s", p.Request.Watch)
	}
	path := "/v1/plans/" + p.ID
	d.eventually("the canary to be published", func() bool {
		p = get[wire.Plan](d, 200, http.MethodGet, path, "")
		return p.Canary.Until != nil
	})
	entries, err := client.XRange(t.Context(), "orders", "-", "+").Result()
	if err != nil || len(entries) != 2 || entries[0].Values["redrive-plan"] != p.ID || p.Canary.Delivered != 2 || p.Done != 2 {
		t.Fatalf("%v, %v, %+v", entries, err, p)
	}
	get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", fmt.Sprintf(`{"queue":"orders","id":"from-the-broker","state":"dead","reason":"permanent","size":1,"body":"x","plan":%q}`, p.ID))
	d.eventually("the plan to stop", func() bool {
		p = get[wire.Plan](d, 200, http.MethodGet, path, "")
		return p.State == "stopped"
	})
	if p.Done != 2 || p.Canary.DeadAgain != 1 || p.Canary.Delivered != 1 {
		t.Errorf("%+v, %+v", p, p.Canary)
	}
}

// TestPlanProposed: the scope propose makes plans that another token releases: redrive, or purge for drops.
func TestPlanProposed(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "")
		admin, propose, redrive, purge := d.as("admin"), d.as("propose"), d.as("redrive"), d.as("purge")
		admin.bury("cards", 4)
		d.as("read").refused(403, "forbidden", http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards"}}`)
		p := get[wire.Plan](propose, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards","until":"0s"},"canary":1,"reason":"INC-812"}`)
		drop := get[wire.Plan](propose, 201, http.MethodPost, "/v1/plans", `{"action":"drop","refs":["cards/m3"]}`)
		if p.State != "proposed" || p.Done != 0 || p.Total != 4 || drop.State != "proposed" {
			t.Errorf("%+v, %+v", p, drop)
		}
		path, dropPath := "/v1/plans/"+p.ID, "/v1/plans/"+drop.ID
		for _, verb := range []string{"/release", "/pause", "/resume"} {
			propose.refused(403, "forbidden", http.MethodPost, path+verb, "")
		}
		propose.refused(403, "forbidden", http.MethodPatch, path, `{"rate":"1/s"}`)
		purge.refused(403, "forbidden", http.MethodPost, path+"/release", "")
		redrive.refused(403, "forbidden", http.MethodPost, dropPath+"/release", "")
		redrive.refused(409, "state", http.MethodPost, path+"/resume", "")
		if released := get[wire.Plan](redrive, 200, http.MethodPost, path+"/release", ""); released.ReleasedBy != "redrive" || released.Actor != "propose" {
			t.Errorf("%+v", released)
		}
		get[wire.Plan](purge, 200, http.MethodPost, dropPath+"/release", "")
		d.eventually("the plan to drop", func() bool {
			drop = get[wire.Plan](admin, 200, http.MethodGet, dropPath, "")
			return drop.Ended()
		})
		propose.refused(403, "forbidden", http.MethodPost, path+"/cancel", "") // it is no proposal any more
		own := get[wire.Plan](propose, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["cards/m2"]}`)
		if own := get[wire.Plan](propose, 200, http.MethodPost, "/v1/plans/"+own.ID+"/cancel", ""); own.State != "cancelled" {
			t.Errorf("%+v", own)
		}
		actors := make(map[string]string)
		for _, e := range get[wire.List[wire.AuditEntry]](admin, 200, http.MethodGet, "/v1/audit?plan="+p.ID, "").Items {
			if e.Outcome == "done" {
				actors[e.Action] = e.Actor
			}
		}
		if actors["plan redrive proposed"] != "propose" || actors["plan released"] != "redrive" {
			t.Errorf("%v", actors)
		}
	})
}

// TestPlanHolds: a plan says what holds it: its canary, and who paused the queue that its messages wait in.
func TestPlanHolds(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "")
		admin := d.as("admin")
		admin.bury("cards", 3)
		get[wire.Queue](admin, 200, http.MethodPost, "/v1/queues/cards/pause", `{"reason":"the target is moved","for":"1h"}`)
		p := get[wire.Plan](admin, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards"},"canary":2}`)
		holds := make(map[string]wire.PlanHold)
		d.eventually("the canary to wait", func() bool {
			p = get[wire.Plan](admin, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
			for _, h := range p.Holds {
				holds[h.What] = h
			}
			return len(holds) >= 2
		})
		pause, canary := holds[wire.HoldPause], holds[wire.HoldCanary]
		if pause.Queue != "cards" || pause.By != "admin" || pause.Detail != "the target is moved" || pause.Until == nil || canary.Queue != "" || canary.Since == nil || p.ETA != nil {
			t.Errorf("%+v", p)
		}
		list := get[wire.List[wire.Plan]](admin, 200, http.MethodGet, "/v1/plans", "")
		if len(list.Items) != 1 || len(list.Items[0].Holds) < 2 {
			t.Errorf("%+v", list)
		}
		if p := get[wire.Plan](admin, 200, http.MethodPost, "/v1/plans/"+p.ID+"/pause", ""); p.Holds != nil {
			t.Errorf("of a plan that is paused: %+v", p.Holds)
		}
	})
}
