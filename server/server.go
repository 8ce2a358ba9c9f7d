// Package server offers the daemon's HTTP API, its dashboard and its WebSocket sessions as handlers
// for a mux of your own. The daemon itself is the command redrive.
package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
)

// Options configures an [API]. Every field has a default.
type Options struct {
	// Archive takes dead letters that are archived. Without it that is refused.
	Archive deadletter.Archiver
	// Logger gets what goes wrong behind the API. Defaults to [slog.Default].
	Logger *slog.Logger
}

// API is the HTTP API (/v1/...) over a store that this process has opened: publishing,
// queues, messages, dead letters and plans, which are carried out while it is open. It
// delivers nothing; an engine does. It asks for no token, so whoever reaches it may do
// everything: put your own authentication in front of it. It is safe for concurrent use.
type API struct{ local *daemon.LocalAPI }

// New returns the API over a store. Close it before the store.
func New(store driver.Store, o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &API{daemon.Local(store, o.Archive, o.Logger)}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.local.ServeHTTP(w, r) }

// Pages returns the dashboard for a mux of your own: with the prefix "/ops" it is at /ops/ui/, so
// handle "/ops/" with it, and /ops leads there. Its pages do whatever the API does, for whoever your
// program lets reach them, and the audit log names them all "local". Built with -tags noui it has no pages.
func (a *API) Pages(prefix string) http.Handler { return a.local.Pages(prefix) }

// Close ends what runs behind the API, after the step it is at.
func (a *API) Close() { a.local.Close() }

// Sessions serves WebSocket sessions: pages and programs publish over them, and get the
// results of their messages, also after they were disconnected. docs/websocket.md
// describes the protocol; package client and clients/js speak it. It is safe for
// concurrent use.
type Sessions struct{ gateway *ws.Gateway }

// NewSessions returns sessions over a store. [Sessions.Run] must be running, and the
// engine that works on the queues must have it as an observer. Troubles go to [slog.Default].
func NewSessions(store driver.Store) *Sessions {
	return &Sessions{ws.New(store, ws.Options{})}
}

// Handler serves connections of whoever the name stands for: a session belongs to the
// name under which it was opened, and no other name can resume it. Authenticate in front
// of it.
func (s *Sessions) Handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.gateway.Serve(w, r, ws.Caller{Name: name}) })
}

// Observe implements engine.Observer.
func (s *Sessions) Observe(o *engine.Observation) { s.gateway.Observe(o) }

// Run pushes results until ctx ends.
func (s *Sessions) Run(ctx context.Context) error { return s.gateway.Run(ctx) }

// Drain ends all connections; their sessions can be resumed elsewhere. It returns when
// what they published is acknowledged, or ctx ends.
func (s *Sessions) Drain(ctx context.Context) error { return s.gateway.Drain(ctx) }

var _ engine.Observer = (*Sessions)(nil)
