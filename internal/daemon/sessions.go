package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/telemetry"
)

const (
	sessionDrain = 10 * time.Second // for connections at shutdown
	// resultsDepth and resultsBytes bound the results that wait for all sessions
	// together, where the configuration does not say otherwise.
	resultsDepth = 1_000_000
	resultsBytes = 1 << 30
)

// newSessions puts the WebSocket gateway together. It is needed before the engine, whose
// results it hears of.
func (s *Server) newSessions(a *app, store driver.Store, instance string) *ws.Gateway {
	c, masks := s.cfg.WebSocket, a.masking()
	g := ws.New(store, ws.Options{
		Session: session.Options{
			MaxFrame: int(c.MaxFrame), Expires: c.Session.Std(), Instance: instance, Server: "redrive/" + s.o.Version, Masks: &masks,
		},
		Connections: c.Connections, Results: c.Results.Std(), Origins: c.Origins,
		Apply:      func(ctx context.Context, b driver.Batch) ([]error, error) { return a.backlog.Apply(ctx, b) },
		Level:      func(queue string) (driver.Level, time.Duration) { return a.backlog.Level(queue) }, // the limiter is made later
		AllowQueue: a.allowQueue, Accepted: a.metrics.AcceptedBySession, Logger: s.log,
	})
	a.metrics.Registry().MustRegister(telemetry.NewSessions(g.Stats))
	return g
}

// limitsOfResults bounds the system queue of results.
var limitsOfResults = backlog.Limits{Depth: resultsDepth, Bytes: resultsBytes}

// websocket serves a session.
func (a *app) websocket(w http.ResponseWriter, r *http.Request, who *caller) error {
	if a.sessions == nil {
		return notHere("WebSocket gateway")
	}
	a.sessions.Serve(w, r, ws.Caller{
		Name: who.name, Allow: func(queue string) error { return who.confine(queue) }, Apply: a.meteredApply(who),
	})
	return nil
}

// meteredApply counts what a session publishes against the limits of its token; nil if
// there are none. What is above the rate waits, as above a backlog limit.
func (a *app) meteredApply(who *caller) func(context.Context, driver.Batch) ([]error, error) {
	m := a.meters.of(who)
	if !m.limited() {
		return nil
	}
	return func(ctx context.Context, b driver.Batch) ([]error, error) {
		n := len(b.Publish)
		if n == 0 {
			return a.backlog.Apply(ctx, b)
		}
		got, _, err := m.take(ctx, n)
		if err != nil {
			return nil, err
		}
		if got < n {
			m.giveBack(got)
			return nil, redrive.ErrBacklogged
		}
		items, err := a.backlog.Apply(ctx, b)
		switch {
		case err == nil:
			m.giveBack(refused(items))
		case !errors.Is(err, redrive.ErrUnknown):
			m.giveBack(n)
		}
		return items, err
	}
}

// drainSessions lets clients go elsewhere.
func (s *Server) drainSessions() {
	ctx, cancel := context.WithTimeout(context.Background(), sessionDrain)
	defer cancel()
	if err := s.app.sessions.Drain(ctx); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "sessions", slog.Any("error", err))
	}
}

// listSessions lists the sessions of the WebSocket gateway.
func (a *app) listSessions(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	v, err := parameters(r, "after", "limit")
	if err != nil {
		return err
	}
	limit := redrive.DefaultPage
	if text := v.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > redrive.MaxPage {
			return bad("limit "+strconv.Quote(text), "use 1-"+strconv.Itoa(redrive.MaxPage))
		}
	}
	sessions := a.sessions
	if sessions == nil {
		sessions = ws.New(a.store, ws.Options{}) // a look into the store
	}
	infos, err := sessions.Sessions(r.Context(), v.Get("after"), limit)
	if err != nil {
		return err
	}
	list := wire.List[wire.Session]{Items: make([]wire.Session, 0, len(infos)), Complete: true}
	for i := range infos {
		list.Items = append(list.Items, sessionOf(&infos[i]))
	}
	if len(infos) == limit {
		list.Next = infos[limit-1].ID
	}
	return writeJSON(w, http.StatusOK, list)
}

// sessionOf puts what the gateway knows of a session into its wire format.
func sessionOf(in *ws.Info) wire.Session {
	return wire.Session{
		ID: in.ID, Token: in.Owner, Attached: in.Attached, Instance: in.Instance, Remote: in.Remote, Epoch: in.Epoch,
		CreatedAt: in.Created.UTC(), ConnectedAt: in.Connected.UTC(), SeenAt: in.Seen.UTC(), Seq: in.Seq, Limit: in.Limit, Unacked: in.Unacked,
		Outstanding: in.Outstanding, Result: in.Result, Pushed: in.Pushed, Lost: in.Lost,
	}
}
