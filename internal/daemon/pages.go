//go:build !noui

package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/ui"
)

// withPages puts the dashboard in front of the API.
func (s *Server) withPages(api http.Handler) http.Handler {
	if s.cfg.UI.Off {
		return api
	}
	pages := ui.New(ui.Options{
		API: api, Door: door{s.app}, Logger: s.log, Base: s.cfg.Base(), PublicURL: s.cfg.Public(),
		Environment: s.cfg.Environment, ReadOnly: s.cfg.UI.ReadOnly,
	})
	s.closers.add(pages.Close)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages.Serves(r) {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// door lets people in to the pages, by the tokens in force.
type door struct{ a *app }

// Open implements [ui.Door].
func (d door) Open() bool { return d.a.live.Load().tokens == nil }

// Knock implements [ui.Door].
func (d door) Knock(r *http.Request, secret string) (ui.Ticket, error) {
	l := d.a.live.Load()
	if l.tokens == nil {
		return ui.Ticket{}, nil
	}
	t, p := l.tokens.find(secret, time.Now())
	if p != nil {
		d.a.log.LogAttrs(r.Context(), slog.LevelWarn, "token refused", slog.String("path", r.URL.Path), slog.String("remote", r.RemoteAddr), slog.String("problem", p.Name()))
		return ui.Ticket{}, p
	}
	v := t.visitor()
	return ui.Ticket{ID: v.id, Digest: []byte(v.digest)}, nil
}

// Enter implements [ui.Door].
func (d door) Enter(ctx context.Context, t ui.Ticket) (context.Context, *ui.Caller, error) {
	l, who := d.a.live.Load(), &everyone
	if l.tokens != nil {
		v := visitor{t.ID, string(t.Digest)}
		known, p := l.tokens.known(v, time.Now())
		if p != nil {
			return ctx, nil, p
		}
		who, ctx = known, context.WithValue(ctx, visitorKey{}, v)
	}
	c := &ui.Caller{Name: who.name, Queues: who.queues}
	for _, scope := range config.Scopes() {
		if who.may(scope) {
			c.Scopes = append(c.Scopes, string(scope))
		}
	}
	return ctx, c, nil
}

const (
	uiSpace    = "ui"
	uiKey      = "key"
	uiKeyBytes = 32
)

// Key implements [ui.Door]: the first daemon on a store makes the key.
func (d door) Key(ctx context.Context) ([]byte, error) {
	for {
		record, err := d.a.store.GetRecord(ctx, uiSpace, uiKey)
		if err == nil && len(record.Value) == uiKeyBytes {
			return record.Value, nil
		}
		if err != nil && !errors.Is(err, redrive.ErrNotFound) {
			return nil, err
		}
		key := make([]byte, uiKeyBytes)
		_, _ = rand.Read(key) // it never fails
		write := driver.RecordWrite{Space: uiSpace, Key: uiKey, Value: key, Version: record.Version}
		_, err = d.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{write}})
		if err == nil {
			return key, nil
		}
		if !errors.Is(err, redrive.ErrVersion) { // else another made one meanwhile
			return nil, err
		}
	}
}
