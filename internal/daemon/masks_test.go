package daemon_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// cards is a daemon whose queue cards masks the pin, with a token for every scope, and one
// of a worker that may publish.
func cards(t *testing.T, store driver.Store, queues string) *rig {
	c := parse(t, `{queues: {cards: {mask: ["$..pin"]}, more: {mask: ["$..pin", "$.cvc"]}, open: {}, other: {mask: ["$.cvc"]}`+queues+`}, grace: 100ms}`)
	for _, s := range config.Scopes() {
		c.Tokens = append(c.Tokens, config.Token{Name: string(s), Hash: hash(string(s)), Scopes: []config.Scope{s}})
	}
	c.Tokens = append(c.Tokens, config.Token{Name: "worker", Hash: hash("worker"), Scopes: []config.Scope{config.ScopePublish, config.ScopeConsume}})
	return start(t, c, store)
}

var anyRun = regexp.MustCompile(`"(duration|trace_id|host|ip|pid)":("[^"\\]*"|\d+)`)

// answered returns an answer without what differs between any two requests.
func (d *rig) answered(method, path, body string, headers ...string) string {
	d.t.Helper()
	resp, b := d.send(method, path, body, headers...)
	text := anyRun.ReplaceAllString(anyTime.ReplaceAllString(string(b), "TIME"), "")
	var p struct{ Instance string }
	if json.Unmarshal(b, &p) == nil && p.Instance != "" {
		text = strings.ReplaceAll(text, p.Instance, "INSTANCE")
	}
	return fmt.Sprint(resp.StatusCode, " ", text)
}

// TestWhoRepeatsAnIDLearnsNothingOfWhatIsMasked: by none of the ways in, while the message
// waits and after its end. Whatever else differs is a conflict.
func TestWhoRepeatsAnIDLearnsNothingOfWhatIsMasked(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := cards(t, store, "").as("admin")
		publish := func(body string) []string {
			c := d.as("publish").dial(client.Options{})
			p, err := c.Send(t.Context(), &client.Message{Queue: "cards", ID: "m", Body: []byte(body)})
			if err != nil {
				t.Fatal(err)
			}
			frame := fmt.Sprint(p.Wait(t.Context()), p.Duplicate())
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/open/messages", "{}")
			_, settled := d.as("worker").work("open", `"outcome":"done","emit":[{"queue":"cards","message":{"id":"m","body":`+body+`}}]`)
			emitted := "conflict"
			if settled.Error == nil {
				emitted = "same"
			}
			dead := fmt.Sprintf(`{"queue":"cards","id":"m","state":"dead","reason":"exhausted","size":%d,"body":%q}`, len(body), body)
			return []string{
				d.as("publish").answered(http.MethodPost, "/v1/queues/cards/messages", body, "redrive-id", "m"),
				d.as("publish").answered(http.MethodPost, "/v1/queues/cards/messages", `{"id":"m","body":`+body+`}`, "Content-Type", "application/x-ndjson"),
				d.as("redrive").answered(http.MethodPost, "/v1/dead-letters", dead), frame, emitted,
			}
		}
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/cards/messages", `{"pin":1234,"shop":"a"}`, "redrive-id", "m")
		for _, state := range []string{"waiting", "ended"} {
			right, wrong, other := publish(`{"pin":1234,"shop":"a"}`), publish(`{"pin":4321,"shop":"a"}`), publish(`{"pin":1234,"shop":"other"}`)
			for i := range right {
				if right[i] != wrong[i] {
					t.Errorf("%s: the right value is distinguished from a wrong one:\n%s\n%s", state, right[i], wrong[i])
				}
				if right[i] == other[i] {
					t.Errorf("%s: another message is taken for the same: %s", state, other[i])
				}
			}
			if !strings.HasPrefix(right[0], "202") || !strings.Contains(right[0], `"duplicate":true`) || !strings.HasPrefix(other[0], "409") {
				t.Errorf("%s: %s\n%s", state, right[0], other[0])
			}
			if state == "waiting" {
				d.work("cards", `"outcome":"done"`)
			}
		}
	})
}

// TestNoPlanTakesMessagesFromTheirMasks: into a queue that hides less, but by an admin.
func TestNoPlanTakesMessagesFromTheirMasks(t *testing.T) {
	d := cards(t, newStore(t), "").as("admin")
	for i, queue := range []string{"cards", "cards", "open"} {
		l := line(queue, fmt.Sprint("m-", i), "")
		if sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", l); sum.Imported != 1 {
			t.Fatalf("%+v", sum)
		}
	}
	r := d.as("redrive")
	for _, target := range []string{`"filter":{"queue":"cards"}`, `"filter":{}`, `"refs":["cards/m-0"]`, `"refs":["open/m-2","cards/m-0"]`} {
		for _, to := range []string{"open", "other"} {
			for _, more := range []string{"", `,"dry_run":true`} {
				p := r.refused(http.StatusForbidden, "masks", http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"redrive",%s,"to":%q%s}`, target, to, more))
				if !strings.Contains(p.Hint, "$..pin") {
					t.Errorf("%+v", p)
				}
			}
		}
	}
	get[wire.Plan](r, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["cards/m-0"],"to":"more"}`)
	get[wire.Plan](r, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["open/m-2"],"to":"cards"}`)
	get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["cards/m-1"],"to":"open"}`)
	for _, ref := range []string{"more/messages/m-0", "cards/messages/m-2", "open/messages/m-1"} {
		d.eventually(ref+" is there", func() bool {
			resp, _ := d.send(http.MethodGet, "/v1/queues/"+ref, "")
			return resp.StatusCode == http.StatusOK
		})
	}
}

// TestFailuresOfWorkersAreMaskedWhole: whatever they put where.
func TestFailuresOfWorkersAreMaskedWhole(t *testing.T) {
	shown := func(pin string) string {
		d := cards(t, newStore(t), "").as("admin")
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/cards/messages", `{"shop":"a"}`, "redrive-id", "m", "redrive-reply-to", "open")
		text := fmt.Sprintf(`E {"pin":%q}`, pin)
		failure, _ := json.Marshal(wire.WorkerFailure{Type: text, Types: []string{text}, Message: text, Stack: text, Host: text, IP: text, Service: text, Version: text,
			Details: map[string]string{"x": text, "http.status": text}})
		d.work("cards", `"outcome":"dead","failure":`+string(failure))
		var all strings.Builder
		for _, token := range []string{"read", "read-payload", "redrive"} {
			for _, path := range []string{"/v1/dead-letters", "/v1/causes", "/v1/queues/cards/dead-letters/m", "/v1/queues/cards/messages/m", "/v1/queues/cards",
				"/v1/queues/open/messages", "/v1/queues/open/messages/" + driver.ResultID(&redrive.Message{Queue: "cards", ID: "m"})} {
				all.WriteString(path + d.as(token).answered(http.MethodGet, path, "") + "\n")
			}
		}
		all.WriteString(d.as("redrive").answered(http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"cards"},"dry_run":true}`))
		claimed := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/open/claims", "").Items
		if len(claimed) != 1 {
			t.Fatal("no result")
		}
		all.WriteString(fmt.Sprint(claimed[0].Headers))
		return all.String()
	}
	first, second := shown("sesame-1"), shown("sesame-2")
	if strings.Contains(first+second, "sesame") || first != second {
		t.Errorf("a masked value shows, or tells two apart:\n%s\n%s", first, second)
	}
}

// TestTheSizeIsOfWhatShows: also for who sees no body.
func TestTheSizeIsOfWhatShows(t *testing.T) {
	d := cards(t, newStore(t), "").as("admin")
	for i, body := range []string{`{"pin":"1","shop":"a"}`, `{"pin":"` + strings.Repeat("7", 500) + `","shop":"a"}`} {
		path := fmt.Sprint("/v1/queues/cards/messages/m-", i)
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/cards/messages", body, "redrive-id", fmt.Sprint("m-", i))
		for token, want := range map[string]int{"read": 24, "read-payload": 24, "admin": 24} {
			if m := get[wire.Message](d.as(token), 200, http.MethodGet, path, ""); m.Size == nil || *m.Size != want {
				t.Errorf("%s: size %d", token, *m.Size)
			}
		}
		if m := get[wire.Message](d, 200, http.MethodGet, path+"?unmasked=true", ""); *m.Size != len(body) {
			t.Errorf("unmasked: size %d", *m.Size)
		}
	}
	dead := line("cards", "edited", `,"original":{"queue":"cards","id":"edited","size":1,"body":"x"}`)
	get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", dead)
	if m := get[wire.Message](d.as("read"), 200, http.MethodGet, "/v1/queues/cards/messages/edited", ""); *m.Size != 3 || *m.Original.Size != 3 {
		t.Errorf("size %d, of the original %d", *m.Size, *m.Original.Size)
	}
}

// TestCallsAreMasked: what is put off holds its body in base64, and its errors are a
// provider's.
func TestCallsAreMasked(t *testing.T) {
	shown := func(pin string) string {
		p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 {\"pin\":%q} x\r\n\r\n", pin) // the error repeats it
		}))
		defer p.Close()
		d := cards(t, newStore(t), fmt.Sprintf(`, asked: {mask: ["$..pin", "header:x-pin"], deliver: {url: %q, allow_private: true}, guard: {repeat: anywhere}}`, p.URL)).as("admin")
		defer d.shutdown()
		c := d.as("call")
		body := fmt.Sprintf(`{"pin":%q,"shop":"a"}`, pin)
		var all strings.Builder
		uncertain := c.answered(http.MethodPost, "/v1/call/asked?repeat=never", body, "redrive-id", "u", "redrive-header-x-pin", pin)
		if !strings.HasPrefix(uncertain, "502") {
			t.Errorf("the call: %s", uncertain)
		}
		all.WriteString(uncertain)
		all.WriteString(c.answered(http.MethodGet, "/v1/call/asked/u", ""))
		if resp, b := c.send(http.MethodPost, "/v1/call/asked", body, "redrive-id", "w", "redrive-header-x-pin", pin); resp.StatusCode != http.StatusAccepted {
			t.Errorf("the call is not put off: %d %s", resp.StatusCode, b)
		}
		d.eventually("it failed", func() bool {
			_, b := c.send(http.MethodGet, "/v1/call/asked/w", "")
			return strings.Contains(string(b), "malformed")
		})
		_, b := c.send(http.MethodGet, "/v1/call/asked/w", "")
		all.Write(b)
		for _, path := range []string{"/v1/guards", "/v1/guards/asked", "/v1/queues/asked"} {
			_, b := d.as("read").send(http.MethodGet, path, "")
			if strings.Contains(string(b), pin) {
				t.Errorf("%s: %s", path, b)
			}
		}
		m := get[wire.Message](d.as("read-payload"), 200, http.MethodGet, "/v1/queues/asked/dead-letters/u", "")
		var request struct {
			Header http.Header `json:"header"`
			Body   []byte      `json:"body"`
		}
		decode(t, m.Bytes(), &request)
		if !m.Masked || string(request.Body) != `{"pin":"***","shop":"a"}` || request.Header.Get("X-Pin") != "***" {
			t.Errorf("what was put off shows as %s: %s %v", m.Bytes(), request.Body, request.Header)
		}
		for _, part := range []string{base64.StdEncoding.EncodeToString([]byte(body))[:12], pin} {
			if l := get[wire.List[wire.Message]](d.as("read-payload"), 200, http.MethodGet, "/v1/dead-letters?text="+part, ""); len(l.Items) != 0 {
				t.Errorf("%s is found", part)
			}
		}
		return all.String()
	}
	first, second := shown("sesame-1"), shown("sesame-2")
	if strings.Contains(first+second, "sesame") || first != second {
		t.Errorf("a masked value shows, or tells two apart:\n%s\n%s", first, second)
	}
}
