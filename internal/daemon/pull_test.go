package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

const pulled = "{queues: {q: {policy: {max_attempts: 2, backoff: {type: fixed, interval: 10ms}}, classify: {permanent: ['type:ValueError']}}, next: {}}, grace: 100ms}"

// claims asks for messages and fails the test unless there are so many.
func (d *rig) claims(n int, body string) []wire.Claimed {
	d.t.Helper()
	c := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/q/claims", body)
	if len(c.Items) != n {
		d.t.Fatalf("%d claims, want %d: %+v", len(c.Items), n, c.Items)
	}
	return c.Items
}

// settle settles and returns the results.
func (d *rig) settle(s ...string) []wire.Result {
	d.t.Helper()
	return get[wire.Results](d, 200, http.MethodPost, "/v1/queues/q/settlements", `{"settlements":[`+strings.Join(s, ",")+`]}`).Items
}

func TestPullOverHTTP(t *testing.T) {
	d := start(t, parse(t, pulled), newStore(t))
	waiting := make(chan []wire.Claimed)
	go func() { waiting <- d.claims(1, `{"wait":"30s","worker":"w-1"}`) }()
	d.eventually("the claim waits", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/q", "")
		return q.Pull != nil && q.Pull.Polls == 1
	})
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "héllo", "redrive-id", "m", "redrive-kind", "k", "redrive-header-a", "b")
	m := (<-waiting)[0]
	if m.ID != "m" || m.Body == nil || *m.Body != "héllo" || m.Attempt != 1 || m.Lease.Std() != 30*time.Second || len(m.Headers) == 0 || m.PublishedAt == nil {
		t.Errorf("%+v", m)
	}
	r := get[wire.Results](d, 200, http.MethodPost, "/v1/queues/q/extensions", fmt.Sprintf(`{"receipts":[%q,"junk"],"lease":"1m"}`, m.Receipt))
	if r.Items[0].Status != wire.ResultExtended || r.Items[1].Error == nil || r.Items[1].Error.Status != 400 {
		t.Errorf("%+v", r)
	}
	retry := func(receipt, kind string) string {
		return fmt.Sprintf(`{"receipt":%q,"outcome":"retry","failure":{"type":%q,"message":"no luck","status":503,"stack":"line 7"}}`, receipt, kind)
	}
	if got := d.settle(retry(m.Receipt, "OSError")); got[0].Outcome != "retry" || got[0].After.Std() != 10*time.Millisecond {
		t.Errorf("%+v", got)
	}
	m = d.claims(1, `{"wait":"10s"}`)[0]
	if m.Attempt != 2 || m.Failures != 1 {
		t.Errorf("%+v", m)
	}
	if got := d.settle(retry(m.Receipt, "OSError")); got[0].Outcome != "dead" || got[0].Reason.String() != "exhausted" {
		t.Errorf("%+v", got)
	}
	dead := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/q/dead-letters/m", "")
	if f := dead.History.Last; f == nil || f.Types[0] != "OSError" || f.Stack != "line 7" || f.Details["http.status"] != "503" || f.Signature == "" {
		t.Errorf("%+v", dead.History.Last)
	}

	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "\xff\x00", "redrive-reply-to", "next")
	m = d.claims(1, "")[0]
	if string(m.BodyBase64) != "\xff\x00" {
		t.Errorf("%+v", m)
	}
	got := d.settle(fmt.Sprintf(`{"receipt":%q,"outcome":"done","emit":[{"queue":"next","message":{"id":"e","body":{"a":1}}}],"reply":{"body":[1]}}`, m.Receipt))
	if got[0].Status != wire.ResultSettled || got[0].Outcome != "done" {
		t.Errorf("%+v", got)
	}
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/next", ""); q.Ledger.Published != 2 {
		t.Errorf("%+v", q.Ledger)
	}
	for _, again := range d.settle(fmt.Sprintf(`{"receipt":%q,"outcome":"done"}`, m.Receipt), retry(m.Receipt, "x"), `{"receipt":"","outcome":"done"}`,
		fmt.Sprintf(`{"receipt":%q,"outcome":"exploded"}`, m.Receipt), fmt.Sprintf(`{"receipt":%q,"outcome":"done","emit":[{"queue":"nowhere","message":{}}]}`, m.Receipt)) {
		if again.Error == nil || again.Status != wire.ResultError || again.Error.Status < 400 || again.Error.Status >= 500 {
			t.Errorf("%+v", again)
		}
	}
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
}

func TestPullRefusals(t *testing.T) {
	d := start(t, parse(t, pulled), newStore(t))
	for path, bodies := range map[string]map[string]string{
		"claims":      {`{"max":0.5}`: "invalid-json", `{"max":1001}`: "invalid", `{"lease":"1ms"}`: "invalid", `{"wait":"2m"}`: "invalid", `{"x":1}`: "invalid-json"},
		"extensions":  {`{}`: "invalid", `{"receipts":["x"],"lease":"1ms"}`: "invalid"},
		"settlements": {`{}`: "invalid", `{"settlements":[]}`: "invalid", `[]`: "invalid-json"},
	} {
		for body, name := range bodies {
			d.refused(400, name, http.MethodPost, "/v1/queues/q/"+path, body)
		}
		d.refused(404, "queue-not-found", http.MethodPost, "/v1/queues/none/"+path, "{}")
		d.refused(403, "system-queue", http.MethodPost, "/v1/queues/_results/"+path, "{}")
	}
}

func TestPullEndsWithTheDaemon(t *testing.T) {
	store := newStore(t)
	d := start(t, parse(t, pulled), store)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "x")
	d.claims(1, `{"lease":"1h"}`)
	ended := make(chan int)
	go func() {
		resp, b := d.send(http.MethodPost, "/v1/queues/q/claims", `{"wait":"1m"}`)
		if !json.Valid(b) {
			t.Errorf("%s", b)
		}
		ended <- resp.StatusCode
	}()
	d.eventually("the claim waits", func() bool {
		return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/q", "").Pull.Polls == 1
	})
	d.stop()
	if status := <-ended; status != http.StatusServiceUnavailable {
		t.Errorf("a claim that waits is answered with %d", status)
	}
	d.shutdown()
	if log := d.log.String(); strings.Contains(log, "cannot release a claim") {
		t.Error("a claim was not given back")
	}
}

// TestPullOutlivesTheDaemon: where leases stand in a server, a shutdown does not wait for
// what a worker holds, and the next daemon takes its settlement.
func TestPullOutlivesTheDaemon(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	const longerThanTheTest = "1h"
	yaml := fmt.Sprintf("{store: %q, queues: {q: {}}, grace: %s}", r.URL(), longerThanTheTest)
	d := start(t, parse(t, yaml), nil)
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "x")
	m := d.claims(1, `{"lease":"1h","worker":"w-1"}`)[0]
	d.shutdown()
	d = start(t, parse(t, yaml), nil)
	d.claims(0, "")
	if got := get[wire.Results](d, 200, http.MethodPost, "/v1/queues/q/extensions", fmt.Sprintf(`{"receipts":[%q],"lease":"1h"}`, m.Receipt)); got.Items[0].Status != wire.ResultExtended {
		t.Errorf("%+v", got)
	}
	if got := d.settle(fmt.Sprintf(`{"receipt":%q,"outcome":"done"}`, m.Receipt)); got[0].Status != wire.ResultSettled {
		t.Errorf("%+v", got)
	}
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/q", ""); q.Ledger.Done != 1 {
		t.Errorf("%+v", q.Ledger)
	}
}
