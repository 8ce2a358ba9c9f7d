package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/internal/browsertest"
)

// start serves the chat at an address, from a folder, until stop is called.
func start(t *testing.T, address, data string) (at string, stop func()) {
	t.Helper()
	store, err := sqlite.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, store) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func turn(t *testing.T, at, api string) {
	t.Helper()
	resp, err := http.PostForm("http://"+at+"/switch", url.Values{"api": {api}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct{ Down bool }
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || state.Down != (api == "down") {
		t.Fatalf("%+v, %v", state, err)
	}
}

// TestTheAPIReturns: what was written while the API was down is answered when it is
// back, although the program was started anew in between.
func TestTheAPIReturns(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	at, stop := start(t, "127.0.0.1:0", data)
	turn(t, at, "down")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := make(chan *client.Result, 1)
	c, err := client.Dial(ctx, "ws://"+at+"/v1/ws", client.Options{OnResult: func(r *client.Result) { results <- r }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Publish(ctx, &client.Message{Queue: "chat", ID: "one", Body: []byte(`{"text":"hello"}`)}); err != nil {
		t.Fatal(err)
	}
	stop()
	if len(results) > 0 {
		t.Fatalf("an answer although the API is down: %+v", <-results)
	}
	start(t, at, data) // its API is up
	select {
	case r := <-results:
		if r.ID != "one" || !r.Done() || !strings.Contains(string(r.Body), `"You wrote: hello"`) {
			t.Errorf("%+v %s", r, r.Body)
		}
	case <-ctx.Done():
		t.Fatal("no answer came")
	}
}

// TestThePage uses the page in a browser: the API goes down, the page is reloaded, the
// API returns. What is written looks like HTML, and is not taken for it.
func TestThePage(t *testing.T) {
	at, stop := start(t, "127.0.0.1:0", filepath.Join(t.TempDir(), "data"))
	report := make(chan string, 1)
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: at}))
	mux.HandleFunc("GET /driver", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "driver_test.html") })
	mux.HandleFunc("POST /report", func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		report <- string(text)
	})
	front := httptest.NewServer(mux)
	defer front.Close()
	defer stop() // first, as the pages' connections go through the front
	browsertest.Open(t, front.URL+"/driver")
	select {
	case text := <-report:
		if text != "" {
			t.Fatal(text)
		}
	case <-time.After(time.Minute):
		t.Fatal("the page does not report")
	}
}
