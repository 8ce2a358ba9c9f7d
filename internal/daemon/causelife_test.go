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

// What a person decided of a cause, and whether it came back since.
func TestLifeOfACause(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later, earlier := now.Add(time.Hour), now.Add(-time.Second)
	decided := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		life  *wire.CauseLife
		last  time.Time
		since int64
		rate  float64
		want  string
	}{
		"nothing":                       {nil, now, 5, 5, "new"},
		"acknowledged":                  {&wire.CauseLife{Decided: "acknowledged"}, decided, 0, 0, "acknowledged"},
		"acknowledged, one more":        {&wire.CauseLife{Decided: "acknowledged"}, now, 1, 0, "regressed"},
		"acknowledged until later":      {&wire.CauseLife{Decided: "acknowledged", Until: &later}, now, 9, 9, "acknowledged"},
		"acknowledged until just now":   {&wire.CauseLife{Decided: "acknowledged", Until: &earlier}, now, 9, 9, "regressed"},
		"acknowledged until, and quiet": {&wire.CauseLife{Decided: "acknowledged", Until: &earlier}, decided, 0, 0, "acknowledged"},
		"ignored, few more":             {&wire.CauseLife{Decided: "ignored", More: 10}, now, 9, 9, "ignored"},
		"ignored, enough more":          {&wire.CauseLife{Decided: "ignored", More: 10}, now, 10, 0, "regressed"},
		"ignored, a low rate":           {&wire.CauseLife{Decided: "ignored", Rate: 3}, now, 90, 2.9, "ignored"},
		"ignored, a high rate":          {&wire.CauseLife{Decided: "ignored", Rate: 3}, now, 1, 3, "regressed"},
		"resolved":                      {&wire.CauseLife{Decided: "resolved"}, decided, 0, 0, "resolved"},
		"resolved, one more":            {&wire.CauseLife{Decided: "resolved"}, now, 0, 0, "regressed"},
		"resolved, redriven since":      {&wire.CauseLife{Decided: "resolved"}, decided.Add(-time.Hour), 1, 0, "regressed"},
	} {
		if c.life != nil {
			c.life.At = decided
		}
		got := wire.Cause{Last: c.last, PerMinute: c.rate}
		got.Live(c.life, c.since, "v2", now)
		if got.State != c.want || (got.RegressedOn == "v2") != (c.want == "regressed") {
			t.Errorf("%s: %s on %q, want %s", name, got.State, got.RegressedOn, c.want)
		}
	}
}

func TestCausesAreAcknowledged(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		before := time.Now().Add(-10 * time.Minute)
		signature := deadOf(t, store, "open", "a", "no", func(e *redrive.Entry) { e.DiedAt = before }).Signature
		d := start(t, vaultConfig(t), store)
		d.token = "secret-redrive"
		put := func(body string) wire.CauseLife {
			return get[wire.CauseLife](d, 200, http.MethodPut, "/v1/causes/"+signature, body)
		}
		state := func(life string) (of []wire.Cause) {
			return get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=open&life="+life, "").Items
		}
		if c := state("new"); len(c) != 1 || c[0].State != "new" || c[0].Life != nil {
			t.Errorf("%+v", c)
		}
		if l := put(`{"queue":"open","state":"acknowledged","until":"2h","note":"vendor","link":"https://example.com/812"}`); l.By != "redrive" || l.Until == nil || l.Until.Sub(l.At) != 2*time.Hour {
			t.Errorf("%+v", l)
		}
		if c := state("acknowledged"); len(c) != 1 || c[0].Life.Note != "vendor" || c[0].Life.Link != "https://example.com/812" || len(state("new")) != 0 {
			t.Errorf("%+v", c)
		}
		put(`{"queue":"open","state":"resolved","version":"v1"}`)
		if c := state("resolved"); len(c) != 1 {
			t.Errorf("%+v", c)
		}
		deadOf(t, store, "open", "b", "no", func(e *redrive.Entry) {
			e.History.First.Version, e.DiedAt = "v2", time.Now().Add(time.Second)
		})
		if c := state("regressed"); len(c) != 1 || c[0].RegressedOn != "v2" || c[0].Life.Decided != "resolved" || c[0].Life.Version != "v1" {
			t.Errorf("%+v", c)
		}
		put(`{"queue":"open","state":"ignored","more":100}`)
		if c := state("ignored"); len(c) != 1 {
			t.Errorf("%+v", c)
		}
		put(`{"queue":"open","state":"new"}`)
		if c := state(""); len(c) != 1 || c[0].State != "new" {
			t.Errorf("%+v", c)
		}
		for _, body := range []string{`{"queue":"open"}`, `{"queue":"open","state":"regressed"}`, `{"queue":"open","state":"ignored"}`, `{"queue":"open","state":"resolved","until":"2h"}`,
			`{"queue":"open","state":"acknowledged","until":"tomorrow"}`, `{"queue":"open","state":"acknowledged","more":3}`, `{"queue":"open","state":"acknowledged","plan":"x"}`,
			`{"queue":"open","state":"acknowledged","link":"javascript:alert(1)"}`, fmt.Sprintf(`{"queue":"open","state":"acknowledged","note":%q}`, strings.Repeat("n", 3000))} {
			d.refused(400, "invalid", http.MethodPut, "/v1/causes/"+signature, body)
		}
		d.refused(404, "not-found", http.MethodPut, "/v1/causes/"+signature, `{"queue":"open","state":"resolved","plan":"0199aa77-0000-7000-8000-000000000000"}`)
		d.token = "secret-payload"
		d.refused(403, "forbidden", http.MethodPut, "/v1/causes/"+signature, `{"queue":"open","state":"acknowledged"}`)
		d.token = "secret-admin"
		if log := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit?action=cause+resolved", "").Items; len(log) != 1 || log[0].Actor != "redrive" || log[0].Queue != "open" || log[0].Filter.Signature != signature {
			t.Errorf("%+v", log)
		}
	})
}
