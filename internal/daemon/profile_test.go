package daemon_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
)

// Profiles are for the scope admin, and as go tool pprof reads them.
func TestProfiles(t *testing.T) {
	cfg := parse(t, "queues: {q: {}}")
	for _, s := range config.Scopes() {
		cfg.Tokens = append(cfg.Tokens, config.Token{Name: string(s), Hash: hash("secret-" + string(s)), Scopes: []config.Scope{s}})
	}
	cfg.Tokens = append(cfg.Tokens, config.Token{Name: "confined", Hash: hash("secret-confined"), Queues: []string{"q"}})
	d := start(t, cfg, newStore(t))
	as := func(token, path string) (int, []byte) {
		resp, body := d.send(http.MethodGet, path, "", "Authorization", "Bearer "+token)
		return resp.StatusCode, body
	}
	for _, s := range config.Scopes() {
		want := http.StatusForbidden
		if s == config.ScopeAdmin {
			want = http.StatusOK
		}
		if status, body := as("secret-"+string(s), "/debug/pprof/heap"); status != want {
			t.Errorf("%s: %d %s", s, status, body)
		}
	}
	for token, want := range map[string]int{"secret-confined": http.StatusForbidden, "secret-none": http.StatusUnauthorized} {
		if status, body := as(token, "/debug/pprof/heap"); status != want {
			t.Errorf("%s: %d %s", token, status, body)
		}
	}
	for _, name := range []string{"heap", "goroutine", "profile?seconds=1"} {
		_, body := as("secret-admin", "/debug/pprof/"+name)
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n, err := io.Copy(io.Discard, z); n == 0 || err != nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	if status, body := as("secret-admin", "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(string(body), "goroutine profile: total") {
		t.Errorf("%d %.200s", status, body)
	}
	for path, want := range map[string]int{"cmdline": http.StatusNotFound, "profile?seconds=61": http.StatusBadRequest, "profile?seconds=x": http.StatusBadRequest, "heap?debug=9": http.StatusBadRequest} {
		if status, body := as("secret-admin", "/debug/pprof/"+path); status != want {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	var both sync.WaitGroup
	var statuses [2]int
	for i, name := range []string{"profile", "trace"} {
		both.Go(func() { statuses[i], _ = as("secret-admin", "/debug/pprof/"+name+"?seconds=1") })
	}
	began := time.Now()
	both.Wait()
	if statuses != [2]int{200, 409} && statuses != [2]int{409, 200} && time.Since(began) < 2*time.Second { // else one came after the other
		t.Errorf("two at once: %v", statuses)
	}
}
