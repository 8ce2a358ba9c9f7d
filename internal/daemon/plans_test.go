package daemon_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/redrive/redrive/driver"
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
