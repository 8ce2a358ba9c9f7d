package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/wire"
)

// What was archived by a plan comes back by an import, and the ledger knows both.
func TestArchiveAndImport(t *testing.T) {
	store, dir := newStore(t), t.TempDir()
	deadLetters(t, store, 30)
	d := start(t, parse(t, "queues: {sms: {}}\narchive: "+dir), store)
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"archive","filter":{"queue":"sms"},"rate":"1000/s"}`)
	for !p.Ended() {
		p = get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
	}
	if p.State != wire.PlanDone || p.Done != 30 {
		t.Fatalf("%+v", p)
	}
	var lines strings.Builder
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	err = a.Read(context.Background(), redrive.Query{}, func(e *redrive.Entry) bool {
		b, err := json.Marshal(wire.Whole(e, true))
		if err != nil {
			t.Error(err)
		}
		lines.Write(append(b, '\n'))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range []wire.Imported{{Imported: 30}, {Duplicates: 30}} {
		if got := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", lines.String()); got.Imported != want.Imported || got.Duplicates != want.Duplicates || got.Failed != 0 {
			t.Errorf("import %d: %+v", round, got)
		}
	}
	q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "")
	if q.Dead != 30 || q.Ledger.Archived != 30 || q.Ledger.Imported != 60 {
		t.Errorf("%+v", q)
	}
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
	bad := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", "rubbish\n\n{\"queue\":\"nowhere\",\"id\":\"x\",\"state\":\"dead\",\"reason\":\"manual\",\"size\":1,\"body\":\"b\"}\n{\"queue\":\"sms\",\"id\":\"x\",\"state\":\"waiting\"}")
	if bad.Failed != 3 || len(bad.Problems) != 3 || bad.Problems[1].Line != 3 {
		t.Errorf("%+v", bad)
	}
}

func TestMask(t *testing.T) {
	store := newStore(t)
	for id, body := range map[string]string{"json": `{"card":{"number":"4111-secret"},"n": 1}`, "text": "4111-secret"} {
		e := redrive.Entry{State: redrive.StateDead, Reason: redrive.ReasonManual, Message: redrive.Message{Queue: "sms", ID: id, Body: []byte(body),
			Headers: redrive.Headers{{Name: "Authorization", Value: []byte("4111-secret")}, {Name: "other", Value: []byte("shown")}}}}
		if _, err := store.Apply(context.Background(), driver.Batch{Put: []redrive.Entry{e}}); err != nil {
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
	if m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/sms/dead-letters/json", ""); *m.Body != `{"card":{"number":"***"},"n": 1}` {
		t.Errorf("%s", *m.Body)
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/queues/sms/dead-letters/json?unmasked=please", "")
}

// What a target answered, and what an error quotes of it, is masked wherever it shows.
func TestMasksHoldForFailures(t *testing.T) {
	const secret = `{"card":{"number":"4111-secret"}}`
	answers := map[string]string{"json": secret, "text": "no such card: 4111-secret", "cut": strings.Repeat(" ", 2000) + secret + strings.Repeat(" ", 4000) + "}"}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, answers[string(body)])
	}))
	defer target.Close()
	store := newStore(t)
	quoting := &redrive.Failure{Types: []string{"*errors.errorString"}, Message: "cannot charge " + secret + ": declined", Stack: "main.charge(" + secret + ")",
		Details: map[string]string{"request": secret}, Signature: "sig"}
	_, err := store.Apply(context.Background(), driver.Batch{Put: []redrive.Entry{{State: redrive.StateDead, Reason: redrive.ReasonPermanent,
		Message: redrive.Message{Queue: "sms", ID: "worker", Body: []byte("{}")}, History: redrive.History{Count: 1, First: quoting}}}})
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, parse(t, fmt.Sprintf("queues: {sms: {mask: [$.card.number], deliver: {url: %q, allow_private: true}}}", target.URL)), store)
	for id := range answers {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", id, "redrive-id", id)
	}
	d.eventually("all to be dead", func() bool { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Dead == 4 })
	shown := []string{"/v1/dead-letters", "/v1/causes", "/v1/queues/sms/messages"}
	for _, id := range []string{"worker", "json", "text", "cut"} {
		shown = append(shown, "/v1/queues/sms/dead-letters/"+id, "/v1/queues/sms/messages/"+id)
		if _, b := d.send(http.MethodGet, "/v1/queues/sms/dead-letters/"+id+"?unmasked=true", ""); id != "cut" && !strings.Contains(string(b), "secret") {
			t.Errorf("%s unmasked: %s", id, b)
		}
	}
	_, dry := d.send(http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"sms"},"dry_run":true}`)
	if !strings.Contains(string(dry), `"causes"`) || strings.Contains(string(dry), "secret") {
		t.Errorf("dry run: %s", dry)
	}
	plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"sms","reason":"permanent"}}`)
	d.eventually("all to be dead again", func() bool {
		now := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+plan.ID, "")
		return now.Ended() && get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Dead == 4
	})
	shown = append(shown, "/v1/plans/"+plan.ID, "/v1/plans/"+plan.ID+"/results")
	for _, path := range shown {
		if resp, b := d.send(http.MethodGet, path, ""); resp.StatusCode != http.StatusOK || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %s", path, b)
		}
	}
}
