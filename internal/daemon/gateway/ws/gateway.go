// Package ws serves the protocol redrive.v1.json over WebSocket: connections around the
// machines of package session, with a store behind them. One goroutine reads a connection;
// a second one exists only while there is something to write.
package ws

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wsproto"
	"github.com/redrive/redrive/telemetry"
)

// Options configures a [Gateway]. Every field has a default.
type Options struct {
	// Session holds the limits of sessions.
	Session session.Options
	// Connections is how many may be open at once. Defaults to 16,384.
	Connections int
	// Results is how long a result waits to be acknowledged. Defaults to 24 h.
	Results time.Duration
	// Origins are those of pages that may connect beside the server's own: as
	// "https://app.example.com", or "null" for pages without one.
	Origins []string
	// Apply is the store's, best with backlog limits in front ([backlog.Limiter.Apply]).
	Apply func(ctx context.Context, b driver.Batch) ([]error, error)
	// Level tells how full a queue is. Defaults to never full.
	Level func(queue string) (driver.Level, time.Duration)
	// AllowQueue refuses queues, best with a [problem.Problem]. Defaults to allowing
	// every valid name.
	AllowQueue func(queue string) error
	// Accepted receives that n messages were made durable. Optional.
	Accepted func(n int)
	// Logger defaults to [slog.Default].
	Logger *slog.Logger

	// tick is how often connections are looked at, slow how long a frame may take to be
	// written; tests make them short.
	tick, slow time.Duration
	// inject is called at places by tests, to panic there.
	inject func(place string)
}

// Caller is who connects. Its functions are optional. What allows it is the life within
// which the request of the handshake is made: see [gateway.Within].
type Caller struct {
	Name  string                   // of the token; sessions belong to it
	Allow func(queue string) error // refuses queues
	// Apply is used instead of that of the options.
	Apply func(ctx context.Context, b driver.Batch) ([]error, error)
}

// Gateway serves WebSocket connections. It is safe for concurrent use.
type Gateway struct {
	store driver.Store
	o     Options
	stats counters

	base   context.Context //nolint:containedctx // of writes to the store: it ends with Close
	cancel context.CancelFunc

	mu       sync.RWMutex
	draining bool
	conns    map[*conn]struct{}
	named    map[string]*conn // by session
	working  sync.WaitGroup   // connections
	hinted   atomic.Int64     // results of this process, that were announced to sessions
}

type counters struct {
	opened, resumed, gaps, published, refused, pushed, expired atomic.Int64

	mu     sync.Mutex
	closed map[wsproto.Code]int64
}

func (c *counters) close(code wsproto.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed[code]++
}

// New returns a gateway over a store. Nothing works in the background before
// [Gateway.Run].
func New(store driver.Store, o Options) *Gateway {
	if o.Connections <= 0 {
		o.Connections = 16_384
	}
	if o.Results <= 0 {
		o.Results = 24 * time.Hour
	}
	if o.Apply == nil {
		o.Apply = store.Apply
	}
	if o.Level == nil {
		o.Level = func(string) (driver.Level, time.Duration) { return driver.LevelOK, 0 }
	}
	if o.AllowQueue == nil {
		o.AllowQueue = func(string) error { return nil }
	}
	if o.Accepted == nil {
		o.Accepted = func(int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Session.Instance == "" {
		o.Session.Instance = redrive.NewID()
	}
	if o.tick <= 0 {
		o.tick = time.Second
	}
	if o.slow <= 0 {
		o.slow = slowWrite
	}
	if o.inject == nil {
		o.inject = func(string) {}
	}
	o.Session.SetDefaults()
	g := &Gateway{store: store, o: o, conns: make(map[*conn]struct{}), named: make(map[string]*conn)}
	g.stats.closed = make(map[wsproto.Code]int64)
	g.base, g.cancel = context.WithCancel(context.Background())
	return g
}

// Stats returns what happened since the start.
func (g *Gateway) Stats() telemetry.SessionStats {
	g.mu.RLock()
	connected := int64(len(g.conns))
	g.mu.RUnlock()
	c := &g.stats
	s := telemetry.SessionStats{
		Connected: connected, Opened: c.opened.Load(), Resumed: c.resumed.Load(), Gaps: c.gaps.Load(), Published: c.published.Load(),
		Refused: c.refused.Load(), Pushed: c.pushed.Load(), Expired: c.expired.Load(), Closed: make(map[int]int64),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for code, n := range c.closed {
		s.Closed[int(code)] = n
	}
	return s
}

// Serve answers a handshake and then serves the connection, until it ends.
func (g *Gateway) Serve(w http.ResponseWriter, r *http.Request, who Caller) {
	if p := g.admit(r); p != nil {
		if p.Status == http.StatusUpgradeRequired {
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Connection", "Upgrade")
		}
		p.Write(w, r)
		return
	}
	c := &conn{g: g, who: who, remote: r.RemoteAddr}
	if c.who.Apply == nil {
		c.who.Apply = g.o.Apply
	}
	c.room.L = &c.mu
	if p := g.enter(c); p != nil {
		p.Write(w, r)
		return
	}
	defer g.leave(c)
	c.heard()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{wsproto.Subprotocol}, InsecureSkipVerify: true, // admit has looked at the origin
		OnPingReceived: func(context.Context, []byte) bool { c.heard(); return true },
		OnPongReceived: func(context.Context, []byte) { c.heard() },
	})
	if err != nil {
		g.o.Logger.LogAttrs(r.Context(), slog.LevelDebug, "websocket handshake", slog.Any("error", err))
		return
	}
	c.ws.Store(ws)
	stop := context.AfterFunc(r.Context(), func() {
		if p := gateway.Ended(r.Context()); p != nil {
			c.end(closeOf(p))
		}
	})
	defer stop()
	c.serve()
}

// closeOf returns how a connection ends whose token is over. One that lost a right may
// come back.
func closeOf(p *problem.Problem) *session.Close {
	if p.Status == http.StatusUnauthorized {
		return session.NewClose(wsproto.CodeToken, "token", "%s", p.Title)
	}
	why := session.NewClose(wsproto.CodeRestart, "restart", "%s", p.Title)
	why.Barred = true // what it may still see, it sees by its next connection
	return why
}

// admit checks a handshake before it is answered.
func (g *Gateway) admit(r *http.Request) *problem.Problem {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return problem.New(http.StatusUpgradeRequired, "upgrade", "This is a WebSocket endpoint", "", "connect with the subprotocol "+wsproto.Subprotocol+"; see docs/websocket.md")
	}
	if origin := r.Header.Get("Origin"); origin != "" && !g.allowsOrigin(origin, r.Host) {
		return problem.New(http.StatusForbidden, "cross-origin", "Pages of this origin may not connect", origin, "add it under websocket: origins: in the configuration")
	}
	if !slices.Contains(Subprotocols(r), wsproto.Subprotocol) {
		return problem.New(http.StatusBadRequest, "subprotocol", "The subprotocol is not offered", strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ", "), "offer "+wsproto.Subprotocol)
	}
	return nil
}

func (g *Gateway) allowsOrigin(origin, host string) bool {
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, host) {
		return true
	}
	return slices.ContainsFunc(g.o.Origins, func(o string) bool { return strings.EqualFold(o, origin) })
}

// Subprotocols returns the subprotocols that a handshake offers.
func Subprotocols(r *http.Request) (names []string) {
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// Bearer returns the token that a browser sent as a subprotocol.
func Bearer(r *http.Request) (token string, ok bool) {
	for _, name := range Subprotocols(r) {
		if token, ok := session.DecodeBearer(name); ok {
			return token, true
		}
	}
	return "", false
}

func (g *Gateway) enter(c *conn) *problem.Problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return problem.Of(redrive.ErrClosed)
	}
	if len(g.conns) >= g.o.Connections {
		return problem.New(http.StatusServiceUnavailable, "too-many-sessions", "Too many connections are open", "", "repeat after the time in Retry-After").After(5 * time.Second)
	}
	g.conns[c] = struct{}{}
	g.working.Add(1)
	return nil
}

func (g *Gateway) leave(c *conn) {
	g.mu.Lock()
	delete(g.conns, c)
	if name := c.session; g.named[name] == c {
		delete(g.named, name)
	}
	g.mu.Unlock()
	g.working.Done()
}

// name makes a connection known as that of its session. The one before, if it is still
// there, will find at its next write that it is not the session's any more; it is informed
// at once.
func (g *Gateway) name(c *conn, session string) {
	g.mu.Lock()
	before := g.named[session]
	c.session = session
	g.named[session] = c
	g.mu.Unlock()
	if before != nil && before != c {
		before.superseded()
	}
}

func (g *Gateway) bySession(name string) *conn {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.named[name]
}

func (g *Gateway) each(f func(*conn)) {
	g.mu.RLock()
	all := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		all = append(all, c)
	}
	g.mu.RUnlock()
	for _, c := range all {
		f(c)
	}
}

// Observe implements [engine.Observer]: it learns which sessions have new results.
func (g *Gateway) Observe(o *engine.Observation) {
	if o.Occasion != engine.OnSettled || o.Settlement == nil {
		return
	}
	for i := range o.Settlement.Emit {
		m := &o.Settlement.Emit[i]
		if m.Queue != driver.ResultQueue {
			continue
		}
		g.hinted.Add(1)
		if c := g.bySession(m.Key); c != nil {
			c.stale()
		}
	}
}

var _ engine.Observer = (*Gateway)(nil)

// Drain closes every connection with "restart" after what is being written, and refuses
// new ones. It returns when they have ended, or ctx does.
func (g *Gateway) Drain(ctx context.Context) error {
	g.mu.Lock()
	g.draining = true
	g.mu.Unlock()
	g.each(func(c *conn) { c.end(session.NewClose(wsproto.CodeRestart, "restart", "reconnect and resume")) })
	done := make(chan struct{})
	go func() { g.working.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	g.cancel()
	g.each(func(c *conn) {
		if ws := c.ws.Load(); ws != nil {
			_ = ws.CloseNow() // it had its time
		}
	})
	return errors.New("connections were cut off")
}
