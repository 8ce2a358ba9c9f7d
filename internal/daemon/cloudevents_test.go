package daemon_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

func TestCloudEventsOfEveryMode(t *testing.T) {
	d := start(t, parse(t, "{queues: {q: {}}, grace: 100ms}"), newStore(t))
	one := func(status int, body string, headers ...string) (m wire.Claimed) {
		t.Helper()
		accepted := get[wire.Accepted](d, status, http.MethodPost, "/v1/queues/q/messages", body, headers...)
		m = d.claims(1, "{}")[0]
		if m.ID != accepted.ID {
			t.Errorf("%s was accepted, %s is there", accepted.ID, m.ID)
		}
		d.settle(fmt.Sprintf(`{"receipt":%q,"outcome":"done"}`, m.Receipt))
		return m
	}
	attributes := func(m wire.Claimed) string {
		var list []string
		for _, h := range m.Headers {
			list = append(list, h.Name+"="+string(h.Value))
		}
		return strings.Join(list, " ")
	}
	binary := one(202, `{"a":1}`, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/shop", "ce-type", "order.paid", "ce-subject", "caf%C3%A9%20%25", "ce-partitionkey", "c-7",
		"Content-Type", "application/json", "redrive-header-x", "y")
	if binary.Kind != "order.paid" || binary.Key != "c-7" || *binary.Body != `{"a":1}` ||
		attributes(binary) != "x=y content-type=application/json ce-id=1 ce-partitionkey=c-7 ce-source=/shop ce-specversion=1.0 ce-subject=café % ce-type=order.paid" {
		t.Errorf("%+v %s", binary, attributes(binary))
	}
	const event = `{"specversion":"1.0","id":"2","source":"/shop","type":"order.paid","time":"2026-01-31T08:00:00Z","n":7,"data":{"a": 1},"expirytime":"2199-01-01T00:00:00Z"}`
	structured := one(202, event, "Content-Type", "application/cloudevents+json; charset=utf-8")
	if *structured.Body != `{"a": 1}` || structured.ExpiresAt == nil || structured.ExpiresAt.Year() != 2199 || !strings.Contains(attributes(structured), "content-type=application/json") || !strings.Contains(attributes(structured), "ce-n=7") {
		t.Errorf("%+v %s", structured, attributes(structured))
	}
	if again := get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", event, "Content-Type", "application/cloudevents+json"); !again.Duplicate || again.ID != structured.ID {
		t.Errorf("%+v", again)
	}
	text := one(202, `{"specversion":"1.0","id":"3","source":"/shop","type":"t","datacontenttype":"text/plain","data":"hi"}`, "Content-Type", "application/cloudevents+json")
	raw := one(202, `{"specversion":"1.0","id":"4","source":"/shop","type":"t","data_base64":"/wA="}`, "Content-Type", "application/cloudevents+json")
	if *text.Body != "hi" || string(raw.BodyBase64) != "\xff\x00" {
		t.Errorf("%+v %+v", text, raw)
	}

	batch := `[` + event + `,{"specversion":"1.0","id":"5","source":"/shop","type":"t"},{"specversion":"1.0","id":"6","source":"/shop","type":"t"}]`
	items := get[wire.AcceptedBatch](d, 202, http.MethodPost, "/v1/queues/q/messages", batch, "Content-Type", "application/cloudevents-batch+json").Items
	if len(items) != 3 || !items[0].Duplicate || items[1].Duplicate || items[1].ID == items[2].ID {
		t.Errorf("%+v", items)
	}
	get[wire.AcceptedBatch](d, 202, http.MethodPost, "/v1/queues/q/messages", "[]", "Content-Type", "application/cloudevents-batch+json")

	for body, kind := range map[string]string{
		`[]`: "", `null`: "", `{"specversion":"0.3","id":"1","source":"s","type":"t"}`: "", `{"specversion":"1.0","source":"s","type":"t"}`: "", `x`: "",
		`{"specversion":"1.0","id":"1","source":"s","type":"t","Bad":"x"}`: "", `{"specversion":"1.0","id":"1","source":"s","type":"t","obj":{}}`: "",
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data":1,"data_base64":""}`: "", `{"specversion":"1.0","id":"1","source":"s","type":"t","time":"now"}`: "",
		`[{}]`: "-batch", `{}`: "-batch",
	} {
		d.refused(400, "invalid-event", http.MethodPost, "/v1/queues/q/messages", body, "Content-Type", "application/cloudevents"+kind+"+json")
	}
	d.refused(400, "invalid-event", http.MethodPost, "/v1/queues/q/messages", "x", "ce-specversion", "1.0", "ce-id", "1")
	d.refused(415, "content-type", http.MethodPost, "/v1/queues/q/messages", "x", "Content-Type", "application/cloudevents+avro")
}

func TestADeliveryCarriesTheEvent(t *testing.T) {
	got := make(chan http.Header, 1)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer target.Close()
	d := start(t, parse(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}}", target.URL)), newStore(t))
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", `{"specversion":"1.0","id":"2","source":"/shop","type":"t","subject":"a \"é\"","data":1}`, "Content-Type", "application/cloudevents+json")
	h := <-got
	if h.Get("ce-subject") != "a%20%22%C3%A9%22" || h.Get("ce-type") != "t" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%v", h)
	}
}

func TestIdempotencyKey(t *testing.T) {
	d := start(t, parse(t, "queues: {q: {}}"), newStore(t))
	const path = "/v1/queues/q/messages"
	first := get[wire.Accepted](d, 202, http.MethodPost, path, "x", "Idempotency-Key", `"8e03978e-40d5"`)
	for _, same := range []string{`"8e03978e-40d5"`, "8e03978e-40d5"} {
		if again := get[wire.Accepted](d, 202, http.MethodPost, path, "x", "Idempotency-Key", same); !again.Duplicate || again.ID != first.ID {
			t.Errorf("%+v", again)
		}
	}
	d.refused(422, "idempotency-key-reused", http.MethodPost, path, "y", "Idempotency-Key", `"8e03978e-40d5"`)
	d.refused(409, "conflict", http.MethodPost, path, "y", "redrive-id", first.ID)
	d.refused(400, "invalid-header", http.MethodPost, path, "x", "Idempotency-Key", `""`)
}

// A result is polled where the answer to the publish says, or delivered to a callback.
func TestResultsByPollingAndCallback(t *testing.T) {
	type call struct{ outcome, of, body string }
	calls := make(chan call, 2)
	callback := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		calls <- call{r.Header.Get("redrive-outcome"), r.Header.Get("redrive-reply-for"), string(b)}
	}))
	defer callback.Close()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) == "bad" {
			w.WriteHeader(422)
			return
		}
		_, _ = io.WriteString(w, "the answer")
	}))
	defer target.Close()
	d := start(t, parse(t, fmt.Sprintf(`
queues:
  ask: {deliver: {url: %q, allow_private: true}}
  results: {}
  callback: {deliver: {url: %q, allow_private: true}}
`, target.URL, callback.URL)), newStore(t))
	asked := get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/ask/messages", "good", "redrive-reply-to", "results", "redrive-delay", "200ms")
	if asked.Result == "" {
		t.Fatalf("%+v", asked)
	}
	d.refused(404, "not-found", http.MethodGet, asked.Result, "")
	m := get[wire.Message](d, 200, http.MethodGet, asked.Result+"?wait=20s", "")
	if string(m.Bytes()) != "the answer" || m.Kind != "redrive.result" {
		t.Errorf("%+v", m)
	}
	d.refused(400, "invalid", http.MethodGet, asked.Result+"?wait=1h", "")
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/"+m.Queue, ""); q.PolledAt == nil {
		t.Errorf("it does not say that %s is read by polling: %+v", m.Queue, q)
	}

	for body, outcome := range map[string]string{"good": "done", "bad": "dead"} {
		asked := get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/ask/messages", body, "redrive-reply-to", "callback")
		select {
		case c := <-calls:
			if c.outcome != outcome || c.of != "ask/"+asked.ID || (outcome == "done") != (c.body == "the answer") {
				t.Errorf("%+v", c)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no callback")
		}
	}
	for to, problem := range map[string]string{"session:x": "system-queue", "_results": "system-queue"} {
		d.refused(403, problem, http.MethodPost, "/v1/queues/ask/messages", "x", "redrive-reply-to", to)
	}
	d.refused(404, "queue-not-found", http.MethodPost, "/v1/queues/ask/messages", "x", "redrive-reply-to", "nowhere")
}

func TestDelayedAndExpiring(t *testing.T) {
	d := start(t, parse(t, "{queues: {q: {}}, grace: 100ms}"), newStore(t))
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "later", "redrive-delay", "300ms")
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "never", "redrive-expires-at", time.Now().Add(-time.Hour).Format(time.RFC3339), "redrive-id", "old")
	d.claims(0, "{}")
	if m := d.claims(1, `{"wait":"20s"}`)[0]; *m.Body != "later" {
		t.Errorf("%+v", m)
	}
	if m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/q/dead-letters/old", ""); m.Reason.String() != "expired" {
		t.Errorf("%+v", m)
	}
}
