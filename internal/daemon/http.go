package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// guarded turns a route into a handler: it identifies the caller, checks what the
// caller may, lets the request end with the caller's token, counts it, bounds the body's
// pace, and answers errors.
func (a *app) guarded(rt route, trusted bool) http.Handler {
	paced := rt.method != http.MethodGet && rt.scope != config.ScopePublish // the gateway does so by itself
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := &everyone
		if l := a.live.Load(); !trusted && l != nil && rt.scope != scopeOpen {
			grant := l.open
			if l.tokens != nil {
				var p *problem.Problem
				if who, p = a.admitted(l, rt, w, r); p != nil {
					gateway.Drain(w, r)
					p.Write(w, r)
					return
				}
				grant = who.grant
				var err error
				if w, r, err = a.count(who, rt, w, r); err != nil {
					a.fail(w, r, err)
					return
				}
			}
			var release func()
			r, release = gateway.Within(grant.ctx, r)
			defer release()
		}
		if paced {
			r.Body = gateway.Pace{}.Body(w, r)
		}
		err := wire.CheckText("path", r.URL.Path) // not every name in it has a validator
		if err == nil {
			err = rt.handle(w, r, who)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

// admitted returns who sends a request, if its token allows it.
func (a *app) admitted(l *live, rt route, w http.ResponseWriter, r *http.Request) (*caller, *problem.Problem) {
	if v, ok := r.Context().Value(visitorKey{}).(visitor); ok { // from a page, which only this process can say
		who, p := l.visiting(v, time.Now())
		if p != nil {
			return nil, p
		}
		return who, permit(who, rt, r)
	}
	who, p := l.tokens.identify(r, time.Now())
	if p != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		a.log.LogAttrs(r.Context(), slog.LevelWarn, "token refused", slog.String("path", r.URL.Path), slog.String("remote", r.RemoteAddr), slog.String("problem", p.Name()))
		return nil, p
	}
	return who, permit(who, rt, r)
}

// count counts a request against the caller's limits: what is published by the message,
// as it is published, anything else as one.
func (a *app) count(who *caller, rt route, w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, error) {
	m := a.meters.of(who)
	if !m.limited() || rt.scope == config.ScopeCall && rt.method == http.MethodGet { // to look for a result is part of the call
		return w, r, nil
	}
	if _, ok := r.Context().Value(visitorKey{}).(visitor); ok && rt.method == http.MethodGet { // one page asks many times
		return w, r, nil
	}
	w = &meteredWriter{ResponseWriter: w, m: m}
	if rt.scope == config.ScopePublish {
		stream := strings.Contains(r.Header.Get("Content-Type"), "ndjson")
		return w, r.WithContext(context.WithValue(r.Context(), meterKey{}, metering{m, stream})), nil
	}
	_, why, err := m.take(r.Context(), 1)
	if err == nil && why != nil {
		err = why
	}
	return w, r, err
}

// permit refuses what the caller's scopes and queues do not include.
func permit(who *caller, rt route, r *http.Request) *problem.Problem {
	if !who.may(rt.scope) {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this",
			fmt.Sprintf("token %s has no scope %s", who.name, rt.scope), "add the scope to the token, or use another")
	}
	if queue := r.PathValue("queue"); queue != "" {
		if err := who.confine(queue); err != nil {
			return problem.Of(err)
		}
	}
	return nil
}

// fail answers with an error. Faults of ours go to the log with the request's id, and so
// does a store that is away, of which one line is left (see outages).
func (a *app) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.Of(err)
	if ended := gateway.Ended(r.Context()); ended != nil && errors.Is(err, context.Canceled) {
		p = ended
	}
	if r.Context().Err() != nil && errors.Is(err, redrive.ErrUnavailable) { // the client has left: its connection was cut
		p, err = problem.Of(context.Canceled), context.Canceled
	}
	if p.Internal() || errors.Is(err, redrive.ErrUnavailable) {
		a.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("request", w.Header().Get(requestIDHeader)),
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("queue", r.PathValue("queue")), slog.Any("error", err))
	}
	gateway.Drain(w, r)
	p.Write(w, r)
}

// unrouted answers what no route takes: with 405 if another method would be taken.
func (a *app) unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	gateway.Drain(w, r)
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem.New(http.StatusMethodNotAllowed, "method", "The method is not allowed here", r.Method, "use "+strings.Join(allowed, " or ")).Write(w, r)
		return
	}
	problem.New(http.StatusNotFound, "no-route", "Not found", "", "the API is below /v1; see /v1/queues").Write(w, r)
}

const requestIDHeader = "X-Request-Id"

// requestIDs numbers requests: unique within the process and, by its start, beyond.
type requestIDs struct {
	prefix string
	n      atomic.Uint64
}

func newRequestIDs() *requestIDs { return &requestIDs{prefix: redrive.NewID()[:18] + "-"} }

func (i *requestIDs) next() string { return i.prefix + strconv.FormatUint(i.n.Add(1), 36) }

// shell is around every request: request id, security headers, panics, and what a
// browser must not do.
func (a *app) shell(next http.Handler, local func(host string) bool) http.Handler {
	ids := newRequestIDs()
	cross := http.NewCrossOriginProtection()
	if c := a.conf(); c != nil && c.Public() != nil { // a proxy may name another host to us than to the browser
		_ = cross.AddTrustedOrigin(c.Public().Scheme + "://" + c.Public().Host) // the configuration's check has read it
	}
	nosniff, policy, referrer := []string{"nosniff"}, []string{"default-src 'none'; frame-ancestors 'none'"}, []string{"no-referrer"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		id := ids.next()
		h[requestIDHeader] = []string{id}
		h["X-Content-Type-Options"] = nosniff
		if a.leaving.Load() {
			h.Set("Connection", "close")
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // what a browser may show
			h["Content-Security-Policy"], h["Referrer-Policy"] = policy, referrer
		}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // net/http has it bare
				panic(v)
			}
			a.log.LogAttrs(r.Context(), slog.LevelError, "request panicked", slog.String("request", id), slog.String("path", r.URL.Path),
				slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			problem.Of(errors.New("panic")).Write(w, r)
		}()
		if !local(r.Host) {
			problem.New(http.StatusMisdirectedRequest, "host", "The daemon does not answer to this host", r.Host,
				"without tokens it answers to localhost and to addresses only, so that no web site can reach it through a browser; configure a token").Write(w, r)
			return
		}
		if err := cross.Check(r); err != nil {
			problem.New(http.StatusForbidden, "cross-origin", "Another origin's page cannot do this", err.Error(), "").Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// anyHost is for servers that ask for tokens, or that only our own processes reach.
func anyHost(string) bool { return true }

// localHost accepts names that no attacker's DNS can point here: localhost and
// addresses, with or without a port.
func localHost(host string) bool {
	name, rest, bracketed := strings.Cut(strings.TrimPrefix(host, "["), "]")
	if !bracketed && strings.Count(name, ":") == 1 {
		name, rest, _ = strings.Cut(name, ":")
		rest = ":" + rest
	}
	if rest != "" && rest[0] != ':' {
		return false
	}
	if name == "" || strings.EqualFold(name, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone if this fails
	return nil
}

// readJSON decodes a body of at most limit bytes into v. An empty body leaves v as
// it is.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if t := r.Header.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return problem.New(http.StatusUnsupportedMediaType, "content-type", "The body is not JSON", "Content-Type: "+t, "send application/json")
		}
	}
	body, err := readAll(w, r, limit)
	if err != nil {
		return err
	}
	if err := gateway.Strict(body); err != nil {
		return notJSON(err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(v); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return notJSON(err)
	case !json.Valid(body):
		return notJSON(errors.New("more than one JSON value"))
	}
	return nil
}

func notJSON(err error) error {
	return problem.New(http.StatusBadRequest, "invalid-json", "The body cannot be read", err.Error(), "")
}

// readAll reads a body of at most limit bytes. What keeps it from being read is the
// client's doing.
func readAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	var p *problem.Problem
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &p):
		return nil, p
	case errors.As(err, &large):
		return nil, problem.New(http.StatusRequestEntityTooLarge, "oversize", "The body is too large", fmt.Sprintf("the limit is %d bytes", limit), "")
	}
	return nil, problem.New(http.StatusBadRequest, "broken-body", "The body broke off", err.Error(), "send it again")
}

// bad is an error in what the caller sent.
func bad(detail, hint string) error {
	return problem.New(http.StatusBadRequest, "invalid", "The request is not valid", detail, hint)
}

// utcNow is the store's clock, or ours if it does not answer: filters by a duration
// need not be exact.
func (a *app) utcNow(r *http.Request) time.Time {
	now, err := a.store.Now(r.Context())
	if err != nil {
		now = time.Now()
	}
	return now.UTC()
}
