package daemon_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// Names that repeat, bytes that are not UTF-8 and what no store can compare are refused
// alike, wherever they come in.
func TestUntidyTextIsRefused(t *testing.T) {
	d := start(t, parse(t, "queues: {q: {}}"), newStore(t))
	for _, body := range []string{
		`{"action":"drop","filter":{"queue":"q"},"action":"redrive"}`, `{"action":"drop","filter":{"queue":"q","queue":"other"}}`,
		`{"action":"drop","filter":{"\u0071ueue":"q","queue":"other"}}`,
	} {
		if p := d.refused(400, "invalid-json", http.MethodPost, "/v1/plans", body); !strings.Contains(p.Detail, "action") && !strings.Contains(p.Detail, "queue") {
			t.Errorf("%s: %s", body, p.Detail)
		}
	}
	for _, body := range []string{"{\"action\":\"drop\",\"filter\":{\"key\":\"\xff\"}}", strings.Repeat("[", 10_000), strings.Repeat("[", 100) + strings.Repeat("]", 100), `{}]`, `{}{}`, `{"dry_run":1e400}`} {
		d.refused(400, "invalid-json", http.MethodPost, "/v1/plans", body)
	}
	d.refused(400, "invalid", http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"q","key":"a\u0000b"},"dry_run":true}`)
	for _, field := range wire.Fields {
		for _, value := range []string{"%00", "a%00b", "%FF", "%ED%A0%80"} {
			for _, at := range []string{"/v1/dead-letters", "/v1/causes", "/v1/queues/q/messages"} {
				if field.Name == "queue" && at == "/v1/queues/q/messages" {
					continue
				}
				d.refused(400, "invalid", http.MethodGet, at+"?"+field.Name+"="+value, "")
			}
		}
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/dead-letters?after=%00", "")
	d.refused(400, "invalid-event", http.MethodPost, "/v1/queues/q/messages", `{"specversion":"1.0","id":"1","source":"a","type":"t","id":"2"}`, "Content-Type", "application/cloudevents+json")
	// A body is its publisher's own.
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "{\"a\":1,\"a\":2,\"b\":\"\xff\"}", "Content-Type", "application/json")
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", `{"specversion":"1.0","id":"3","source":"a","type":"t","data":{"a":1,"a":2}}`, "Content-Type", "application/cloudevents+json")
}
