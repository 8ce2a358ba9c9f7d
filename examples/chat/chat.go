package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	js "github.com/redrive/redrive/clients/js"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/server"
)

//go:embed page
var pages embed.FS

// chat is the gateway for pages, and the API that their messages go to.
type chat struct {
	gateway *server.Sessions
	down    atomic.Bool // the API, by the switch of the page
	mux     *http.ServeMux
}

// serve runs the page, the gateway, the engine and the API until ctx ends.
func serve(ctx context.Context, listener net.Listener, store driver.Store) error {
	c := &chat{gateway: server.NewSessions(store), mux: http.NewServeMux()}
	eng := engine.New(store, engine.Options{Observer: c.gateway})
	target, err := delivery.New(delivery.Target{URL: fmt.Sprintf("http://%s/api/messages", listener.Addr()), AllowPrivate: true}, delivery.Options{})
	if err != nil {
		return err
	}
	defer target.Close()
	// Somebody waits in front of the page: an attempt a second, for an hour.
	policy := redrive.Policy{MaxAttempts: 3600, Backoff: redrive.Fixed{Interval: time.Second}}
	err = eng.Handle("chat", target, engine.QueueOptions{Policies: engine.Policies{Default: policy}})
	if err != nil {
		return err
	}
	if err := c.handlers(); err != nil {
		return err
	}
	site := &http.Server{Handler: c.mux, ReadHeaderTimeout: 5 * time.Second}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 3)
	for _, part := range []func() error{
		func() error { return eng.Run(ctx) },
		func() error { return c.gateway.Run(ctx) },
		func() error { return site.Serve(listener) },
	} {
		go func() {
			defer stop() // one does not go on without the others
			ended <- part()
		}()
	}
	<-ctx.Done()
	err = c.end(site)
	for range cap(ended) {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (c *chat) handlers() error {
	page, err := fs.Sub(pages, "page")
	if err != nil {
		return err
	}
	c.mux.Handle("GET /", http.FileServerFS(page))
	c.mux.Handle("GET /redrive.js", http.FileServerFS(js.FS))
	c.mux.Handle("GET /v1/ws", c.gateway.Handler("page"))
	c.mux.HandleFunc("POST /api/messages", c.answer)
	c.mux.HandleFunc("GET /switch", c.state)
	c.mux.HandleFunc("POST /switch", func(w http.ResponseWriter, r *http.Request) {
		c.down.Store(r.FormValue("api") == "down")
		c.state(w, r)
	})
	return nil
}

// answer is the API: it answers what was written.
func (c *chat) answer(w http.ResponseWriter, r *http.Request) {
	if c.down.Load() {
		http.Error(w, "the API is down", http.StatusServiceUnavailable)
		return
	}
	var message struct{ Text string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, map[string]string{"reply": "You wrote: " + message.Text})
}

// state tells whether the API is down.
func (c *chat) state(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]bool{"down": c.down.Load()})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(http.ErrAbortHandler) // whoever asked went away
	}
}
