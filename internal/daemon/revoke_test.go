package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// held is a request under way.
type held struct {
	what    string
	reading chan struct{} // closed when the daemon reads its body
	answer  chan held     // it is answered

	status int
	body   []byte
	err    error
}

// hold sends a request with a body that does not come to its end.
func (d *rig) hold(method, path, body string) *held {
	d.t.Helper()
	h := &held{what: method + " " + path, reading: make(chan struct{}), answer: make(chan held, 1)}
	ctx := httptrace.WithClientTrace(d.t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(h.reading) }})
	in, out := io.Pipe()
	d.t.Cleanup(func() { out.Close() })
	var sent io.Reader
	if method != http.MethodGet {
		sent = in
	}
	r, err := http.NewRequestWithContext(ctx, method, d.base+path, sent)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	if method != http.MethodGet {
		r.Header.Set("Expect", "100-continue")
		go func() { _, _ = io.WriteString(out, body) }()
	}
	go func() {
		resp, err := d.http.Do(r)
		if err != nil {
			h.answer <- held{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		h.answer <- held{status: resp.StatusCode, body: b, err: err}
	}()
	return h
}

// endOf waits for the problem with which a request ends.
func (d *rig) endOf(h *held) *problem.Problem {
	d.t.Helper()
	select {
	case a := <-h.answer:
		var p problem.Problem
		if a.err != nil || json.Unmarshal(a.body, &p) != nil || p.Status != a.status {
			d.t.Fatalf("%s: %d %s %v", h.what, a.status, a.body, a.err)
		}
		return &p
	case <-time.After(30 * time.Second):
		d.t.Fatalf("%s goes on", h.what)
		return nil
	}
}

// On these routes a message is waited for, and changes are streamed.
const (
	awaited  = "/v1/queues/{queue}/messages/{id}"
	streamed = "/v1/events"
)

// holdAll begins a request on every route. It returns those that the daemon holds open,
// and others that look at something, which may be.
func (d *rig) holdAll() (open, looks []*held) {
	d.t.Helper()
	for _, r := range daemon.RouteTable() {
		where := path(r.Pattern)
		switch {
		case r.Scope == "" || r.Pattern == "/v1/ws":
			continue
		case r.Method == http.MethodGet && r.Pattern == awaited:
			open = append(open, d.hold(r.Method, where+"?wait=1m", ""))
			continue
		case r.Method == http.MethodGet && r.Pattern == streamed:
			continue // it is answered at once, and then goes on
		case r.Method == http.MethodGet:
			looks = append(looks, d.hold(r.Method, where, ""))
			continue
		}
		h := d.hold(r.Method, where, "{")
		select {
		case <-h.reading:
			open = append(open, h)
		case a := <-h.answer:
			if a.err != nil || r.Body {
				d.t.Errorf("%s: its body was not read: %d %s %v", h.what, a.status, a.body, a.err)
			}
		}
	}
	root := d.as("root")
	d.eventually("a message is waited for", func() bool {
		return get[wire.Queue](root, 200, http.MethodGet, "/v1/queues/sms", "").PolledAt != nil
	})
	return open, looks
}

// stream is an open stream of NDJSON.
type stream struct {
	t     *testing.T
	send  func(string)
	lines *bufio.Scanner
}

func (d *rig) stream(queue string) *stream {
	d.t.Helper()
	body, send := newPipe(d.t)
	d.t.Cleanup(func() { body.(io.Closer).Close() })
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.base+"/v1/queues/"+queue+"/messages", body)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	r.Header.Set("Content-Type", "application/x-ndjson")
	go send("{}\n")
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { resp.Body.Close() })
	return &stream{d.t, send, bufio.NewScanner(resp.Body)}
}

// next returns the result of the next line, or reports the end.
func (s *stream) next() (l wire.LineResult, more bool) {
	s.t.Helper()
	if more = s.lines.Scan(); more {
		decode(s.t, s.lines.Bytes(), &l)
	}
	return l, more
}

// session opens a session and returns how it ends.
func (d *rig) session() <-chan error {
	d.t.Helper()
	conn, _, err := websocket.Dial(d.t.Context(), d.wsURL(), &websocket.DialOptions{
		Subprotocols: []string{"redrive.v1.json"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}},
	})
	if err == nil {
		err = conn.Write(d.t.Context(), websocket.MessageText, []byte(`{"type":"hello"}`))
	}
	if err == nil {
		_, _, err = conn.Read(d.t.Context()) // the welcome
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.CloseNow() })
	ended := make(chan error, 1)
	go func() {
		_, _, err := conn.Read(context.WithoutCancel(d.t.Context()))
		ended <- err
	}()
	return ended
}

// TestWhatIsOpenEndsWithItsToken: bodies that are being read on every route, claims and
// results that are waited for, streams and sessions.
func TestWhatIsOpenEndsWithItsToken(t *testing.T) {
	target := newReceiver(t, nil)
	for name, c := range map[string]struct {
		token string // what becomes of it
		code  websocket.StatusCode
	}{
		"token-revoked": {"", 4401},
		"token-expired": {`{name: holder, hash: "%s", expires: 2020-01-31}`, 4401},
		"token-changed": {`{name: holder, hash: "%s", scopes: [publish, consume]}`, 1012},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := func(queues, token string) string {
				if token != "" {
					token = ", " + fmt.Sprintf(token, hash("holder"))
				}
				return fmt.Sprintf("queues: {sms: {deliver: {url: %q, allow_private: true}, guard: {}}, idle: {}%s}\ngrace: 100ms\ntokens: [{name: root, hash: %q}%s]", target.URL, queues, hash("root"), token)
			}
			all := `{name: holder, hash: "%s"}`
			d, write := fromFile(t, yaml("", all), newStore(t))
			d.token = "holder"
			root := d.as("root")
			open, looks := d.holdAll()
			lines := d.stream("idle")
			session := d.session()
			changes := d.listen("")
			changes.until("reset", "")
			claim := &held{what: "a claim", answer: make(chan held, 1)}
			if l, _ := lines.next(); l.Status != wire.LineAccepted {
				t.Fatalf("%+v", l)
			}
			root.work("idle", `"outcome":"done"`)
			go func() {
				resp, b := d.send(http.MethodPost, "/v1/queues/idle/claims", `{"wait":"1m"}`)
				claim.answer <- held{status: resp.StatusCode, body: b}
			}()
			d.eventually("the claim waits", func() bool {
				q := get[wire.Queue](root, 200, http.MethodGet, "/v1/queues/idle", "")
				return q.Pull != nil && q.Pull.Polls == 1
			})

			// What leaves the token as it was ends nothing.
			write(yaml(", more: {}", all))
			d.eventually("another change is in force", func() bool { return len(root.config().Queues) == 3 })
			lines.send(`{"delay":"1h"}` + "\n")
			if l, _ := lines.next(); l.Status != wire.LineAccepted {
				t.Fatalf("%+v", l)
			}
			write(yaml(", more: {}", c.token))
			for _, h := range append(open, claim) {
				if p := d.endOf(h); p.Name() != name {
					t.Errorf("%s ends with %+v", h.what, p)
				}
			}
			for _, h := range looks {
				select {
				case <-h.answer:
				case <-time.After(30 * time.Second):
					t.Errorf("%s goes on", h.what)
				}
			}
			if l, _ := lines.next(); l.Line != 3 || l.Error == nil || l.Error.Name() != name {
				t.Errorf("the stream ends with %+v", l)
			}
			if l, more := lines.next(); more {
				t.Errorf("the stream goes on with %+v", l)
			}
			if end, _ := json.Marshal(changes.until("end", "").Item); !strings.Contains(string(end), name) {
				t.Errorf("the changes end with %s", end)
			}
			if changes.Scan() && changes.Text() != "" {
				t.Errorf("the changes go on with %s", changes.Text())
			}
			if err := <-session; websocket.CloseStatus(err) != c.code {
				t.Errorf("the session ends with %v", err)
			}
		})
	}
}

// TestWhatIsOpenEndsWhenATokenIsNeeded: as soon as there are tokens.
func TestWhatIsOpenEndsWhenATokenIsNeeded(t *testing.T) {
	d, write := fromFile(t, "queues: {q: {}}", newStore(t))
	lines := d.stream("q")
	if l, _ := lines.next(); l.Status != wire.LineAccepted {
		t.Fatalf("%+v", l)
	}
	write(fmt.Sprintf("queues: {q: {}}\ntokens: [{name: root, hash: %q}]", hash("root")))
	if l, _ := lines.next(); l.Line != 2 || l.Error == nil || l.Error.Name() != "token-missing" {
		t.Errorf("the stream ends with %+v", l)
	}
}
