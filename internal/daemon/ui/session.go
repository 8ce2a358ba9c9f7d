package ui

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
)

// How long a session lasts. Every page that is looked at keeps it from being idle.
const (
	sessionFor  = 12 * time.Hour
	sessionIdle = time.Hour
	sessionStep = 5 * time.Minute // how old the cookie gets before it is written anew
)

// session is what a cookie seals. The token itself is not in it.
type session struct {
	Ticket
	Began time.Time `json:"began"`
	Seen  time.Time `json:"seen"`
	Nonce []byte    `json:"nonce"` // of its forms
}

// sealer seals what only the daemons of a store may read.
type sealer struct {
	key func(ctx context.Context) ([]byte, error)

	mu   sync.Mutex
	aead cipher.AEAD
	mac  []byte // key of the forms
}

// open returns the cipher and the key of forms; the first time it needs the store.
func (s *sealer) open(ctx context.Context) (cipher.AEAD, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, s.mac, nil
	}
	key, err := s.key(ctx)
	if err != nil {
		return nil, nil, err
	}
	derive := func(what string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(what))
		return h.Sum(nil)
	}
	aead, err := chacha20poly1305.NewX(derive("redrive ui cookie"))
	if err != nil {
		return nil, nil, err
	}
	s.aead, s.mac = aead, derive("redrive ui form")
	return s.aead, s.mac, nil
}

// seal returns a session as the value of a cookie of that name.
func (s *sealer) seal(ctx context.Context, name string, of *session) (string, error) {
	aead, _, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	_, _ = rand.Read(nonce) // it never fails
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, []byte(name))), nil
}

// unseal is the reverse of seal. A value that was not sealed here is no session.
func (s *sealer) unseal(ctx context.Context, name, value string) (*session, error) {
	aead, _, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	b, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(b) < aead.NonceSize() {
		return nil, noSession()
	}
	plain, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], []byte(name))
	of := new(session)
	if err != nil || json.Unmarshal(plain, of) != nil {
		return nil, noSession()
	}
	return of, nil
}

// formToken is what the forms of a session carry: a page of another origin cannot read it.
func (s *sealer) formToken(ctx context.Context, nonce []byte) (string, error) {
	_, key, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, key)
	h.Write(nonce)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18]), nil
}

func same(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

func wrongForm() error {
	return problem.New(http.StatusForbidden, "form", "The form is not of this session", "", "go back, load the page again, and repeat")
}

func noSession() error {
	return problem.New(http.StatusUnauthorized, "no-session", "You are not logged in", "", "log in with a token")
}

// loggedOut reports that logging in is what helps.
func loggedOut(err error) bool { return problem.Of(err).Status == http.StatusUnauthorized }

// identify returns who sends a request, and puts them into its context for the API. It
// sets the token of the forms, and writes the cookie anew now and then.
func (u *UI) identify(v *visit) (*Caller, error) {
	v.left = sessionFor
	t, nonce, err := u.ticket(v)
	if err != nil {
		return nil, err
	}
	ctx, who, err := u.o.Door.Enter(v.r.Context(), t)
	if err != nil {
		return nil, err
	}
	if v.form, err = u.sealer.formToken(ctx, nonce); err != nil {
		return nil, err
	}
	v.r, v.ticket = v.r.WithContext(ctx), t
	return who, nil
}

// ticket returns the ticket of a request, and what its forms are made from: of the person whom
// a trusted proxy names, else of the session's cookie.
func (u *UI) ticket(v *visit) (t Ticket, nonce []byte, err error) {
	if u.o.Door.Open() {
		return t, nil, nil
	}
	if t, ok, err := u.o.Door.Vouched(v.r); ok || err != nil {
		return t, []byte("person " + t.Person), err
	}
	s, err := u.session(v)
	if err != nil {
		return t, nil, err
	}
	v.left = sessionFor - v.now.Sub(s.Began)
	if v.now.Sub(s.Seen) >= sessionStep {
		s.Seen = v.now
		if err := u.setCookie(v, s); err != nil {
			return t, nil, err
		}
	}
	return s.Ticket, s.Nonce, nil
}

// session returns the session of a request's cookie.
func (u *UI) session(v *visit) (*session, error) {
	name := u.cookieName(v.r)
	c, err := v.r.Cookie(name)
	if err != nil {
		return nil, noSession()
	}
	s, err := u.sealer.unseal(v.r.Context(), name, c.Value)
	if err != nil {
		return nil, err
	}
	if v.now.Sub(s.Began) >= sessionFor || v.now.Sub(s.Seen) >= sessionIdle {
		return nil, problem.New(http.StatusUnauthorized, "session-over", "The session is over", "it lasts 12 hours, and one without a look at a page", "log in again")
	}
	return s, nil
}

// encrypted reports whether the reader reaches the daemon by TLS, here or at a proxy.
func (u *UI) encrypted(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	public := u.o.Public()
	return public != nil && public.Scheme == "https"
}

// plain refuses a browser that came by plain http although the session's cookie is for encrypted connections
// only: it would be led to the login for ever. Browsers keep such a cookie of a loopback address.
func (u *UI) plain(r *http.Request) error {
	host, plain := strings.CutPrefix(r.Header.Get("Origin"), "http://")
	if !plain || r.TLS != nil || !u.encrypted(r) {
		return nil
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if config.Loopback(net.JoinHostPort(strings.Trim(host, "[]"), "80")) {
		return nil
	}
	return problem.New(http.StatusBadRequest, "plain-http", "This page came by plain http", "public_url is an https address, so the session's cookie is kept for encrypted connections only",
		"open "+u.o.Public().String())
}

// cookieName is the name of the session's cookie: with TLS one that no other host and no
// plain connection can set, else one of its own for each port, as cookies ignore ports.
func (u *UI) cookieName(r *http.Request) string {
	if u.encrypted(r) {
		return "__Host-rdui"
	}
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	return "rdui-" + port
}

func (u *UI) setCookie(v *visit, s *session) error {
	name := u.cookieName(v.r)
	value, err := u.sealer.seal(v.r.Context(), name, s)
	if err != nil {
		return err
	}
	http.SetCookie(v.w, u.cookie(v.r, name, value, int(sessionFor/time.Second)))
	return nil
}

// cookie is Lax, not Strict: a link from a chat must not arrive logged out, and GET changes nothing.
func (u *UI) cookie(r *http.Request, name, value string, age int) *http.Cookie {
	//nolint:gosec // without TLS, on the loopback, a cookie that is Secure would not come back
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: u.encrypted(r), SameSite: http.SameSiteLaxMode}
}

// loginForm is the page on which a token is typed, or a link is followed by a button: what opens
// links by itself, such as a chat, does not end them.
type loginForm struct {
	Next    string
	Link    string // by which somebody comes, instead of a token
	Problem *problem.Problem
}

func (u *UI) leadToLogin(v *visit) {
	to := u.o.Base + "/ui/login"
	if next := v.r.URL.RequestURI(); next != "/ui/" {
		to += "?next=" + url.QueryEscape(next)
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
}

// nextPage is where a login leads to: a page of ours, whatever the link says.
func nextPage(next string) string {
	rest, ok := strings.CutPrefix(next, "/ui/")
	if !ok || strings.HasPrefix(rest, "/") || strings.Contains(rest, "\\") {
		return "/"
	}
	return "/" + rest
}

func showLogin(v *visit) error {
	if v.who != nil {
		return v.redirect(nextPage(v.query.Get("next")))
	}
	v.title = "Log in"
	v.show(http.StatusOK, "login", loginForm{Next: v.query.Get("next"), Link: v.query.Get("link")})
	return nil
}

func logIn(v *visit) error {
	if v.u.o.Door.Open() {
		return v.redirect("/")
	}
	var t Ticket
	err := v.u.plain(v.r)
	if link := v.value("link"); err == nil && link != "" {
		t, err = v.u.o.Door.Redeem(v.r, link)
	} else if err == nil {
		t, err = v.u.o.Door.Knock(v.r, v.value("token"))
	}
	if err != nil {
		p := problem.Of(err)
		v.title, v.who = "Log in", nil
		v.show(p.Status, "login", loginForm{Next: v.value("next"), Problem: p})
		return nil
	}
	s := &session{Ticket: t, Began: v.now, Seen: v.now, Nonce: make([]byte, 18)}
	_, _ = rand.Read(s.Nonce) // it never fails
	if err := v.u.setCookie(v, s); err != nil {
		return err
	}
	return v.redirect(nextPage(v.value("next")))
}

func logOut(v *visit) error {
	if v.who != nil && !same(v.value("form"), v.form) {
		return wrongForm()
	}
	name := v.u.cookieName(v.r)
	http.SetCookie(v.w, v.u.cookie(v.r, name, "", -1))
	v.u.live.end(v.form)
	return v.redirect("/login")
}
