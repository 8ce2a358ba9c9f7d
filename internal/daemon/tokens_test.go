package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

func TestATokenWithAnID(t *testing.T) {
	token, id, sum := config.NewToken()
	old, oldID, oldHash := config.NewToken()
	d := start(t, parse(t, fmt.Sprintf(`
queues: {sms.eu: {}, sms.us: {}, mail: {}}
tokens:
  - {id: %s, name: billing, hash: %q, scopes: [publish, read], queues: ["sms.*"], expires: 2999-01-01}
  - {id: %s, name: old, hash: %q, expires: 2020-01-31T08:00:00Z}
  - {name: root, hash: %q}
`, id, sum, oldID, oldHash, hash("root"))), newStore(t))
	d.token = token
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms.eu/messages", "x")
	d.refused(403, "forbidden-queue", http.MethodPost, "/v1/queues/mail/messages", "x")
	if list := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", ""); len(list.Items) != 2 {
		t.Errorf("%+v", list.Items)
	}
	d.token = old
	if p := d.refused(401, "token-expired", http.MethodGet, "/v1/queues", ""); !strings.Contains(p.Detail, "2020-01-31") {
		t.Errorf("%+v", p)
	}
	for _, wrong := range []string{token + "x", token[:len(token)-1], "rdt_" + id + "_", "rdt_" + id + "_" + strings.Repeat("A", 43), strings.Replace(token, id, oldID, 1)} {
		d.token = wrong
		d.refused(401, "token-unknown", http.MethodGet, "/v1/queues", "")
	}
	d.token = "root"
	list := get[wire.List[wire.Token]](d, 200, http.MethodGet, "/v1/tokens", "")
	if len(list.Items) != 3 || list.Items[0].LastUsed == nil || time.Since(*list.Items[0].LastUsed) > time.Minute || list.Items[0].Expired || !list.Items[1].Expired || list.Items[1].LastUsed != nil {
		t.Errorf("%+v", list.Items)
	}
	if _, b := d.send(http.MethodGet, "/v1/tokens", ""); strings.Contains(string(b), "sha256") || strings.Contains(string(b), token) {
		t.Error("a token or its hash is shown")
	}
}

func TestLimitsOfAToken(t *testing.T) {
	d := start(t, parse(t, fmt.Sprintf(`
queues: {q: {}}
tokens:
  - {name: slow, hash: %q, rate: 3/h}
  - {name: little, hash: %q, quota: 5/day}
`, hash("slow"), hash("little"))), newStore(t))
	d.token = "slow"
	for i := range 3 {
		resp, b := d.send(http.MethodPost, "/v1/queues/q/messages", "x")
		if want := fmt.Sprintf(`"rate";r=%d;`, 2-i); resp.StatusCode != 202 || !strings.HasPrefix(resp.Header.Get("RateLimit"), want) || resp.Header.Get("RateLimit-Policy") != `"rate";q=3;w=3600` {
			t.Errorf("%d %s %v", resp.StatusCode, b, resp.Header)
		}
	}
	for _, path := range []string{"/v1/queues/q/messages", "/v1/queues/q/claims"} {
		resp, b := d.send(http.MethodPost, path, "{}")
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(b), `"violated-policies":["rate"]`) ||
			!strings.Contains(string(b), "http-problem-types#quota-exceeded") || resp.Header.Get("Content-Type") != problem.ContentType {
			t.Errorf("%s: %d %s %v", path, resp.StatusCode, b, resp.Header)
		}
	}
	d.token = "little"
	resp, b := d.send(http.MethodPost, "/v1/queues/q/messages", strings.Repeat("{\"body\":1}\n", 8), "Content-Type", "application/x-ndjson")
	if resp.StatusCode != 200 || strings.Count(string(b), `"accepted"`) != 5 || strings.Count(string(b), "quota-exceeded") != 3 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	// What is refused for another reason is not counted, and another daemon goes on
	// where this one was.
	if q := get[problem.Problem](d, 429, http.MethodGet, "/v1/queues/q", ""); q.ViolatedPolicies[0] != "quota" {
		t.Errorf("%+v", q)
	}
}

func TestTheAuditLog(t *testing.T) {
	store := newStore(t)
	deadLetters(t, store, 3)
	c := withTokens(t)
	c.Tokens = append(c.Tokens, config.Token{Name: "operator", Hash: hash("operator"), Scopes: []config.Scope{config.ScopeRedrive, config.ScopePurge}})
	d := start(t, c, store)
	d.token = "operator"
	get[wire.Changed](d, 200, http.MethodPatch, "/v1/queues/sms/dead-letters/d-1", `{"body":"mended"}`)
	get[wire.Changed](d, 200, http.MethodDelete, "/v1/queues/sms/dead-letters/d-2", "")
	d.refused(404, "not-found", http.MethodDelete, "/v1/queues/sms/dead-letters/none", "")
	made := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"sms","reason":"exhausted"}}`)
	d.eventually("the plan to end", func() bool {
		made = get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+made.ID, "")
		return made.Ended()
	})
	get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/sms/pause", `{"reason":"maintenance"}`)
	d.refused(403, "forbidden", http.MethodGet, "/v1/audit", "")
	d.token = "secret-redrive"
	d.refused(403, "forbidden", http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"sms"}}`)

	d.token = "secret-admin"
	list := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit", "")
	var actions []string
	for _, e := range list.Items {
		actions = append(actions, e.Action)
		if e.Actor != "operator" || e.Outcome != "done" || (e.Remote == "") != (e.Action == "plan ended") || e.At.IsZero() || e.Queue != "sms" {
			t.Errorf("%+v", e)
		}
	}
	if fmt.Sprint(actions) != "[pause plan ended plan redrive drop edit]" || !list.Complete { // the newest first
		t.Errorf("%v", actions)
	}
	if end := list.Items[1]; end.Plan != made.ID || end.Count != made.Done || end.Count == 0 || !end.At.Equal(*made.EndedAt) {
		t.Errorf("%+v of %+v", end, made)
	}
	if plan := list.Items[2]; plan.Plan == "" || plan.Count == 0 || plan.Filter == nil || plan.Filter.Reason != "exhausted" {
		t.Errorf("%+v", plan)
	}
	for query, n := range map[string]int{"action=drop": 1, "actor=operator&limit=2": 2, "actor=nobody": 0, "queue=sms&since=1h": 5, "until=1h": 0} {
		if list := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit?"+query, ""); len(list.Items) != n {
			t.Errorf("%s: %d entries, want %d", query, len(list.Items), n)
		}
	}
	first := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit?limit=4", "")
	if rest := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit?after="+first.Next, ""); len(rest.Items) != 1 || rest.Items[0].Action != "edit" {
		t.Errorf("%+v", rest)
	}
}

func TestLimitsOfATokenBesideThoseOfAQueue(t *testing.T) {
	d := start(t, parse(t, fmt.Sprintf(`
queues: {q: {limits: {depth: 2, soft: 50%%}}}
tokens: [{name: slow, hash: %q, rate: 9/h}]
`, hash("slow"))), newStore(t))
	d.token = "slow"
	for i, status := range []int{202, 202, 429} {
		resp, b := d.send(http.MethodPost, "/v1/queues/q/messages", "x")
		rate, backlog, _ := strings.Cut(resp.Header.Get("RateLimit"), ", ")
		if resp.StatusCode != status || resp.Header.Get("RateLimit-Policy") != `"rate";q=9;w=3600, "backlog";q=2` || !strings.HasPrefix(rate, `"rate";r=`) ||
			!strings.HasPrefix(backlog, fmt.Sprintf(`"backlog";r=%d;t=`, max(1-i, 0))) || (status == 429) != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("%d %s %v", resp.StatusCode, b, resp.Header)
		}
	}
}
