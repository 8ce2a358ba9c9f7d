package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Records of the pages.
const uiSpace = "ui"

// A login link is good once, and so long. What the store keeps of it is its hash, and who it lets in.
const (
	linkFor   = time.Minute
	linkBytes = 32
)

// linked is whom a link lets in.
type linked struct {
	ID     string `json:"id"`
	Digest []byte `json:"digest"`
}

// createLogin makes a link that logs its caller in to the pages.
func (a *app) createLogin(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	l := a.live.Load()
	switch {
	case l == nil:
		return notHere("login")
	case l.config.UI.Off || !hasPages:
		return problem.New(http.StatusNotImplemented, "no-pages", "There are no pages", "ui: {off: true} in the configuration, or a build without them", "")
	}
	to := a.pagesURL(l, r)
	if l.tokens == nil {
		to.Path += "/ui/"
		return writeJSON(w, http.StatusCreated, wire.Login{URL: to.String()})
	}
	of := visitor{digest: l.local} // who opened the socket
	if who != &everyone {
		all := l.tokens.all()
		i := slices.IndexFunc(all, func(t *token) bool { return &t.caller == who })
		if i < 0 {
			return tokenMissing()
		}
		of = all[i].visitor()
	}
	code := make([]byte, linkBytes)
	_, _ = rand.Read(code) // it never fails
	value, err := json.Marshal(linked{of.id, []byte(of.digest)})
	if err != nil {
		return err
	}
	write := driver.RecordWrite{Space: uiSpace, Key: linkKey(code), Value: value, Expires: linkFor}
	if _, err := a.store.Apply(r.Context(), driver.Batch{Records: []driver.RecordWrite{write}}); err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "login link made", slog.String("actor", who.name), slog.String("remote", r.RemoteAddr))
	to.Path += "/ui/login"
	to.RawQuery = url.Values{"link": {base64.RawURLEncoding.EncodeToString(code)}}.Encode()
	expires := a.utcNow(r).Add(linkFor)
	return writeJSON(w, http.StatusCreated, wire.Login{URL: to.String(), Expires: &expires})
}

func linkKey(code []byte) string {
	sum := sha256.Sum256(code)
	return "link-" + hex.EncodeToString(sum[:16])
}

// pagesURL is where a browser reaches the pages: public_url, or else as the caller came, or by the
// address that is listened on.
func (a *app) pagesURL(l *live, r *http.Request) *url.URL {
	if public := l.config.Public(); public != nil {
		return &url.URL{Scheme: public.Scheme, Host: public.Host, Path: l.config.Base()}
	}
	to := &url.URL{Scheme: "http", Host: l.config.Listen, Path: l.config.Base()}
	if !l.config.TLS.IsZero() {
		to.Scheme = "https"
	}
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "tcp" {
		to.Host = r.Host
	}
	return to
}

// redeem ends a link, and returns whom it lets in.
func (a *app) redeem(ctx context.Context, text string) (linked, error) {
	over := problem.New(http.StatusUnauthorized, "link-over", "The link is over", "it is good once, and for a minute", "make another: redrive ui")
	code, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(code) != linkBytes {
		return linked{}, over
	}
	record, err := a.store.GetRecord(ctx, uiSpace, linkKey(code))
	if errors.Is(err, redrive.ErrNotFound) {
		return linked{}, over
	}
	if err != nil {
		return linked{}, err
	}
	_, err = a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: uiSpace, Key: linkKey(code), Version: record.Version}}})
	if errors.Is(err, redrive.ErrVersion) { // another was quicker
		return linked{}, over
	}
	var of linked
	if err == nil {
		err = json.Unmarshal(record.Value, &of)
	}
	return of, err
}
