package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/archive"
	"github.com/redrive/redrive/server/api"
)

// What was archived by a plan comes back by an import, and the books know both.
func TestArchiveAndImport(t *testing.T) {
	store, dir := newStore(t), t.TempDir()
	deadLetters(t, store, 30)
	d := start(t, parse(t, "queues: {sms: {}}\narchive: "+dir), store)
	p := get[api.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"archive","filter":{"queue":"sms"},"rate":"1000/s"}`)
	for !p.Ended() {
		p = get[api.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
	}
	if p.State != api.PlanDone || p.Done != 30 {
		t.Fatalf("%+v", p)
	}
	var lines strings.Builder
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	err = a.Read(context.Background(), archive.Filter{}, func(e *redrive.Entry) bool {
		b, err := json.Marshal(api.Whole(e, true))
		if err != nil {
			t.Error(err)
		}
		lines.Write(append(b, '\n'))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range []api.Imported{{Imported: 30}, {Duplicates: 30}} {
		if got := get[api.Imported](d, 200, http.MethodPost, "/v1/dead-letters", lines.String()); got.Imported != want.Imported || got.Duplicates != want.Duplicates || got.Failed != 0 {
			t.Errorf("import %d: %+v", round, got)
		}
	}
	q := get[api.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "")
	if q.Dead != 30 || q.Books.Archived != 30 || q.Books.Imported != 60 {
		t.Errorf("%+v", q)
	}
	if v := get[api.Verified](d, 200, http.MethodGet, "/v1/verify", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
	bad := get[api.Imported](d, 200, http.MethodPost, "/v1/dead-letters", "rubbish\n\n{\"queue\":\"nowhere\",\"id\":\"x\",\"state\":\"dead\",\"reason\":\"manual\",\"size\":1,\"body\":\"b\"}\n{\"queue\":\"sms\",\"id\":\"x\",\"state\":\"waiting\"}")
	if bad.Failed != 3 || len(bad.Problems) != 3 || bad.Problems[1].Line != 3 {
		t.Errorf("%+v", bad)
	}
}

func TestMask(t *testing.T) {
	store := newStore(t)
	for id, body := range map[string]string{"json": `{"card":{"number":"4111-secret"},"n": 1}`, "text": "4111-secret"} {
		e := redrive.Entry{State: redrive.StateDead, Reason: redrive.ReasonManual, Message: redrive.Message{Queue: "sms", ID: id, Body: []byte(body),
			Headers: redrive.Headers{{Name: "Authorization", Value: []byte("4111-secret")}, {Name: "other", Value: []byte("shown")}}}}
		if _, err := store.Apply(context.Background(), redrive.Batch{Put: []redrive.Entry{e}}); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, parse(t, "mask: [\"header:authorization\"]\nqueues: {sms: {mask: [$.card.number]}}"), store)
	for _, path := range []string{"/v1/queues/sms/dead-letters/json", "/v1/queues/sms/messages/json", "/v1/queues/sms/dead-letters/text"} {
		_, b := d.send(http.MethodGet, path, "")
		if strings.Contains(string(b), "secret") || !strings.Contains(string(b), "***") || !strings.Contains(string(b), "shown") || !strings.Contains(string(b), `"masked":true`) {
			t.Errorf("%s: %s", path, b)
		}
		if _, b = d.send(http.MethodGet, path+"?unmasked=true", ""); !strings.Contains(string(b), "4111-secret") || strings.Contains(string(b), "***") {
			t.Errorf("%s unmasked: %s", path, b)
		}
	}
	if m := get[api.Message](d, 200, http.MethodGet, "/v1/queues/sms/dead-letters/json", ""); *m.Body != `{"card":{"number":"***"},"n": 1}` {
		t.Errorf("%s", *m.Body)
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/queues/sms/dead-letters/json?unmasked=please", "")
}
