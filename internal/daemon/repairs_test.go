package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// TestRepairAndRestore repairs dead letters by a token that may not see what is masked, and undoes it.
func TestRepairAndRestore(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "")
		admin, redrive := d.as("admin"), d.as("redrive")
		for i := range 3 {
			body := fmt.Sprintf(`{"pin":%d, "shop":"a","old":1.0}`, 1000+i)
			line, _ := json.Marshal(map[string]any{"queue": "cards", "id": fmt.Sprint("m", i), "state": "dead", "reason": "permanent", "size": len(body), "body": body})
			get[wire.Imported](admin, 200, http.MethodPost, "/v1/dead-letters", string(line))
		}
		rule := `"repair":[{"op":"set","path":"$.v","value":2},{"op":"rename","path":"$.old","to":"new"}]`
		dry := get[wire.DryRun](redrive, 200, http.MethodPost, "/v1/plans", `{"action":"repair","dry_run":true,"filter":{"queue":"cards"},`+rule+`}`)
		if p := dry.Preview; p == nil || p.Changed != 3 || len(p.Diffs) != 3 || *p.Diffs[0].After.Body != `{"pin":"***", "shop":"a","new":1.0,"v":2}` {
			t.Fatalf("%+v", dry.Preview)
		}
		ended := func(body string) wire.Plan {
			t.Helper()
			p := get[wire.Plan](redrive, 201, http.MethodPost, "/v1/plans", body)
			d.eventually("the plan to end", func() bool {
				p = get[wire.Plan](redrive, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
				return p.Ended()
			})
			return p
		}
		p := ended(`{"action":"repair","filter":{"queue":"cards"},` + rule + `}`)
		if p.Done != 3 || p.Request.Action != "repair" || len(p.Request.Repair) != 2 || p.Request.Rate != "2000/s" {
			t.Errorf("%+v", p)
		}
		m := get[wire.Message](admin, 200, http.MethodGet, "/v1/queues/cards/dead-letters/m1?unmasked=true", "")
		if *m.Body != `{"pin":1001, "shop":"a","new":1.0,"v":2}` || m.Plan != p.ID || m.Original == nil {
			t.Errorf("%s, %+v", *m.Body, m)
		}
		// What is masked is neither moved to where it shows nor told by what an expression finds.
		for _, rule := range []string{`{"op":"rename","path":"$.pin","to":"nip"}`, `{"op":"replace","path":"$..pin","match":"1","with":"2"}`} {
			dry := get[wire.DryRun](redrive, 200, http.MethodPost, "/v1/plans", `{"action":"repair","dry_run":true,"filter":{"queue":"cards"},"repair":[`+rule+`]}`)
			if p := dry.Preview; p.Changed != 0 || strings.Contains(fmt.Sprint(p.Diffs), "100") {
				t.Errorf("%s: %+v", rule, p)
			}
		}
		d.as("read").refused(403, "forbidden", http.MethodPost, "/v1/plans", `{"action":"repair","filter":{},`+rule+`}`)
		if p := get[wire.Plan](d.as("read"), 200, http.MethodGet, "/v1/plans/"+p.ID, ""); string(p.Request.Repair[0].Value) != `"***"` {
			t.Errorf("who may not read bodies sees %s", p.Request.Repair[0].Value)
		}
		for _, body := range []string{`{"action":"repair","filter":{}}`, `{"action":"redrive","filter":{},` + rule + `}`, `{"action":"repair","filter":{},"repair":[{"op":"set","path":"x"}]}`, `{"action":"restore"}`} {
			admin.refused(400, "invalid", http.MethodPost, "/v1/plans", body)
		}
		if back := ended(`{"action":"restore","restore":"` + p.ID + `"}`); back.Done != 3 || back.Request.Action != "restore" {
			t.Errorf("%+v", back)
		}
		if m := get[wire.Message](admin, 200, http.MethodGet, "/v1/queues/cards/dead-letters/m1?unmasked=true", ""); *m.Body != `{"pin":1001, "shop":"a","old":1.0}` || m.Original != nil {
			t.Errorf("restored: %+v", m)
		}
	})
}

// TestEditMeetsAnEdit: who edits what another has edited meanwhile is refused, and JSON stays JSON.
func TestEditMeetsAnEdit(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "").as("redrive")
		get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", `{"queue":"cards","id":"m","state":"dead","reason":"permanent","size":19,"body":"{\"pin\":1,\"shop\":\"a\"}"}`)
		const path = "/v1/queues/cards/dead-letters/m"
		first := get[wire.Message](d, 200, http.MethodGet, path, "")
		d.refused(422, "not-json", http.MethodPatch, path, `{"body":"{\"pin\":1,","version":"`+first.Version+`"}`)
		get[wire.Changed](d, 200, http.MethodPatch, path, `{"kind":"other","version":"`+first.Version+`"}`)
		d.refused(409, "conflict", http.MethodPatch, path, `{"kind":"third","version":"`+first.Version+`"}`)
		unmasked := get[wire.Message](d.as("admin"), 200, http.MethodGet, path+"?unmasked=true", "")
		get[wire.Changed](d.as("admin"), 200, http.MethodPatch, path, `{"body":"plain","not_json":true,"version":"`+unmasked.Version+`"}`)
		get[wire.Changed](d, 200, http.MethodPatch, path, `{"kind":"third"}`)
	})
}
