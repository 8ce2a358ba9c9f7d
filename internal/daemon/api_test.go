package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

func TestPublishOverTheWire(t *testing.T) {
	d := start(t, parse(t, "max_body: 1kB\nqueues: {sms: {limits: {depth: 3}}}"), newStore(t))
	const at = "/v1/queues/sms/messages"
	first := get[wire.Accepted](d, 202, http.MethodPost, at, "x", "redrive-id", "a")
	again := get[wire.Accepted](d, 202, http.MethodPost, at, "x", "redrive-id", "a")
	if first.Duplicate || !again.Duplicate {
		t.Errorf("%+v, %+v", first, again)
	}
	d.refused(409, "conflict", http.MethodPost, at, "other", "redrive-id", "a")
	d.refused(413, "oversize", http.MethodPost, at, strings.Repeat("x", 1001))
	chunked, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+at, io.LimitReader(strings.NewReader(strings.Repeat("x", 1e6)), 1e6))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.http.Do(chunked)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("chunked and too large: %d", resp.StatusCode)
		}
	}
	d.refused(415, "content-encoding", http.MethodPost, at, "x", "Content-Encoding", "gzip")
	get[wire.Accepted](d, 202, http.MethodPost, at, "x")
	get[wire.Accepted](d, 202, http.MethodPost, at, "x")
	p := d.refused(429, "backlogged", http.MethodPost, at, "x")
	if p.RetryAfter < 1 {
		t.Errorf("no Retry-After: %+v", p)
	}
	d.refused(429, "backlogged", http.MethodPost, at, "{}", "Content-Type", "application/x-ndjson")
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", ""); q.Level != "refused" || q.Waiting.All != 3 {
		t.Errorf("%+v", q)
	}
	big := make(http.Header)
	big.Set("redrive-header-a", strings.Repeat("x", 40<<10))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+at, strings.NewReader("x"))
	r.Header = big
	resp, err = d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("headers of 40 KiB: %d", resp.StatusCode)
	}
}

func TestUnknownQueues(t *testing.T) {
	store := newStore(t)
	d := start(t, parse(t, "queues: {sms: {}, mail: {}}"), store)
	p := d.refused(404, "queue-not-found", http.MethodPost, "/v1/queues/smss/messages", "x")
	if !slices.Equal(p.Queues, []string{"mail", "sms"}) || !strings.Contains(p.Hint, "there are mail, sms") || !strings.Contains(p.Hint, "--deliver smss=URL") {
		t.Errorf("%+v", p)
	}
	d.refused(404, "queue-not-found", http.MethodGet, "/v1/queues/smss", "")
	d.refused(404, "queue-not-found", http.MethodGet, "/v1/queues/smss/messages", "")
	d.refused(404, "queue-not-found", http.MethodGet, "/v1/verify?queue=smss", "")
	// A queue that holds something is no mistake.
	if err := driver.FirstError(store.Publish(t.Context(), []redrive.Message{{Queue: "old"}})); err != nil {
		t.Fatal(err)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/old/messages", "x")
	var names []string
	for _, q := range get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", "").Items {
		names = append(names, fmt.Sprint(q.Queue, " ", q.Configured, " ", q.Waiting.All))
	}
	if want := []string{"mail true 0", "old false 2", "sms true 0"}; !slices.Equal(names, want) {
		t.Errorf("queues %v, want %v", names, want)
	}
}

func TestHostileNames(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	d.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.refused(403, "system-queue", http.MethodPost, "/v1/queues/_results/messages", "x")
	for _, name := range []string{"..", ".", "a/b", "a\x00b", "a\r\nX: y", "ä", "<script>", strings.Repeat("a", 200), "a b", "%", "A", "' or 1=1 --"} {
		for _, r := range []struct{ method, path string }{
			{http.MethodPost, "/v1/queues/%s/messages"},
			{http.MethodGet, "/v1/queues/%s"},
			{http.MethodGet, "/v1/queues/%s/messages"},
			{http.MethodGet, "/v1/queues/%s/messages/x"},
			{http.MethodDelete, "/v1/queues/%s/dead-letters/x"},
			{http.MethodGet, "/v1/queues/sms/messages/%s"},
			{http.MethodPatch, "/v1/queues/sms/dead-letters/%s"},
			{http.MethodGet, "/v1/plans/%s"},
			{http.MethodGet, "/v1/dead-letters?queue=%s"},
			{http.MethodGet, "/v1/dead-letters?after=%s"},
			{http.MethodGet, "/v1/dead-letters?reason=%s"},
			{http.MethodGet, "/v1/dead-letters?since=%s"},
			{http.MethodGet, "/v1/dead-letters?limit=%s"},
			{http.MethodGet, "/v1/queues/sms/messages?state=%s"},
			{http.MethodGet, "/v1/queues/sms/messages?after=%s"},
			{http.MethodGet, "/v1/verify?queue=%s"},
		} {
			resp, b := d.send(r.method, fmt.Sprintf(r.path, url.PathEscape(name)), "{}")
			if resp.StatusCode/100 == 3 && (name == "." || name == "..") {
				continue // the path is cleaned, as everywhere
			}
			if resp.StatusCode < 400 || resp.StatusCode >= 500 || resp.Header.Get("Content-Type") != problem.ContentType {
				t.Errorf("%s "+r.path+": %d %s", r.method, name, resp.StatusCode, b)
			}
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	d.refused(404, "no-route", http.MethodGet, "/v2/x", "")
	d.refused(405, "method", http.MethodPut, "/v1/queues/sms/messages", "x")
	resp, _ := d.send(http.MethodDelete, "/v1/queues/sms/messages", "")
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, POST" {
		t.Errorf("%d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
	p := d.refused(400, "invalid", http.MethodGet, "/v1/dead-letters?quue=sms", "")
	if !strings.Contains(p.Detail, "quue") {
		t.Errorf("%+v", p)
	}
	d.refused(400, "invalid-json", http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"quue":"sms"}}`)
	d.refused(400, "invalid", http.MethodPost, "/v1/plans", `{"action":"drop"}`)
	d.refused(400, "invalid", http.MethodPost, "/v1/plans", `{"action":"melt","filter":{}}`)
	d.refused(400, "invalid", http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{},"rate":"50"}`)
	for _, what := range []string{`"filter":{}`, `"filter":{"state":"dead"}`, `"all":true,"filter":{"queue":"sms"}`, `"all":true,"refs":["sms/a"]`} {
		for _, action := range []string{"redrive", "archive", "drop"} {
			p := d.refused(400, "invalid", http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":%q,%s}`, action, what))
			if !strings.Contains(p.Detail+p.Hint, "all") {
				t.Errorf("%s of %s: %v", action, what, p)
			}
		}
	}
	for _, path := range []string{"/v1/dead-letters?queue=smss", "/v1/causes?queue=smss", "/v1/causes/x/deaths?queue=smss", "/v1/verify?queue=smss", "/v1/queues/smss/messages"} {
		if p := d.refused(404, "queue-not-found", http.MethodGet, path, ""); !strings.Contains(p.Hint, "did you mean sms?") {
			t.Errorf("%s: %v", path, p)
		}
	}
	if p := d.refused(404, "queue-not-found", http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"smss"},"dry_run":true}`); !strings.Contains(p.Hint, "did you mean sms?") {
		t.Errorf("%v", p)
	}
	d.refused(400, "invalid", http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["a"]}`)
	d.refused(415, "content-type", http.MethodPost, "/v1/plans", `{}`, "Content-Type", "text/plain")
	d.refused(413, "oversize", http.MethodPost, "/v1/plans", `{"to":"`+strings.Repeat("x", 2<<20)+`"}`)
	d.refused(404, "not-found", http.MethodGet, "/v1/plans/0199aa77-0000-7000-8000-000000000000", "")
}

// deadLetters puts n dead letters into a store; their ids are d-1 to d-n.
func deadLetters(t *testing.T, store driver.Store, n int) {
	t.Helper()
	now := time.Now()
	var put []redrive.Entry
	for i := 1; i <= n; i++ {
		f := &redrive.Failure{At: now, Attempt: 1, Types: []string{"*net.OpError"}, Message: "refused", Details: map[string]string{"response": "private"}}
		f.Signature = driver.Signature(f)
		put = append(put, redrive.Entry{
			Message: redrive.Message{ID: fmt.Sprintf("d-%d", i), Queue: "sms", Kind: "k", Body: []byte{0xff, byte(i)}},
			State:   redrive.StateDead, Reason: redrive.ReasonExhausted, DiedAt: now.Add(time.Duration(i-n) * time.Second), History: redrive.History{Count: 1, First: f},
		})
	}
	errs, err := store.Apply(t.Context(), driver.Batch{Put: put, Entered: driver.EnteredImported})
	if err != nil || driver.FirstError(errs) != nil {
		t.Fatal(err, errs)
	}
}

func TestPaging(t *testing.T) {
	store := newStore(t)
	deadLetters(t, store, 25)
	d := start(t, parse(t, "queues: {sms: {}}"), store)
	for i := range 25 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", fmt.Sprintf("w-%d", i+1))
	}
	for path, filter := range map[string]string{"/v1/dead-letters": "&queue=sms&reason=exhausted&kind=k", "/v1/queues/sms/messages": "&state=waiting"} {
		seen := make(map[string]bool)
		after, pages := "", 0
		for {
			list := get[wire.List[wire.Message]](d, 200, http.MethodGet, path+"?limit=10&after="+url.QueryEscape(after)+filter, "")
			for _, m := range list.Items {
				if seen[m.ID] {
					t.Errorf("%s: %s is there twice", path, m.ID)
				}
				seen[m.ID] = true
			}
			if pages++; pages == 1 { // what comes and goes meanwhile does not shift the pages
				id := list.Items[0].ID
				d.send(http.MethodDelete, "/v1/queues/sms/dead-letters/"+id, "")
				d.send(http.MethodDelete, "/v1/queues/sms/messages/"+id, "")
			}
			if after = list.Next; after == "" {
				break
			}
		}
		if len(seen) != 25 || pages > 4 {
			t.Errorf("%s: %d messages in %d pages", path, len(seen), pages)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	store := newStore(t)
	deadLetters(t, store, 3)
	d := start(t, parse(t, "queues: {sms: {}}"), store)
	list := get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/dead-letters?since=1h&text=refused", "")
	if len(list.Items) != 3 || list.Items[0].Error != "refused" || list.Items[0].Type != "*net.OpError" || list.Items[0].Body != nil {
		t.Errorf("%+v", list)
	}
	if none := get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/dead-letters?until=1h", ""); len(none.Items) != 0 {
		t.Errorf("an hour ago there were %d", len(none.Items))
	}
	const one = "/v1/queues/sms/dead-letters/d-1"
	m := get[wire.Message](d, 200, http.MethodGet, one, "")
	if string(m.Bytes()) != "\xff\x01" || m.Body != nil || m.History.First.Details["response"] != "private" {
		t.Errorf("%+v", m)
	}

	d.refused(400, "invalid", http.MethodPatch, one, `{}`)
	d.refused(400, "invalid", http.MethodPatch, one, `{"body":"a","body_base64":"AA=="}`)
	get[wire.Changed](d, 200, http.MethodPatch, one, `{"body":"mended","kind":"k2","headers":[["a","b"],["c",{"base64":"/w=="}]]}`)
	m = get[wire.Message](d, 200, http.MethodGet, one, "")
	if string(m.Bytes()) != "mended" || m.Kind != "k2" || len(m.Headers) != 2 || string(m.Headers[1].Value) != "\xff" || m.Original == nil || string(m.Original.Bytes()) != "\xff\x01" {
		t.Errorf("edited: %+v, original %+v", m, m.Original)
	}

	d.refused(409, "state", http.MethodDelete, "/v1/queues/sms/messages/d-1", "")
	get[wire.Changed](d, 200, http.MethodDelete, one, "")
	d.refused(404, "not-found", http.MethodGet, one, "")
	d.refused(404, "not-found", http.MethodDelete, one, "")

	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", "w")
	d.refused(409, "state", http.MethodGet, "/v1/queues/sms/dead-letters/w", "")
	d.refused(409, "state", http.MethodDelete, "/v1/queues/sms/dead-letters/w", "")
	get[wire.Changed](d, 200, http.MethodDelete, "/v1/queues/sms/messages/w", "")
	if gone := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/sms/messages/w", ""); gone.State != "drop" {
		t.Errorf("%+v", gone)
	}
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?queue=sms&scan=true", ""); !v.Balanced || v.Queues[0].Ledger.Dropped != 2 || v.Queues[0].Dead != 2 {
		t.Errorf("%+v", v)
	}
}

func TestAPlanOfNames(t *testing.T) {
	store := newStore(t)
	deadLetters(t, store, 3)
	d := start(t, parse(t, "queues: {sms: {}, mail: {}}"), store)
	d.refused(404, "queue-not-found", http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["sms/d-1"],"to":"smss"}`)
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["sms/d-1","sms/d-3","sms/none"],"to":"mail"}`)
	if len(p.Request.Refs) != 3 || p.Request.To != "mail" || p.Request.Filter != nil || p.Actor != "local" {
		t.Errorf("%+v", p)
	}
	d.eventually("the plan ends", func() bool {
		p = get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "")
		return p.Ended()
	})
	if p.State != "done" || p.Done != 2 || p.Failed != 1 || p.Errors["not-found"] != 1 || p.Named != 3 || p.Request.Filter != nil {
		t.Errorf("%+v", p)
	}
	d.refused(409, "state", http.MethodPost, "/v1/plans/"+p.ID+"/pause", "")
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/mail", ""); q.Waiting.Redrive != 2 || q.Ledger.MovedIn != 2 {
		t.Errorf("%+v", q)
	}
	if list := get[wire.List[wire.Plan]](d, 200, http.MethodGet, "/v1/plans", ""); len(list.Items) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestPlansArePausedAndCancelled(t *testing.T) {
	store := newStore(t)
	deadLetters(t, store, 50)
	d := start(t, parse(t, "queues: {sms: {}}\narchive: "+t.TempDir()), store)
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"archive","filter":{"queue":"sms","reason":"exhausted"},"rate":"1/h"}`)
	if p.Total != 50 || p.Request.Filter.Reason != "exhausted" {
		t.Errorf("%+v", p)
	}
	for _, step := range []struct{ verb, state string }{{"pause", "paused"}, {"resume", "running"}, {"cancel", "cancelled"}, {"cancel", "cancelled"}} {
		if p = get[wire.Plan](d, 200, http.MethodPost, "/v1/plans/"+p.ID+"/"+step.verb, ""); p.State != step.state {
			t.Errorf("%s: %s", step.verb, p.State)
		}
	}
	if p.EndedAt == nil {
		t.Error("a cancelled plan has not ended")
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	d := start(t, parse(t, `
queues:
  sms: {deliver: {url: "https://example.com/x", headers: {Authorization: "Bearer canary-1"}, secret: "whsec_`+strings.Repeat("QUFB", 8)+`"}}
`), newStore(t))
	d.send(http.MethodPost, "/v1/queues/sms/pause", "")
	for _, path := range []string{"/v1/config", "/v1/queues", "/v1/queues/sms", "/metrics"} {
		_, b := d.send(http.MethodGet, path, "")
		if strings.Contains(string(b), "canary") || strings.Contains(string(b), "QUFB") {
			t.Errorf("%s shows a secret", path)
		}
	}
	c := get[map[string]any](d, 200, http.MethodGet, "/v1/config", "")
	if c["store"] == "" || c["queues"] == nil {
		t.Errorf("%v", c)
	}
}

func TestHeadersOfMessagesInJSON(t *testing.T) {
	in := []wire.Header{{Name: "a", Value: []byte("b")}, {Name: "c", Value: []byte{0xff, 0}}}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `[["a","b"],["c",{"base64":"/wA="}]]` {
		t.Fatalf("%s %v", b, err)
	}
	var out []wire.Header
	if err := json.Unmarshal(b, &out); err != nil || len(out) != 2 || string(out[1].Value) != "\xff\x00" {
		t.Errorf("%v %v", out, err)
	}
	for _, s := range []string{`[["a"]]`, `[[1,"b"]]`, `[["a",1]]`, `["a"]`} {
		if json.Unmarshal([]byte(s), &out) == nil {
			t.Errorf("%s is taken", s)
		}
	}
}
