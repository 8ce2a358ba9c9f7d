package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// Facets tell what a sample has in common, from both ends of a cause: bodies without values for
// who may not read payload, and never what is masked.
func TestFacets(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		var signature string
		now := time.Now()
		for i := range 60 {
			signature = deadOf(t, store, "cards", fmt.Sprintf("m-%02d", i), "no", func(e *redrive.Entry) {
				e.Kind = []string{"new", "old"}[i/50]
				e.Body = fmt.Appendf(nil, `{"currency":"EUR","n":%d,"card":{"number":"4111%d"},"items":[{"sku":"a b"}]}`, i, i)
				e.Headers.Add("tenant", fmt.Sprint("t-", i))
				e.DiedAt = now.Add(time.Duration(i-60) * time.Minute)
				e.History.First.Host, e.History.First.Config.Target = "vm-1", "https://example.com/x"
			}).Signature
		}
		d := start(t, vaultConfig(t), store)
		path := "/v1/causes/" + signature + "/facets?queue=cards"
		for token, payload := range map[string]bool{"secret-read": false, "secret-payload": true, "secret-admin": true} {
			d.token = token
			all := get[wire.Facets](d, 200, http.MethodGet, path, "")
			if all.Sample != 60 || all.Of != 60 || all.Queue != "cards" || all.Signature != signature {
				t.Errorf("%+v", all)
			}
			got := fmt.Sprintf("%+v", all)
			for _, want := range []string{"{Name:kind Present:60 Distinct:2 Values:[{Value:new Count:50} {Value:old Count:10}]}", "{Name:target Present:60 Distinct:1 Values:[{Value:https://example.com/x Count:60}]}",
				"{Name:host Present:60 Distinct:1 Values:[{Value:vm-1 Count:60}]}", "{Name:status Present:60 Distinct:1 Values:[{Value:422 Count:60}]}", "{Name:tenant Present:60 Distinct:0 Values:[]}"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s: no %s in %s", token, want, got)
				}
			}
			if strings.Contains(got, "4111") || strings.Contains(got, "t-1") || strings.Contains(got, "EUR") != payload || !strings.Contains(got, "$.currency") ||
				!strings.Contains(got, "$.items[*].sku") || strings.Contains(got, "$.n") {
				t.Errorf("%s: %s", token, got)
			}
		}
		d.token = "secret-admin"
		some := get[wire.Facets](d, 200, http.MethodGet, path+"&sample=10", "")
		if some.Sample != 10 || some.Of != 60 || fmt.Sprint(some.Facets[0].Values) != "[{new 5} {old 5}]" {
			t.Errorf("%+v", some)
		}
		if lone := get[wire.Facets](d, 200, http.MethodGet, "/v1/causes/"+signature+"/facets", ""); lone.Sample != 60 {
			t.Errorf("%+v", lone)
		}
		deadOf(t, store, "open", "m", "no")
		d.refused(400, "invalid", http.MethodGet, "/v1/causes/"+signature+"/facets", "")
		d.refused(400, "invalid", http.MethodGet, path+"&sample=0", "")
		d.refused(404, "cause-not-found", http.MethodGet, "/v1/causes/none/facets", "")
	})
}
