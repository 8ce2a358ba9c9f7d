package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// whole returns a message with what the caller may see of it: without payload for a
// token that may not read it, and with what the configuration masks hidden, unless an
// administrator asks for it, which is logged.
func (a *app) whole(r *http.Request, e *redrive.Entry, who *caller, unmasked bool) (wire.Message, error) {
	m := wire.Whole(e, who.may(config.ScopeReadPayload))
	paths, headers := a.masksOf(e.Queue)
	if len(paths) == 0 && len(headers) == 0 {
		return m, nil
	}
	if unmasked && !m.Hidden {
		if !who.may(config.ScopeAdmin) {
			return m, problem.New(http.StatusForbidden, "scope", "The token may not see what is masked", e.Ref().String(), "use a token with the scope admin")
		}
		a.log.LogAttrs(r.Context(), slog.LevelInfo, "a masked message was shown whole", slog.String("queue", e.Queue), slog.String("id", e.ID), slog.String("actor", who.name))
		return m, nil
	}
	hideParts(&m, paths, headers)
	hideQuoted(&m, paths)
	if m.Original != nil {
		hideParts(m.Original, paths, headers)
		m.Masked = m.Masked || m.Original.Masked
	}
	return m, nil
}

// hideParts masks headers and body of a message.
func hideParts(m *wire.Message, paths []jsonmask.Path, headers []string) {
	for i := range m.Headers {
		if hidesHeader(headers, m.Headers[i].Name) {
			m.Headers[i].Value, m.Masked = []byte(jsonmask.Hidden), true
		}
	}
	if body, hit := maskBody(m.Bytes(), paths); hit {
		text := string(body)
		m.Body, m.BodyBase64, m.Masked = &text, nil, true
	}
}

// hidesHeader reports whether the value of a header is masked.
func hidesHeader(masked []string, name string) bool {
	return slices.ContainsFunc(masked, func(m string) bool { return strings.EqualFold(m, name) })
}

// maskBody returns a body as it shows, and whether anything of it is hidden. One that is
// not JSON is hidden whole, as nobody knows what is in it.
func maskBody(body []byte, paths []jsonmask.Path) (shown []byte, hit bool) {
	if len(paths) == 0 || len(body) == 0 {
		return body, false
	}
	shown, hit, err := jsonmask.Apply(body, paths)
	if err != nil {
		return []byte(jsonmask.Hidden), true
	}
	return shown, hit
}

// masksOf returns what is hidden of a queue's messages.
func (a *app) masksOf(queue string) ([]jsonmask.Path, []string) {
	cfg := a.conf()
	if cfg == nil {
		return nil, nil
	}
	return cfg.MasksOf(queue)
}

// hideQuoted masks what failures quote of bodies and of answers.
func hideQuoted(m *wire.Message, paths []jsonmask.Path) {
	if len(paths) == 0 {
		return
	}
	hide := func(text *string) {
		masked, hit := jsonmask.Text(*text, paths)
		*text, m.Masked = masked, m.Masked || hit
	}
	hide(&m.Error)
	if m.History == nil {
		return
	}
	for _, f := range []*wire.Failure{m.History.First, m.History.Last} {
		if f == nil {
			continue
		}
		hide(&f.Message)
		hide(&f.Stack)
		details := maps.Clone(f.Details) // the store may share its own
		for name, text := range details {
			if name == delivery.DetailResponse && !json.Valid([]byte(text)) {
				text, m.Masked = jsonmask.Hidden, true // as a body that is not JSON
			}
			hide(&text)
			details[name] = text
		}
		f.Details = details
	}
}

// summary returns an entry as it stands in a list, with what is masked of its error.
func (a *app) summary(e *redrive.Entry) wire.Message {
	m := wire.Summary(e)
	paths, _ := a.masksOf(e.Queue)
	hideQuoted(&m, paths)
	return m
}

// cause returns a cause, with what is masked of its error.
func (a *app) cause(g *driver.Cause) wire.Cause {
	out := wire.CauseOf(g)
	if paths, _ := a.masksOf(g.Queue); len(paths) > 0 {
		out.Message, _ = jsonmask.Text(out.Message, paths)
	}
	return out
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
