package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/config"
	"github.com/redrive/redrive/gateway/problem"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/server/api"
)

// whole returns a message with what the caller may see of it: without payload for a
// token that may not read it, and with what the configuration masks hidden, unless an
// administrator asks for it, which is logged.
func (a *app) whole(r *http.Request, e *redrive.Entry, who *caller, unmasked bool) (api.Message, error) {
	m := api.Whole(e, who.may(config.ScopeReadPayload))
	cfg := a.conf()
	if m.Hidden || cfg == nil {
		return m, nil
	}
	paths, headers := cfg.MasksOf(e.Queue)
	if len(paths) == 0 && len(headers) == 0 {
		return m, nil
	}
	if unmasked {
		if !who.may(config.ScopeAdmin) {
			return m, problem.New(http.StatusForbidden, "scope", "The token may not see what is masked", e.Ref().String(), "use a token with the scope admin")
		}
		a.log.LogAttrs(r.Context(), slog.LevelInfo, "a masked message was shown whole", slog.String("queue", e.Queue), slog.String("id", e.ID), slog.String("actor", who.name))
		return m, nil
	}
	hideParts(&m, paths, headers)
	if m.Original != nil {
		hideParts(m.Original, paths, headers)
		m.Masked = m.Masked || m.Original.Masked
	}
	return m, nil
}

// hideParts masks a message. A body that is not JSON is hidden whole, as nobody knows
// what is in it.
func hideParts(m *api.Message, paths []jsonmask.Path, headers []string) {
	for i := range m.Headers {
		for _, name := range headers {
			if strings.EqualFold(name, m.Headers[i].Name) {
				m.Headers[i].Value, m.Masked = []byte("***"), true
			}
		}
	}
	if len(paths) == 0 || len(m.Bytes()) == 0 {
		return
	}
	body, hit, err := jsonmask.Apply(m.Bytes(), paths)
	switch {
	case err != nil:
		text := "***"
		m.Body, m.BodyBase64, m.Masked = &text, nil, true
	case hit:
		text := string(body)
		m.Body, m.BodyBase64, m.Masked = &text, nil, true
	}
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
