package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
)

// daemon is a running server of a test.
type rig struct {
	t     *testing.T
	base  string
	store driver.Store
	log   *lockedBuffer
	stop  context.CancelFunc
	ended chan error
	token string
	http  *http.Client
}

// lockedBuffer collects the log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// parse reads a configuration.
func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	c.Listen = "127.0.0.1:0"
	return c
}

// start runs a daemon with a configuration over a store, or over the one that the
// configuration names.
func start(t *testing.T, cfg *config.Config, store driver.Store) *rig {
	t.Helper()
	return startWith(t, cfg, store, func(*daemon.Options) {})
}

// startWith is start with further options.
func startWith(t *testing.T, cfg *config.Config, store driver.Store, further func(*daemon.Options)) *rig {
	t.Helper()
	d := &rig{t: t, store: store, log: new(lockedBuffer), ended: make(chan error, 1), http: &http.Client{}}
	addr := make(chan net.Addr, 1)
	o := daemon.Options{
		Store: store, Version: "test", Started: func(a net.Addr) { addr <- a },
		Logger: slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	further(&o)
	s, err := daemon.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() { d.ended <- s.Run(ctx) }()
	select {
	case a := <-addr:
		d.base = "http://" + a.String()
	case err := <-d.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.shutdown()
		if t.Failed() {
			t.Log(d.log.String())
		}
	})
	return d
}

// shutdown ends the daemon; it may be called twice.
func (d *rig) shutdown() {
	d.stop()
	if err, ok := <-d.ended; ok {
		close(d.ended)
		if err != nil {
			d.t.Errorf("the daemon ended with: %v", err)
		}
	}
	d.http.CloseIdleConnections()
}

// newStore opens a store as the daemon has it.
func newStore(t *testing.T) driver.Store {
	t.Helper()
	s, err := sqlite.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventMedia is the content type of an answer without an end.
const eventMedia = "text/event-stream"

// send asks the daemon, with headers as pairs. An answer without an end is not read.
func (d *rig) send(method, path, body string, headers ...string) (*http.Response, []byte) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == eventMedia {
		return resp, nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, b
}

// get decodes an answer that must have the status.
func get[T any](d *rig, status int, method, path, body string, headers ...string) (v T) {
	d.t.Helper()
	resp, b := d.send(method, path, body, headers...)
	if resp.StatusCode != status {
		d.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		d.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
	return v
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

// refused checks that a request is answered with a whole problem.
func (d *rig) refused(status int, name, method, path, body string, headers ...string) *problem.Problem {
	d.t.Helper()
	resp, b := d.send(method, path, body, headers...)
	var p problem.Problem
	if err := json.Unmarshal(b, &p); err != nil || resp.Header.Get("Content-Type") != problem.ContentType {
		d.t.Fatalf("%s %s: %d, not a problem: %s", method, path, resp.StatusCode, b)
	}
	if resp.StatusCode != status || p.Status != status || p.Name() != name || p.Title == "" || p.Instance == "" {
		d.t.Errorf("%s %s: %d %+v; want %d %s", method, path, resp.StatusCode, p, status, name)
	}
	return &p
}

// eventually polls, as what is waited for happens in real connections.
func (d *rig) eventually(what string, done func() bool) {
	d.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if done() {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("it did not come to pass: %s", what)
		}
	}
}

// receiver answers deliveries by what the test says, 200 by default.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []string
	answer func(body string) int
}

func newReceiver(t *testing.T, answer func(body string) int) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, string(b))
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			w.WriteHeader(answer(string(b)))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = nil
}

func (r *receiver) received() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// newPipe is a body that the test sends piece by piece.
func newPipe(t *testing.T) (io.Reader, func(string)) {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r, func(s string) { _, _ = io.WriteString(w, s) }
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
