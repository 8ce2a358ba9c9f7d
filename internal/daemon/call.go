package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/httpguard"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Headers of the answer to a call. One that has headerProvider is a provider's own;
// all else is the daemon's.
const (
	headerProvider = headername.Provider
	headerID       = headername.ID
)

// lookAgain is when a caller should look again for the result of a call that was put off, at the latest.
const lookAgain = 5 * time.Second

// call answers with what a provider answers, or puts the request into the queue.
func (a *app) call(w http.ResponseWriter, r *http.Request, who *caller) error {
	g, err := a.guardOf(r.PathValue("queue"))
	if err != nil {
		return err
	}
	req, id, chosen, err := a.callRequest(w, r, who, g)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if chosen { // it may have been put off before: then it is not sent a second time
		s, err := g.Ticket(id).Poll(ctx)
		if err == nil {
			return a.writeCallStatus(w, g, id, &s)
		}
		if !errors.Is(err, redrive.ErrNotFound) {
			return err
		}
	}
	g.count(who)
	res, err := g.Do(ctx, req)
	w.Header().Set(headerID, id)
	switch {
	case err != nil && res.Provider != "" && res.Value.Status != 0:
		a.log.LogAttrs(ctx, slog.LevelDebug, "call refused", slog.String("guard", g.Name()), slog.String("id", id), slog.Any("error", err))
	case err != nil:
		return a.callProblem(g, id, err)
	}
	if res.Deferred() {
		return a.writeDeferred(w, g, id)
	}
	writeProvided(w, res.Provider, &res.Value)
	return nil
}

// callRequest reads what is to be sent, under which id, and whether the caller chose it.
func (a *app) callRequest(w http.ResponseWriter, r *http.Request, who *caller, g *guardedQueue) (req httpguard.Request, id string, chosen bool, err error) {
	v, err := parameters(r, "repeat")
	if err != nil {
		return req, "", false, err
	}
	m := redrive.Message{Queue: g.Name()}
	if err := gateway.FromHeaders(&m, r.Header); err != nil {
		return req, "", false, problem.New(http.StatusBadRequest, "invalid-header", "A request header is not valid", err.Error(), "")
	}
	if m.Delay != 0 || !m.DeliverAt.IsZero() {
		return req, "", false, bad("a call is made now, so it has no redrive-delay and no redrive-deliver-at", "publish it instead: POST /v1/queues/"+m.Queue+"/messages")
	}
	if m.ReplyTo != "" {
		if strings.Contains(m.ReplyTo, "://") { // whoever may call does not choose where we connect to
			return req, "", false, bad("redrive-reply-to names a queue, not a URL",
				"configure the URL: guard: {result_to: URL} of queue "+m.Queue+", or a queue with deliver: {url: URL}, and name that queue")
		}
		if err := a.mayReply(who, m.ReplyTo); err != nil {
			return req, "", false, err
		}
	}
	if m.Body, err = readAll(w, r, httpguard.MaxBody); err != nil {
		return req, "", false, err
	}
	if chosen = m.ID != ""; !chosen {
		m.ID = redrive.NewID()
	}
	if err := m.Validate(); err != nil {
		return req, "", false, err
	}
	req = g.requestOf(&m)
	if repeat := v.Get("repeat"); repeat != "" {
		if _, ok := config.Repeats(repeat); !ok {
			return req, "", false, bad(fmt.Sprintf("repeat=%s", repeat), "use same, anywhere or never")
		}
		req.Header.Set(headerRepeat, repeat)
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set(headerKey, m.Key)
	set(headerReplyTo, m.ReplyTo)
	if !m.ExpiresAt.IsZero() {
		set(headerExpiresAt, m.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	return req, m.ID, chosen, nil
}

// callProblem says why a call was neither answered nor put off.
func (a *app) callProblem(g *guardedQueue, id string, err error) error {
	a.log.LogAttrs(context.Background(), slog.LevelWarn, "call failed", slog.String("guard", g.Name()), slog.String("id", id), slog.Any("error", err))
	var uncertain *guard.UncertainError
	switch {
	case errors.As(err, &uncertain):
		hint := "ask the provider whether it was carried out; nothing was kept"
		if uncertain.Kept.ID != "" {
			hint = "ask the provider whether it was carried out; if not: redrive dead redrive " + uncertain.Kept.ID + " --queue " + uncertain.Kept.Queue + " --confirm-uncertain"
		}
		return problem.New(http.StatusBadGateway, "uncertain", "The effect of the call is not known", a.shownText(g.Name(), uncertain.Error()), hint)
	case errors.Is(err, guard.ErrNotQueued):
		detail := "the queue could not be written to"
		switch {
		case errors.Is(err, redrive.ErrBacklogged):
			detail = "the queue is above its limit"
		case errors.Is(err, redrive.ErrFull):
			detail = "the store is full"
		case errors.Is(err, redrive.ErrConflict):
			return problem.Of(err)
		}
		_, after := a.backlog.Level(g.Name())
		return problem.New(http.StatusServiceUnavailable, "not-queued", "No provider takes the call, and it could not be put off", detail,
			"nothing was kept; repeat it under the same redrive-id").After(max(after, time.Second))
	case errors.Is(err, guard.ErrUnavailable):
		return problem.New(http.StatusServiceUnavailable, "unavailable", "No provider takes the call now", "", "nothing was kept; repeat it later").After(lookAgain)
	case errors.Is(err, httpguard.ErrTooLarge):
		return problem.New(http.StatusBadGateway, "answer-too-large", "The provider's answer is too large", a.shownText(g.Name(), err.Error()), "the call was carried out; do not repeat it")
	case errors.Is(err, context.Canceled):
		return err
	}
	return problem.New(http.StatusBadGateway, "provider", "The provider could not be called", a.shownText(g.Name(), err.Error()), "")
}

// callResult answers with the later result of a call that was put off.
func (a *app) callResult(w http.ResponseWriter, r *http.Request, _ *caller) error {
	g, err := a.guardOf(r.PathValue("queue"))
	if err != nil {
		return err
	}
	ref, err := refOf(r)
	if err != nil {
		return err
	}
	s, err := g.Ticket(ref.ID).Poll(r.Context())
	if err != nil {
		return err
	}
	return a.writeCallStatus(w, g, ref.ID, &s)
}

func (a *app) writeCallStatus(w http.ResponseWriter, g *guardedQueue, id string, s *guard.Status[httpguard.Response]) error {
	w.Header().Set(headerID, id)
	ref := redrive.Ref{Queue: g.Name(), ID: id}
	why := a.shownText(g.Name(), s.Error)
	switch {
	case s.Done && s.Kept:
		writeProvided(w, s.Provider, &s.Value)
		return nil
	case s.Done:
		return problem.New(http.StatusGone, "result-gone", "The result is no longer kept", ref.String()+": it was carried out", "results are kept for keep_results, if they are not larger than a record")
	case s.State == redrive.StateDead && s.Reason == redrive.ReasonUncertain:
		return problem.New(http.StatusBadGateway, "uncertain", "The effect of the call is not known", ref.String()+": "+why,
			"ask the provider whether it was carried out; if not: redrive dead redrive "+id+" --queue "+g.Name()+" --confirm-uncertain")
	case s.State == redrive.StateDead:
		return problem.New(http.StatusBadGateway, "dead", "The call was given up", fmt.Sprintf("%s is dead (%s): %s", ref, s.Reason, why),
			"it can be redriven: redrive dead redrive "+id+" --queue "+g.Name())
	case s.State == 0:
		return problem.New(http.StatusGone, "dropped", "The call was dropped", fmt.Sprintf("%s: it was not carried out", ref), "")
	}
	setDeferred(w, g, id, min(a.backlog.Wait(g.Name()), lookAgain)) // others may wait behind it
	return writeJSON(w, http.StatusAccepted, wire.CallStatus{Queue: g.Name(), ID: id, State: s.State.String(), Error: why})
}

func setDeferred(w http.ResponseWriter, g *guardedQueue, id string, after time.Duration) {
	h := w.Header()
	h.Set("Location", "/v1/call/"+g.Name()+"/"+id)
	h.Set("Retry-After", fmt.Sprint(int(math.Ceil(after.Seconds()))))
}

// writeDeferred answers a call that was put off.
func (a *app) writeDeferred(w http.ResponseWriter, g *guardedQueue, id string) error {
	setDeferred(w, g, id, a.backlog.Wait(g.Name()))
	return writeJSON(w, http.StatusAccepted, wire.Accepted{Queue: g.Name(), ID: id})
}

// notPassedOn are headers of a provider that belong to its connection, or that would
// make a browser treat its answer, and our origin, otherwise than we want.
var notPassedOn = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Set-Cookie": true, "Set-Cookie2": true, "Clear-Site-Data": true,
	"Content-Security-Policy": true, "Referrer-Policy": true, "X-Content-Type-Options": true, "X-Frame-Options": true, "Refresh": true,
	"Strict-Transport-Security": true, "Alt-Svc": true, "Service-Worker-Allowed": true, "Www-Authenticate": true, requestIDHeader: true,
}

// writeProvided answers with a provider's status, headers and body.
func writeProvided(w http.ResponseWriter, provider string, resp *httpguard.Response) {
	h := w.Header()
	for name, values := range resp.Header {
		name = http.CanonicalHeaderKey(name)
		if !notPassedOn[name] && !strings.HasPrefix(name, "Redrive-") && !strings.HasPrefix(name, "Access-Control-") {
			h[name] = values
		}
	}
	h.Set(headerProvider, provider)
	h.Set("Cache-Control", "no-store")
	if h.Get("Content-Type") == "" {
		h["Content-Type"] = nil // nothing is guessed
	}
	w.WriteHeader(resp.Status)
	// A browser does nothing with it: nosniff and the policy of the shell stand.
	_, _ = bytes.NewReader(resp.Body).WriteTo(w) // the caller is gone if this fails
}
