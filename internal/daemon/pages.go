//go:build !noui

package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/ui"
)

// hasPages is false in a build without the dashboard.
const hasPages = true

// withPages puts the dashboard in front of the API.
func (s *Server) withPages(api http.Handler) http.Handler {
	if s.cfg.UI.Off {
		return api
	}
	pages := ui.New(ui.Options{
		API: api, Door: door{s.app}, Logger: s.log, Base: s.cfg.Base(), Public: func() *url.URL { return s.app.conf().Public() },
		Environment: s.cfg.Environment, ReadOnly: s.cfg.UI.ReadOnly,
	})
	s.closers.add(pages.Close)
	s.streams = append(s.streams, pages.Drain)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages.Serves(r) {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// Pages returns the dashboard, below PREFIX/ui/, for a mux whose own program lets people in.
func (l *LocalAPI) Pages(prefix string) http.Handler {
	a := l.app
	pages := ui.New(ui.Options{API: a.mux(true), Door: door{a}, Logger: a.log, Base: prefix, Public: func() *url.URL { return nil }, Within: true})
	l.closers.add(pages.Close)
	return a.shell(pages, anyHost)
}

// door lets people in to the pages, by the tokens in force.
type door struct{ a *app }

// Open implements [ui.Door].
func (d door) Open() bool {
	l := d.a.live.Load()
	return l == nil || l.tokens == nil
}

// Knock implements [ui.Door].
func (d door) Knock(r *http.Request, secret string) (ui.Ticket, error) {
	l := d.a.live.Load()
	if d.Open() {
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

// Redeem implements [ui.Door].
func (d door) Redeem(r *http.Request, link string) (ui.Ticket, error) {
	of, err := d.a.redeem(r.Context(), link)
	if err != nil {
		d.a.log.LogAttrs(r.Context(), slog.LevelWarn, "login link refused", slog.String("remote", r.RemoteAddr), slog.Any("error", err))
	}
	return ui.Ticket{ID: of.ID, Digest: of.Digest}, err
}

// Vouched implements [ui.Door].
func (d door) Vouched(r *http.Request) (ui.Ticket, bool, error) {
	cfg := d.a.conf()
	if cfg == nil || cfg.UI.TrustedHeader == "" || len(r.Header.Values(cfg.UI.TrustedHeader)) == 0 {
		return ui.Ticket{}, false, nil
	}
	if !cfg.UI.TrustedProxy(r.RemoteAddr) {
		d.a.strangers.note(r.Context(), d.a.log, cfg.UI.TrustedHeader, r.RemoteAddr)
		return ui.Ticket{}, false, nil
	}
	name, p := named(cfg, r)
	if p != nil {
		d.a.log.LogAttrs(r.Context(), slog.LevelWarn, "person refused", slog.String("remote", r.RemoteAddr), slog.String("detail", p.Detail))
		return ui.Ticket{}, false, p
	}
	return ui.Ticket{Person: name}, name != "", nil
}

// Enter implements [ui.Door].
func (d door) Enter(ctx context.Context, t ui.Ticket) (context.Context, *ui.Caller, error) {
	l, who := d.a.live.Load(), &everyone
	ctx = context.WithValue(ctx, viaKey{}, "ui")
	if l != nil && l.tokens != nil {
		v := visitor{t.ID, string(t.Digest), t.Person}
		known, p := l.visiting(v, time.Now())
		if p != nil {
			return ctx, nil, p
		}
		who, ctx = known, context.WithValue(ctx, visitorKey{}, v)
	}
	c := &ui.Caller{Name: who.name, Queues: who.queues, Vouched: t.Person != ""}
	for _, scope := range config.Scopes() {
		if who.may(scope) {
			c.Scopes = append(c.Scopes, string(scope))
		}
	}
	return ctx, c, nil
}

const (
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
