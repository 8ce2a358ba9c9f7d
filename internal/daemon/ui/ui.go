// Package ui is the dashboard: pages of HTML over the HTTP API, without a build step and
// usable without JavaScript.
//
// A page is a client of /v1 in the same process: what it shows was answered by the API to
// its reader's token, and what it changes is a request to the API. So scopes, queues, masks,
// limits, errors and the audit log are those of /v1, and there is nothing here to keep in
// step with them. /v1 itself never takes a cookie.
package ui

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/problem"
)

// Ticket names a token without holding it. It is what a session keeps.
type Ticket struct {
	ID     string `json:"id"`     // of the token, or its name where it has no id
	Digest []byte `json:"digest"` // the first bytes of its hash: another secret under the same id is another ticket
	// Person is whom a trusted proxy let in, with this request only: no session has it.
	Person string `json:"-"`
}

// Caller is who looks at a page.
type Caller struct {
	Name   string
	Scopes []string // with all that they imply
	Queues []string // patterns that it is confined to; none: all queues
	// Vouched is true of a person whom a trusted proxy let in, who cannot log out here.
	Vouched bool
}

// May reports whether the caller has a scope.
func (c *Caller) May(scope string) bool { return slices.Contains(c.Scopes, scope) }

// confined reports that the caller cannot ask about all queues at once.
func (c *Caller) confined() bool { return len(c.Queues) > 0 && !slices.Contains(c.Queues, "*") }

// Door lets callers in. Its errors are a [problem.Problem].
type Door interface {
	// Open reports that no token is asked for.
	Open() bool
	// Knock returns the ticket of a token that is known and has not expired.
	Knock(r *http.Request, token string) (Ticket, error)
	// Redeem ends a link that logs somebody in, and returns the ticket of who made it.
	Redeem(r *http.Request, link string) (Ticket, error)
	// Vouched returns the ticket of the person whom a trusted proxy says a request is of, if it
	// says so. What others than the proxy say is ignored.
	Vouched(r *http.Request) (Ticket, bool, error)
	// Enter returns a context with which the API takes a request for one of the ticket's
	// caller, and who that is. It fails when the token is there no more or is another. While
	// the door is open the zero ticket enters.
	Enter(ctx context.Context, t Ticket) (context.Context, *Caller, error)
	// Hold returns the request with a context that ends when the ticket does, at once. release is
	// called when the request is answered.
	Hold(r *http.Request, t Ticket) (held *http.Request, release func())
	// Key returns 32 secret bytes, the same in all daemons of a store.
	Key(ctx context.Context) ([]byte, error)
}

// Options configures [New].
type Options struct {
	API         http.Handler // what serves /v1, without what only a connection needs
	Door        Door
	Logger      *slog.Logger     // defaults to [slog.Default]
	Now         func() time.Time // defaults to [time.Now]
	Base        string           // the path under which a proxy shows the daemon, such as "/ops"; "": none
	Public      func() *url.URL  // where people reach the daemon; it returns nil where that is not known
	Environment string           // shown on each page
	ReadOnly    bool             // no page changes anything
	Within      bool             // another program's mux lets callers in: no page says that everyone may
}

// UI serves the pages. Its methods may be called concurrently.
type UI struct {
	o       Options
	mux     *http.ServeMux
	pages   *pages
	assets  *assets
	sealer  sealer
	checked checked
	live    *live
}

// New returns the pages. Close it when nothing is served any more.
func New(o Options) *UI {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Base = strings.TrimSuffix(o.Base, "/")
	u := &UI{o: o, mux: http.NewServeMux(), assets: loadAssets()}
	u.sealer = sealer{key: o.Door.Key}
	u.checked.start()
	u.live = newLive(u)
	u.pages = parsePages(u)
	for _, p := range routes {
		if !p.changes() || p.session || !o.ReadOnly {
			u.mux.Handle(p.method+" /ui"+p.path, u.guarded(p))
		}
		if p.live {
			u.mux.Handle(p.method+" /ui"+liveAt+p.path, u.streamed(&p))
		}
	}
	u.mux.HandleFunc("GET /ui/assets/{name}", u.assets.serve)
	u.mux.HandleFunc("/", u.unrouted)
	return u
}

// Drain ends the streams that keep pages up to date, and takes no more of them.
func (u *UI) Drain() { u.live.hub.Close() }

// Close ends what runs behind the pages.
func (u *UI) Close() {
	u.Drain()
	u.checked.stop()
}

// Serves reports whether a request is for a page, and not for the API.
func (u *UI) Serves(r *http.Request) bool {
	path := u.path(r)
	return path == "/ui" || strings.HasPrefix(path, "/ui/") || path == "/" && r.Method == http.MethodGet && acceptsHTML(r)
}

// acceptsHTML reports that a browser asks: programs that take anything do not say so.
func acceptsHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// path is what a request asks for, whether or not a proxy left the base path in it.
func (u *UI) path(r *http.Request) string {
	if rest, ok := strings.CutPrefix(r.URL.Path, u.o.Base); ok && (rest == "" || rest[0] == '/') && u.o.Base != "" {
		return rest
	}
	return r.URL.Path
}

// ServeHTTP implements http.Handler.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	path := u.path(r)
	if path == "" || path == "/" || path == "/ui" {
		http.Redirect(w, r, u.o.Base+"/ui/", http.StatusSeeOther)
		return
	}
	if path != r.URL.Path {
		at := *r.URL
		at.Path, at.RawPath = path, strings.TrimPrefix(r.URL.RawPath, u.o.Base)
		stripped := new(http.Request)
		*stripped = *r
		stripped.URL = &at
		r = stripped
	}
	u.mux.ServeHTTP(w, r)
}

// policy allows nothing inline, so that it needs no nonce.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"font-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types redrive"

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a form has no Origin, by which one over plain http is known to be ours
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

// unrouted answers what no route takes.
func (u *UI) unrouted(w http.ResponseWriter, r *http.Request) {
	p := problem.New(http.StatusNotFound, "no-page", "There is no such page", r.URL.Path, "")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if _, pattern := u.mux.Handler(&http.Request{Method: http.MethodGet, URL: r.URL, Host: r.Host}); pattern != "/" {
			p = problem.New(http.StatusMethodNotAllowed, "method", "This page is only looked at", r.Method+" "+r.URL.Path, "")
		}
		if u.o.ReadOnly {
			p = problem.New(http.StatusForbidden, "read-only", "The pages are read-only", "ui: {read_only: true} in the configuration", "use the command line")
		}
	}
	v := &visit{u: u, w: w, r: r, now: u.o.Now().UTC(), title: "Not found"}
	if who, err := u.identify(v); err == nil {
		v.who = who
	}
	v.fail(p)
}
