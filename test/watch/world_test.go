// Package watch tries the dashboards and alerts of deploy/ on a real Prometheus that scrapes real
// daemons: under load, and under the faults that the alerts are about.
package watch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/servertest"
)

// redriveBin is the program, which TestMain builds.
var redriveBin string

func TestMain(m *testing.M) { os.Exit(servertest.Main(func() int { return build(m) })) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redrive-watch-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if redriveBin, err = programtest.Build(dir, "redrive"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// debian finds a program of Debian's package prometheus.
func debian(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		servertest.Missing(t, "no "+name+": make deps (Debian: prometheus)")
	}
	return path
}

// daemon is one of ours.
type daemon struct {
	*servertest.Process
	url, addr, file string
}

// token is what daemons with tokens are asked with; others do not look at it.
const token = "rdt_of-this-test"

// tokens is the part of a configuration that asks for it.
var tokens = fmt.Sprintf("tokens: [{name: app, hash: \"sha256:%x\"}]\n", sha256.Sum256([]byte(token)))

func newDaemon(t *testing.T, store, yaml string) *daemon {
	t.Helper()
	d := &daemon{}
	d.file, d.url = programtest.Configure(t, store, yaml)
	d.addr = strings.TrimPrefix(d.url, "http://")
	d.Process = servertest.New(servertest.Command{Name: "daemon", Dir: t.TempDir(), Path: redriveBin, Args: []string{"serve", "--config", d.file}, Patience: time.Minute})
	d.begin(t)
	t.Cleanup(func() {
		if d.Kill(); t.Failed() {
			t.Log(d.Log())
		}
	})
	return d
}

func (d *daemon) begin(t *testing.T) {
	t.Helper()
	if err := d.Start(func() bool { return programtest.Ready(d.url) }); err != nil {
		t.Fatal(err)
	}
}

// send sends a request, and returns the status of the answer.
func (d *daemon) send(ctx context.Context, path, body string, headers ...string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}

// publish publishes to a queue, which must accept it.
func (d *daemon) publish(t *testing.T, queue, body string, headers ...string) {
	t.Helper()
	if status, err := d.send(t.Context(), "/v1/queues/"+queue+"/messages", body, headers...); err != nil || status != http.StatusAccepted {
		t.Fatalf("publish to %s: %d, %v", queue, status, err)
	}
}

// types runs a command line against the daemon.
func (d *daemon) types(t *testing.T, words ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, redriveBin, words...)
	cmd.Env = programtest.Environ("REDRIVE_SERVER=" + d.url)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// target takes deliveries: /QUEUE answers by what the body says.
type target struct {
	*httptest.Server
	mu    sync.Mutex
	tries map[string]int // by id
	spent map[string]int // by provider, since at
	at    time.Time
}

func newTarget(t *testing.T) *target {
	w := &target{tries: make(map[string]int), spent: make(map[string]int)}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

// Bodies that the target answers otherwise than with 200.
const (
	poison   = "poison"
	failsOne = "fails once"
)

// allowed is how many calls a second a provider under /limited/ bears.
const allowed = 5

func (w *target) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := r.Header.Get("Webhook-Id")
	w.tries[id]++
	if now := time.Now(); now.Sub(w.at) > time.Second {
		w.at = now
		clear(w.spent)
	}
	w.spent[r.URL.Path]++
	switch {
	case strings.HasPrefix(r.URL.Path, "/limited/") && w.spent[r.URL.Path] > allowed:
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusTooManyRequests)
	case strings.Contains(string(body), poison):
		rw.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(rw, `{"error":"schema_version is required"}`)
	case strings.Contains(string(body), failsOne) && w.tries[id] == 1:
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

// scrape is what Prometheus looks at. Where a server of the daemon is away, an answer may take
// seconds.
type scrape struct {
	job, addr string
	every     string
}

// server is a Prometheus.
type server struct {
	*servertest.Process
	url string
}

// startPrometheus starts Prometheus with rules, if any.
func startPrometheus(t *testing.T, rules string, scrapes ...scrape) *server {
	t.Helper()
	path := debian(t, "prometheus")
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules*.yaml]\nscrape_configs:\n")
	for _, s := range scrapes {
		fmt.Fprintf(&config, "  - {job_name: %s, scrape_interval: %s, authorization: {credentials: %s}, static_configs: [{targets: [%q]}]}\n", s.job, s.every, token, s.addr)
	}
	for name, text := range map[string]string{"prometheus.yml": config.String(), "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{url: "http://" + port.Addr()}
	s.Process = servertest.New(servertest.Command{Name: "prometheus", Dir: dir, Path: path, Patience: time.Minute,
		Args: []string{"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + port.Addr(), "--log.level=warn"}})
	if err := s.Start(func() bool { return s.ask("/-/ready", nil, nil) == nil }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Kill(); t.Failed() {
			t.Log(s.Log())
		}
	})
	return s
}

// ask reads an answer of Prometheus, of the API's form if there is something to read into.
func (s *server) ask(path string, parameters url.Values, data any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+parameters.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if data == nil {
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, resp.Status)
		}
		return nil
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", parameters.Get("query"), answer.Error)
	}
	return nil
}

// sample is one value of an instant query.
type sample struct {
	Metric map[string]string
	Value  [2]any // a time, and the value as text
}

func (s *sample) value() float64 {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// query asks for something that must be there, and be numbers.
func (s *server) query(expr string) ([]sample, error) {
	var data struct{ Result []sample }
	if err := s.ask("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	if len(data.Result) == 0 {
		return nil, fmt.Errorf("nothing for %s", expr)
	}
	for i := range data.Result {
		if v := data.Result[i].value(); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%v for %s, %v", v, expr, data.Result[i].Metric)
		}
	}
	return data.Result, nil
}
