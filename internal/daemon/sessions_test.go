package daemon_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/internal/wire"
)

// wsURL is where the daemon takes sessions.
func (d *rig) wsURL() string { return "ws" + strings.TrimPrefix(d.base, "http") + "/v1/ws" }

// dial opens a session.
func (d *rig) dial(o client.Options) *client.Client {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	o.Token = d.token
	c, err := client.Dial(ctx, d.wsURL(), o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(c.Close)
	return c
}

func TestASessionPublishesAndGetsResults(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Redrive-Kind") {
		case "bad":
			http.Error(w, "no such thing", http.StatusUnprocessableEntity)
		case "text":
			fmt.Fprint(w, "plain \xff")
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"ok":true}`)
		}
	}))
	defer target.Close()
	d := start(t, parse(t, `queues: {sms: {deliver: {url: "`+target.URL+`", allow_private: true}}}`), newStore(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := d.dial(client.Options{})
	r, err := c.Call(ctx, &client.Message{Queue: "sms", Body: []byte(`{"to":"1"}`)})
	if err != nil || !r.Done() || r.Status != 200 || string(r.Body) != `{"ok":true}` || r.Queue != "sms" || r.ID == "" || r.Number != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	r, err = c.Call(ctx, &client.Message{Queue: "sms", Kind: "bad"})
	if err != nil || r.Outcome != "dead" || r.Reason != "permanent" || !strings.Contains(r.Error, "422") {
		t.Errorf("%+v %v", r, err)
	}
	r, err = c.Call(ctx, &client.Message{Queue: "sms", Kind: "text", Body: []byte{0xff, 0}})
	if err != nil || string(r.Body) != "plain \xff" {
		t.Errorf("%+v %v", r, err)
	}
	err = c.Publish(ctx, &client.Message{Queue: "smss"})
	if err == nil || !strings.Contains(err.Error(), "Queue not found") {
		t.Errorf("an unknown queue: %v", err)
	}
	list := get[wire.List[wire.Session]](d, 200, http.MethodGet, "/v1/sessions", "")
	if len(list.Items) != 1 || !list.Items[0].Attached || list.Items[0].Seq != 4 || list.Items[0].Token != "local" {
		t.Errorf("%+v", list)
	}
	metrics := func() string {
		_, b := d.send(http.MethodGet, "/metrics", "")
		return string(b)
	}
	for _, want := range []string{`redrive_websocket_connections 1`, `redrive_accepted_total{ingress="websocket"} 3`, `redrive_websocket_sessions_total{how="new"} 1`} {
		if !strings.Contains(metrics(), want) {
			t.Errorf("no %s", want)
		}
	}
	if err := c.Bye(ctx); err != nil {
		t.Error(err)
	}
	if list := get[wire.List[wire.Session]](d, 200, http.MethodGet, "/v1/sessions", ""); len(list.Items) != 0 {
		t.Errorf("after bye: %+v", list)
	}
}

func TestASessionOutlivesTheDaemon(t *testing.T) {
	var mu sync.Mutex
	down := true
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer target.Close()
	dir := filepath.Join(t.TempDir(), "data")
	yaml := `
store: sqlite:` + dir + `
queues: {sms: {deliver: {url: "` + target.URL + `", allow_private: true}, policy: {max_attempts: 100, backoff: {type: fixed, interval: 50ms}}}}`
	first := start(t, parse(t, yaml), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c := first.dial(client.Options{})
	for range 10 {
		if err := c.Publish(ctx, &client.Message{Queue: "sms"}); err != nil {
			t.Fatal(err)
		}
	}
	s := c.Session()
	first.shutdown()
	c.Close()
	mu.Lock()
	down = false
	mu.Unlock()

	second := start(t, parse(t, yaml), nil)
	results := make(chan *client.Result, 20)
	c = second.dial(client.Options{Session: &s, OnResult: func(r *client.Result) { results <- r }, OnGap: func(bool, uint64) { t.Error("a gap") }})
	for i := range 10 {
		select {
		case r := <-results:
			if r.Number != uint64(i+1) || !r.Done() {
				t.Errorf("%+v", r)
			}
		case <-ctx.Done():
			t.Fatalf("%d results", i)
		}
	}
	if err := c.Publish(ctx, &client.Message{Queue: "sms"}); err != nil {
		t.Error(err)
	}
}

func TestHandshakesOfSessions(t *testing.T) {
	cfg := withTokens(t)
	cfg.WebSocket.Origins = []string{"https://app.example.com"}
	d := start(t, cfg, newStore(t))
	const pub = "Bearer secret-publish"
	encoded := base64.RawURLEncoding.EncodeToString([]byte("secret-publish"))
	for _, c := range []struct {
		want         int
		name         string
		protocols    []string
		auth, origin string
	}{
		{101, "", []string{"redrive.v1.json"}, pub, ""},
		{101, "", []string{"redrive.v1.json"}, pub, d.base},
		{101, "", []string{"redrive.v1.json"}, pub, "https://app.example.com"},
		{101, "", []string{"redrive.v1.json", "redrive.bearer." + encoded}, "", ""},
		{401, "token-missing", []string{"redrive.v1.json"}, "", ""},
		{401, "token-unknown", []string{"redrive.v1.json", "redrive.bearer.eA"}, "", ""},
		{403, "forbidden", []string{"redrive.v1.json"}, "Bearer secret-read", ""},
		{403, "cross-origin", []string{"redrive.v1.json"}, pub, "https://evil.example"},
		{403, "cross-origin", []string{"redrive.v1.json"}, pub, "null"},
		{400, "subprotocol", nil, pub, ""},
		{400, "subprotocol", []string{"cloudevents.json", "redrive.v2.json"}, pub, ""},
	} {
		o := &websocket.DialOptions{Subprotocols: c.protocols, HTTPHeader: http.Header{}}
		if c.auth != "" {
			o.HTTPHeader.Set("Authorization", c.auth)
		}
		if c.origin != "" {
			o.HTTPHeader.Set("Origin", c.origin)
		}
		conn, resp, err := websocket.Dial(t.Context(), d.wsURL(), o)
		if resp == nil {
			t.Fatal(err)
		}
		body := make([]byte, 1024)
		if err == nil {
			if conn.Subprotocol() != "redrive.v1.json" {
				t.Errorf("subprotocol %q", conn.Subprotocol())
			}
			conn.CloseNow()
		} else {
			n, _ := resp.Body.Read(body)
			body = body[:n]
		}
		if resp.StatusCode != c.want || c.name != "" && !strings.Contains(string(body), "problem:"+c.name+`"`) {
			t.Errorf("%+v: %d %s", c, resp.StatusCode, body)
		}
	}
	d.token = "secret-publish"
	d.refused(426, "upgrade", http.MethodGet, "/v1/ws", "")
}
