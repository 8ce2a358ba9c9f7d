package daemon

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// whole returns a message with what the caller may see of it: without payload for a
// token that may not read it, and with what the configuration masks hidden, unless an
// administrator asks for it, which is logged.
func (a *app) whole(r *http.Request, e *redrive.Entry, who *caller, unmasked bool) (wire.Message, error) {
	m := wire.Whole(e, who.may(config.ScopeReadPayload))
	m.Version = m.Seen()
	k := a.masksOf(e.Queue)
	if k.none() {
		return m, nil
	}
	if unmasked && !m.Hidden {
		if !who.may(config.ScopeAdmin) {
			return m, problem.New(http.StatusForbidden, "scope", "The token may not see what is masked", e.Ref().String(), "use a token with the scope admin")
		}
		a.log.LogAttrs(r.Context(), slog.LevelInfo, "masked message shown unmasked", slog.String("queue", e.Queue), slog.String("id", e.ID), slog.String("actor", who.name))
		return m, nil
	}
	if m.Hidden {
		k.size(&m, &e.Message)
		if m.Original != nil {
			k.size(m.Original, e.Original)
		}
	}
	k.whole(&m)
	m.Checksum = nil // it would tell what is hidden
	if m.Original != nil {
		m.Original.Checksum = nil
	}
	m.Version = m.Seen()
	return m, nil
}

// summary returns an entry as it stands in a list, with what is masked of its error.
func (a *app) summary(e *redrive.Entry) wire.Message {
	m := wire.Summary(e)
	a.masksOf(e.Queue).quoted(&m)
	return m
}

// cause returns a cause as the caller may see it: with what is masked of its error and answer
// hidden, and without values of the answer for a token that may not read payload.
func (a *app) cause(g *driver.Cause, who *caller) wire.Cause {
	shown, k := *g, a.masksOf(g.Queue)
	for _, text := range []*string{&shown.Message, &shown.Type, &shown.Status} {
		*text, _ = k.text(*text)
	}
	shown.Answer, _ = k.answer(g.Answer)
	return wire.CauseOf(&shown, who.may(config.ScopeReadPayload))
}

// writeWhole answers with a message.
func (a *app) writeWhole(w http.ResponseWriter, r *http.Request, e *redrive.Entry, who *caller) error {
	v, err := parameters(r, "unmasked", "wait") // wait is of results
	if err != nil {
		return err
	}
	asked := v.Get("unmasked")
	if asked != "" && asked != "true" && asked != "false" {
		return bad(fmt.Sprintf("unmasked %q", asked), "use true or false")
	}
	m, err := a.whole(r, e, who, asked == "true")
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, m)
}
