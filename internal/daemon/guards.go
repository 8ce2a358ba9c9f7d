package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/httpguard"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/telemetry"
)

// guardedQueue is a queue whose target is called through a guard.
type guardedQueue struct {
	*guard.Guard[httpguard.Request, httpguard.Response]
	first   *delivery.Handler // of the first endpoint: it knows the headers of a delivery
	repeat  guard.Repeat
	replyTo string

	mu    sync.Mutex
	calls map[string]int64 // by token
}

// count counts a call for its token.
func (q *guardedQueue) count(who *caller) {
	if who != &everyone {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.calls[who.name]++
	}
}

// byToken returns the calls by token.
func (q *guardedQueue) byToken() map[string]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.calls)
}

// Headers of a request that say how it may be put off. They travel with it in the
// queue; the transport drops them, as it does all headers of ours.
const (
	headerRepeat    = headername.Repeat
	headerKey       = headername.Key
	headerReplyTo   = headername.ReplyTo
	headerExpiresAt = headername.ExpiresAt
	headerPublished = headername.Published // it was not called but published: only a 2xx is a success
)

// guardQueue builds the guard of a queue and hands the queue to the engine.
func (s *Server) guardQueue(name string, q *config.Queue) error {
	policies := s.cfg.PoliciesOf(name)
	gq := &guardedQueue{replyTo: q.Guard.ResultQueue(name), calls: make(map[string]int64)}
	gq.repeat, _ = config.Repeats(q.Guard.Repeat)
	a := s.app
	c := guard.Config[httpguard.Request, httpguard.Response]{
		Name: name, Store: &signingStore{a.store, a}, Sink: a.backlog, Shared: q.Guard.IsShared(a.store.Caps()), Instance: a.instance, Logger: s.log,
		Order: q.Guard.EndpointOrder(), Retries: q.Guard.Retries, Failover: float64(q.Guard.Failover), Preset: q.Guard.Preset,
		KeepResults: q.Guard.KeepResults.Std(), Deferral: gq.deferral,
		OnEvent: func(e guard.Event) { a.guardEvents.Observe(&e) },
	}
	c.Health, c.Exit, c.Pace = q.Guard.Rules()
	names, targets := q.Deliver.Targets()
	for i := range targets {
		h, p, err := s.endpoint(names[i], &targets[i], &policies)
		if err != nil {
			return err
		}
		if len(q.Deliver.Endpoints) > 0 {
			p.Burst, p.Weight = q.Deliver.Endpoints[i].Burst, q.Deliver.Endpoints[i].Weight
		} else {
			p.MaxInUse = 0 // the target's concurrency is that of the backlog
		}
		if i == 0 {
			gq.first = h
			a.targets.set(name, h.Target())
		}
		c.Providers = append(c.Providers, p)
	}
	g, err := guard.New(c)
	if err != nil {
		return err
	}
	gq.Guard = g
	a.guards[name] = gq
	o := g.QueueOptions()
	o.Concurrency, o.Policies, o.Target, o.Extractor = q.Deliver.Concurrency, policies, gq.first.Target(), signer{a}
	return a.engine.Handle(name, s.traces.handler(gq), o)
}

// endpoint returns one HTTP target as a provider.
func (s *Server) endpoint(name string, d *config.Deliver, policies *engine.Policies) (*delivery.Handler, guard.Provider[httpguard.Request, httpguard.Response], error) {
	p := guard.Provider[httpguard.Request, httpguard.Response]{Name: name, MaxRate: d.Rate.PerSecond(), MaxInUse: d.Concurrency, Classify: classifyCall}
	target, err := targetOf(d, policies)
	if err != nil {
		return nil, p, err
	}
	target.Concurrency, target.Rate = 0, 0          // the guard keeps them
	p.Timeout = min(target.Timeout, maxCallTimeout) // the caller's connection does not live longer
	h, err := delivery.New(target, delivery.Options{Version: s.o.Version})
	if err != nil {
		return nil, p, err
	}
	s.closers.add(h.Close)
	client := &http.Client{Transport: h.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	call, err := httpguard.Call(client, d.URL)
	if err != nil {
		return nil, p, err
	}
	p.Call = func(ctx context.Context, r httpguard.Request) (httpguard.Response, error) {
		// Whoever may publish chooses body and headers, but not where they go.
		resp, err := call(ctx, httpguard.Request{Method: http.MethodPost, Header: r.Header, Body: r.Body})
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, whose query may be a secret
		}
		if err == nil && r.Header.Get(headerPublished) != "" && resp.Status/100 != 2 {
			err = &delivery.ResponseError{Attempt: delivery.Attempt{Target: h.Target(), Timeout: p.Timeout}, Status: resp.Status}
		}
		return resp, err
	}
	return h, p, nil
}

// maxCallTimeout leaves time to put a call off before its connection ends.
const maxCallTimeout = writeTimeout - 20*time.Second

// classifyCall says what the end of a call means.
func classifyCall(resp httpguard.Response, err error) (guard.Outcome, bool) {
	var refused *delivery.RefusedError
	switch {
	case errors.As(err, &refused):
		return guard.Outcome{Class: guard.ClassTransient, Effect: guard.NoEffect}, true
	case resp.Status != 0:
		return httpguard.Classify(resp, nil)
	}
	return httpguard.Classify(resp, err)
}

// requestOf returns a message as the request that it is delivered with.
func (q *guardedQueue) requestOf(m *redrive.Message) httpguard.Request {
	r := httpguard.Request{Method: http.MethodPost, Header: q.first.Header(&redrive.Delivery{Message: *m}), Body: m.Body}
	r.Header.Del(headername.Attempt) // of the message, not of the call
	return r
}

// deferral says how a request may be put off.
func (q *guardedQueue) deferral(r httpguard.Request) guard.Deferral {
	d := guard.Deferral{ID: r.Header.Get("Webhook-Id"), Key: r.Header.Get(headerKey), Repeat: q.repeat, ReplyTo: q.replyTo}
	if repeat, ok := config.Repeats(r.Header.Get(headerRepeat)); ok && r.Header.Get(headerRepeat) != "" {
		d.Repeat = repeat
	}
	if to := r.Header.Get(headerReplyTo); to != "" {
		d.ReplyTo = to
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header.Get(headerExpiresAt)); err == nil {
		d.TTL = max(time.Until(at), 1)
	}
	return d
}

// refusedAgain is when a message is looked at again that we refused to send, as its
// target is at an address that is not allowed, or a secret is missing.
const refusedAgain = 10 * time.Second

// Handle implements redrive.Handler: for calls that were put off, and for messages that
// were published to the queue.
func (q *guardedQueue) ServeDelivery(ctx context.Context, d *redrive.Delivery) error {
	if d.Kind != "guard."+q.Name() {
		r := q.requestOf(&d.Message)
		r.Header.Set(headerPublished, "1")
		body, err := json.Marshal(r)
		if err != nil {
			return redrive.Permanent(err)
		}
		inner := *d
		inner.Body = body
		d = &inner
	}
	err := q.Guard.ServeDelivery(ctx, d)
	var refused *delivery.RefusedError
	if errors.As(err, &refused) && !errors.Is(err, redrive.ErrUncertain) {
		return redrive.Uncounted(refused, refusedAgain)
	}
	return err
}

// guardOf returns the guard of a queue.
func (a *app) guardOf(queue string) (*guardedQueue, error) {
	if a.engine == nil {
		return nil, notHere("guard")
	}
	if g, ok := a.guards[queue]; ok {
		return g, nil
	}
	p := problem.New(http.StatusNotFound, "guard-not-found", "Guard not found", fmt.Sprintf("queue %q", queue),
		"add guard: to the queue in the configuration; messages are published to /v1/queues/{queue}/messages")
	p.Queues = slices.Sorted(maps.Keys(a.guards))
	return nil, p
}

// describeGuard returns what is shown of a guard.
func (a *app) describeGuard(g *guardedQueue) wire.Guard {
	totals := g.Totals()
	out := wire.Guard{Queue: g.Name(), Providers: []guard.Stats{}, Deferred: totals.Deferred, Failovers: totals.Failovers, Tokens: g.byToken()}
	for _, s := range g.Snapshot() {
		s.Reason = a.shownText(g.Name(), s.Reason) // it may be an error's text
		out.Providers = append(out.Providers, s)
	}
	return out
}

func (a *app) listGuards(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	if a.engine == nil {
		return notHere("guard")
	}
	list := wire.List[wire.Guard]{Items: []wire.Guard{}, Complete: true}
	for _, name := range slices.Sorted(maps.Keys(a.guards)) {
		if who.sees(name) {
			list.Items = append(list.Items, a.describeGuard(a.guards[name]))
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (a *app) showGuard(w http.ResponseWriter, r *http.Request, _ *caller) error {
	g, err := a.guardOf(r.PathValue("queue"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.describeGuard(g))
}

// forceGuard sets the state of one endpoint, or of all.
func (a *app) forceGuard(w http.ResponseWriter, r *http.Request, who *caller) error {
	g, err := a.guardOf(r.PathValue("queue"))
	if err != nil {
		return err
	}
	var req wire.ForceRequest
	if err := readJSON(w, r, 64<<10, &req); err != nil {
		return err
	}
	state, ok := guard.ParseState(req.State)
	if !ok {
		return bad(fmt.Sprintf("state %q", req.State), "use healthy, limited, down, recovering or isolated")
	}
	names := []string{req.Provider}
	if req.Provider == "" {
		names = names[:0]
		for name := range g.Snapshot() {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := g.Force(name, state, req.For.Std()); err != nil {
			return err
		}
		a.log.LogAttrs(r.Context(), slog.LevelInfo, "guard forced", slog.String("guard", g.Name()), slog.String("provider", name),
			slog.String("state", state.String()), slog.Duration("for", req.For.Std()), slog.String("actor", who.name))
	}
	return a.showGuard(w, r, who)
}

// guardReports is what the metrics read of the guards.
func (a *app) guardReports() (all []telemetry.GuardReport) {
	for name, g := range a.guards {
		one := telemetry.GuardReport{Guard: name, Totals: g.Totals(), Tokens: g.byToken()}
		for _, s := range g.Snapshot() {
			one.Providers = append(one.Providers, s)
		}
		all = append(all, one)
	}
	return all
}
