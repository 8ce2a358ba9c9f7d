package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/browsertest"
	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/wire"
)

// jsWorld is a daemon for the checks of the JavaScript client, and an API that receives
// its messages, serves the checks' page, and does what they ask for to the daemon.
type jsWorld struct {
	t      *testing.T
	api    *httptest.Server
	d      *daemon
	report chan jsReport

	daemons sync.Mutex

	mu      sync.Mutex
	arrived map[string][]string // by text: the ids under which it arrived
}

// jsReport is what the page tells at its end.
type jsReport struct {
	Passed []string `json:"passed"`
	Error  string   `json:"error"`
}

const jsToken = "a-token-of-this-test"

func newJSWorld(t *testing.T) *jsWorld {
	w := &jsWorld{t: t, report: make(chan jsReport, 1), arrived: make(map[string][]string)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /said", w.said)
	mux.HandleFunc("POST /mirror", mirror)
	mux.HandleFunc("GET /arrived", w.tell)
	mux.HandleFunc("POST /control/{what}", w.control)
	mux.HandleFunc("POST /report", w.reported)
	mux.Handle("GET /clients/js/", http.StripPrefix("/clients/js/", http.FileServer(http.Dir("../../clients/js"))))
	w.api = httptest.NewServer(mux)
	t.Cleanup(w.api.Close)
	w.d = newDaemon(t, fmt.Sprintf(`
queues:
  chat: {deliver: {url: %[1]q, allow_private: true}}
  mirror: {deliver: {url: %[2]q, allow_private: true, max_response: 64KiB}}
  asked: {}
  passed: {}
websocket: {origins: [%[3]q], max_frame: 64KiB}
tokens:
  - {name: test, hash: "sha256:%[4]x", scopes: [publish, consume, admin]}
`, w.api.URL+"/said", w.api.URL+"/mirror", w.api.URL, sha256.Sum256([]byte(jsToken))))
	return w
}

func (w *jsWorld) url() string { return "ws" + strings.TrimPrefix(w.d.url, "http") + "/v1/ws" }

// said receives a message.
func (w *jsWorld) said(rw http.ResponseWriter, r *http.Request) {
	var message struct{ Text string }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	id := r.Header.Get("Webhook-Id")
	w.mu.Lock()
	if !slices.Contains(w.arrived[message.Text], id) {
		w.arrived[message.Text] = append(w.arrived[message.Text], id)
	}
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"echo":%s}`, body)
}

// mirror answers what it is sent.
func mirror(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	_, _ = rw.Write(body) // whoever went away is not interested
}

// tell tells what arrived of the texts that begin with a label.
func (w *jsWorld) tell(rw http.ResponseWriter, r *http.Request) {
	some := make(map[string][]string)
	w.mu.Lock()
	for text, ids := range w.arrived {
		if strings.HasPrefix(text, r.FormValue("label")+"-") {
			some[text] = ids
		}
	}
	w.mu.Unlock()
	if err := json.NewEncoder(rw).Encode(some); err != nil {
		w.t.Error(err)
	}
}

// control does something to the daemon.
func (w *jsWorld) control(_ http.ResponseWriter, r *http.Request) {
	what := r.PathValue("what")
	w.daemons.Lock() // one after the other
	defer w.daemons.Unlock()
	if what != "start" {
		w.d.kill()
	}
	if what != "kill" {
		w.d.launch()
	}
}

func (w *jsWorld) reported(_ http.ResponseWriter, r *http.Request) {
	var report jsReport
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		w.t.Error(err)
	}
	w.report <- report
}

// balanced checks the daemon's ledger at the end.
func (w *jsWorld) balanced() {
	until(w.t, "the daemon is ready", 30*time.Second, w.d.ready)
	w.d.env = append(w.d.env, "REDRIVE_TOKEN="+jsToken)
	if v := decode[wire.Verified](w.t, w.d.redrive("verify", "--scan", "--json").ok(w.t)); !v.Balanced {
		w.t.Errorf("%+v", v)
	}
}

// TestJavaScriptInNode runs the checks of the JavaScript client in Node: publish, acks,
// results, refusals, the server killed, resume from a storage, a gap; and its simulation.
func TestJavaScriptInNode(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node")
	}
	w := newJSWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--experimental-websocket", "--test", "../../clients/js/test/client.test.js", "../../clients/js/test/simulation.test.js")
	cmd.Env = append(programtest.Environ(), "REDRIVE_TEST_URL="+w.url(), "REDRIVE_TEST_TOKEN="+jsToken, "REDRIVE_TEST_API="+w.api.URL)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "fail 0") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", tail(string(out), 9))
	w.balanced()
}

// TestJavaScriptInChromium runs them in a real browser, and reloads a page that has
// messages on their way.
func TestJavaScriptInChromium(t *testing.T) {
	t.Parallel()
	w := newJSWorld(t)
	browsertest.Open(t, w.api.URL+"/clients/js/test/page.html?"+url.Values{"url": {w.url()}, "token": {jsToken}}.Encode())
	select {
	case r := <-w.report:
		if r.Error != "" {
			t.Fatalf("%s\npassed: %q", r.Error, r.Passed)
		}
		t.Logf("passed: %q", r.Passed)
	case <-time.After(2 * time.Minute):
		t.Fatal("the page does not report")
	}
	w.balanced()
}
