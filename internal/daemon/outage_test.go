package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// server is one that tests kill and start again.
type server interface {
	Kill()
	Resume() error
}

// withoutStore are the routes that answer while the store is away.
var withoutStore = []string{"POST /v1/logins", "GET /healthz", "GET /openapi.json", "GET /metrics", "GET /v1/guards", "GET /v1/guards/{queue}", "GET /v1/ws", "GET /v1/probe", "GET /v1/backup",
	"GET /v1/tokens", "POST /v1/guards/{queue}/force", "GET /v1/me", "GET /v1/events", "GET /debug/pprof/{profile}"}

// While the server of a store is away, every route says so, by one name, with a time after
// which to repeat, and without the address; the log has one line. When the server is back, all
// is as before.
func TestTheServerOfTheStoreGoesAway(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) (server, string){
		"PostgreSQL": func(t *testing.T) (server, string) { s := pgtest.Start(t, nil); return s, s.URL() },
		"MariaDB": func(t *testing.T) (server, string) {
			s := mariadbtest.Start(t, nil)
			return s, s.URL(mariadbtest.Database)
		},
		"Redis": func(t *testing.T) (server, string) {
			s := redistest.Start(t, redistest.Options{AppendOnly: true})
			return s, s.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := begin(t)
			d := start(t, parse(t, "{store: \""+url+"\", grace: 100ms, queues: {q: {}, g: {deliver: {url: \"http://127.0.0.1:1\", allow_private: true}, guard: {}}}}"), nil)
			const at = "/v1/queues/q/messages"
			get[wire.Accepted](d, 202, http.MethodPost, at, "x", "redrive-id", "m")
			receipt := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/q/claims", "{}").Items[0].Receipt
			s.Kill()
			for range 10 { // connections that were open break under the first, and of a publish the outcome is not known then
				d.send(http.MethodGet, at, "")
				d.send(http.MethodPost, at, "x")
			}
			d.everyRoute(func(route string, status int, answer []byte) {
				var p problem.Problem
				switch {
				case status == http.StatusNotImplemented: // that is known without the server
				case slices.Contains(withoutStore, route):
					if status >= 500 && status != http.StatusNotImplemented {
						t.Errorf("%s: %d %s", route, status, answer)
					}
				case json.Unmarshal(answer, &p) != nil || status != 503 || p.RetryAfter == 0 || p.Name() != "store-unavailable" && route != "GET /readyz" && route != "POST /v1/call/{queue}":
					t.Errorf("%s: %d %s", route, status, answer)
				}
				open := route == "GET /v1/probe" || route == "GET /v1/guards/{queue}" || route == "POST /v1/logins" // which show addresses to whoever may read, or the daemon's own
				if !open && (strings.Contains(string(answer), "127.0.0.1") || strings.Contains(string(answer), "dial")) {
					t.Errorf("%s says too much: %s", route, answer)
				}
			})
			body := fmt.Sprintf(`{"settlements":[{"receipt":%q,"outcome":"done"}]}`, receipt)
			d.refused(503, "store-unavailable", http.MethodPost, "/v1/queues/q/settlements", body)
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			d.eventually("the daemon is ready", func() bool { resp, _ := d.send(http.MethodGet, "/readyz", ""); return resp.StatusCode == 200 })
			d.eventually("the log says so", func() bool { return strings.Contains(d.log.String(), "store is back") })
			d.everyRoute(func(route string, status int, answer []byte) {
				if status >= 500 && status != http.StatusNotImplemented {
					t.Errorf("%s: %d %s", route, status, answer)
				}
			})
			get[wire.Accepted](d, 202, http.MethodPost, at, "x", "redrive-id", "n")
			lines := 0
			for line := range strings.Lines(d.log.String()) {
				if (strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN")) && !strings.Contains(line, "msg=settings") && !strings.Contains(line, "worker lease expired") {
					t.Log(strings.TrimSpace(line))
					lines++
				}
			}
			// A write that was under way when the connections broke may have a line of its own.
			if begun := strings.Count(d.log.String(), "store unavailable"); begun != 1 || lines > 6 {
				t.Errorf("%d outages, %d lines in the log", begun, lines)
			}
		})
	}
}

// everyRoute sends a request that has nothing wrong to each route of the description.
func (d *rig) everyRoute(look func(route string, status int, answer []byte)) {
	d.t.Helper()
	_, b := d.send(http.MethodGet, "/openapi.json", "")
	var doc described
	decode(d.t, b, &doc)
	bodies := map[string]string{
		"POST /v1/queues/{queue}/claims": "{}", "POST /v1/plans": `{"action":"redrive","filter":{"queue":"q"},"dry_run":true}`,
		"PATCH /v1/queues/{queue}/dead-letters/{id}": `{"kind":"k"}`, "PATCH /v1/plans/{id}": `{"rate":"1/s"}`, "POST /v1/verify": `{"reason":"trimmed"}`, "PUT /v1/causes/{signature}": `{"queue":"q","state":"acknowledged"}`,
	}
	bodies["POST /v1/guards/{queue}/force"] = `{"provider":"default","state":"healthy"}`
	bodies["PUT /v1/causes/{signature}"] = `{"queue":"q","state":"resolved"}`
	fill := strings.NewReplacer("call/{queue}", "call/g", "guards/{queue}", "guards/g", "{queue}", "q", "{id}", "none", "{signature}", "0000000000000000")
	type answered struct {
		route  string
		status int
		body   []byte
	}
	answers := make(chan answered)
	var sent sync.WaitGroup
	for path, methods := range doc.Paths {
		for method := range methods {
			route := strings.ToUpper(method) + " " + path
			at := fill.Replace(path)
			if path == "/v1/causes/{signature}/deaths" {
				at += "?queue=q&reason=exhausted"
			}
			sent.Go(func() {
				resp, body := d.send(strings.ToUpper(method), at, bodies[route])
				answers <- answered{route, resp.StatusCode, body}
			})
		}
	}
	go func() { sent.Wait(); close(answers) }()
	for a := range answers {
		look(a.route, a.status, a.body)
	}
}
