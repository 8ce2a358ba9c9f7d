package ui

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
)

// route is one page, or one thing that a page can do.
type route struct {
	method, path string
	params       []string // that its query may have
	session      bool     // it is about the session itself, and needs none
	live         bool     // it is kept up to date
	large        bool     // its form may hold a body
	serve        func(v *visit) error
}

func (r *route) changes() bool { return r.method == http.MethodPost }

// visit is one request for a page.
type visit struct {
	u     *UI
	w     http.ResponseWriter
	r     *http.Request // its context has the caller for the API
	now   time.Time
	who   *Caller // nil: nobody is logged in
	form  string  // what each form must send back
	title string
	query url.Values
	route *route // nil: none serves it

	ticket Ticket        // of who
	left   time.Duration // of the session
	made   *madePage     // not nil: the page is wanted, and not the answer

	headers sync.Mutex // of w, which several asks at a time look into
}

// Bounds of forms, in bytes.
const (
	maxForm      = 64 << 10
	maxLargeForm = 64 << 20 // a body of 16 MiB, escaped
)

// guarded turns a route into a handler: it looks who comes, refuses parameters that the
// page does not know and forms that no page of this session made, and shows errors.
//
// Requests from other sites do not come so far: what is around all of the daemon refuses them.
func (u *UI) guarded(p route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{u: u, w: w, r: r, now: u.o.Now().UTC(), route: &p}
		who, err := u.identify(v)
		v.who = who
		switch {
		case p.session:
		case err != nil && p.method == http.MethodGet && loggedOut(err):
			u.leadToLogin(v)
			return
		case err != nil:
			v.fail(err)
			return
		}
		defer v.within()()
		if err := v.served(&p); err != nil {
			v.fail(err)
		}
	})
}

// served admits and serves a request.
func (v *visit) served(p *route) (err error) {
	defer v.caught(&err)
	if err := v.admit(p); err != nil {
		return err
	}
	return p.serve(v)
}

// errPanicked stands for a panic, which is in the log.
var errPanicked = errors.New("panic")

// caught makes a panic an error, and logs it. What runs behind a page defers it, too: nobody else
// recovers there, and the daemon would end.
func (v *visit) caught(err *error) {
	if p := recover(); p != nil { //nolint:revive // callers defer it
		v.u.panicked(v.r, p)
		*err = errPanicked
	}
}

func (u *UI) panicked(r *http.Request, p any) {
	u.o.Logger.LogAttrs(r.Context(), slog.LevelError, "page panicked", slog.String("path", r.URL.Path), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}

// within lets the request end with its caller's token, and bounds how slowly its body comes.
func (v *visit) within() (release func()) {
	release = func() {}
	if v.who != nil {
		v.r, release = v.u.o.Door.Hold(v.r, v.ticket)
	}
	v.r.Body = gateway.Pace{}.Body(v.w, v.r)
	return release
}

// admit checks the parameters and the form of a request.
func (v *visit) admit(p *route) error {
	var err error
	if v.query, err = url.ParseQuery(v.r.URL.RawQuery); err != nil {
		return bad("the query cannot be read", err.Error())
	}
	var unknown []string
	for name, values := range v.query {
		if !slices.Contains(p.params, name) {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		} else if len(values) > 1 {
			return bad(fmt.Sprintf("the parameter %q is there %d times", name, len(values)), "give it once")
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		hint := "it takes none"
		if len(p.params) > 0 {
			hint = "it takes " + strings.Join(p.params, ", ")
		}
		return bad("this page does not know "+strings.Join(unknown, ", "), hint)
	}
	if !p.changes() {
		return nil
	}
	limit := int64(maxForm)
	if p.large {
		limit = maxLargeForm
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
	if err := v.r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		var p *problem.Problem // too slow, or the caller's token has ended
		switch {
		case errors.As(err, &p):
			return p
		case errors.As(err, &large):
			return problem.New(http.StatusRequestEntityTooLarge, "oversize", "The form is too large", fmt.Sprintf("the limit is %d bytes", large.Limit), "")
		}
		return bad("the form cannot be read", err.Error())
	}
	if !p.session && !same(v.r.PostForm.Get("form"), v.form) {
		return wrongForm()
	}
	return nil
}

// bad is an error in what was asked for.
func bad(detail, hint string) error {
	return problem.New(http.StatusBadRequest, "invalid", "The page cannot be shown so", detail, hint)
}

// value returns a field of a form without the spaces around it.
func (v *visit) value(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }

// redirect leads to another page after something was changed.
func (v *visit) redirect(path string) error {
	http.Redirect(v.w, v.r, v.u.o.Base+"/ui"+path, http.StatusSeeOther)
	return nil
}

// fault is what the page of an error shows.
type fault struct {
	Problem *problem.Problem
	Word    string // of its status
	Retry   bool   // it may go by itself
	Login   string // where to log in, if that helps
}

// fail shows an error.
func (v *visit) fail(err error) {
	p := problem.Of(err)
	f := fault{Problem: p, Word: http.StatusText(p.Status), Retry: p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests}
	if p.Internal() && !errors.Is(err, errPanicked) {
		v.u.o.Logger.LogAttrs(v.r.Context(), slog.LevelError, "page failed", slog.String("request", v.w.Header().Get("X-Request-Id")),
			slog.String("path", v.r.URL.Path), slog.Any("error", err))
	}
	if v.who == nil {
		f.Login = v.u.o.Base + "/ui/login"
	}
	v.title = p.Title
	v.show(p.Status, "error", f)
}
